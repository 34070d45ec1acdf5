"""Where Triton puts allocations and scratch, as it says itself."""

from __future__ import annotations

import pytest

from tests.check.script import kernel
from wspec import bridge
from wspec.ir import print_module
from wspec.ir.core import Operation
from wspec.ir.shared_memory import Area
from wspec.proof import checked

GIVEN_AWAY = """
def kernel(n):
    a = buffer(64, 64)
    store(a, fetch())
    keep(load(a))
    keep(convert(fetch()))
"""


def ops(module: Operation, name: str) -> list[Operation]:
    return [op for op in module.walk() if op.name == name]


def test_scratch_has_the_bytes_of_a_buffer_that_is_done_with() -> None:
    module = kernel(GIVEN_AWAY)
    text = print_module(module)
    (alloc,), (convert,) = ops(module, "ttg.local_alloc"), ops(module, "ttg.convert_layout")
    placed = bridge.placement(module)
    assert placed.areas == {alloc: Area(0, 8192), convert: Area(0, 8192)}
    assert print_module(module) == text, "the module was changed"


def test_buffers_of_two_tasks_lie_apart() -> None:
    module = kernel("""
def kernel(n):
    done = barriers(1)
    with specialize():
        with task(4):
            a = buffer(64, 64)
            store(a, fetch())
            wait(done[0], 0)
            keep(load(a))
        with task(4):
            b = buffer(64, 64)
            store(b, fetch())
            keep(load(b))
            arrive(done[0])
""")
    done, a, b = ops(module, "ttg.local_alloc")
    areas = bridge.placement(module).areas
    assert not any(areas[one].overlaps(areas[other]) for one, other in ((done, a), (done, b), (a, b)))
    (tasks,) = ops(module, "ttg.warp_specialize")
    handed = areas[tasks]
    assert handed.stop - handed.start == 8 + 2 * 4 + 8, "a ring of barriers and a pointer"


def test_the_fences_that_the_back_end_adds() -> None:
    module = kernel("""
def kernel(n):
    full = barriers(1)
    tile = buffer(64, 64)
    for i in range(0, n, 1):
        expect(full[0], 8192)
        copy(tile, full[0])
        wait(full[0], i & 1)
        keep(load(tile))
""")
    (copy,) = ops(module, "ttng.async_tma_copy_global_to_local")
    assert bridge.placement(module).fences == {copy}


def test_what_libtriton_refuses() -> None:
    module = kernel("def kernel(n):\n    a = buffer(64, 64)\n    store(part(a, (0, 0), (32, 48)))")
    with pytest.raises(bridge.BridgeError):
        bridge.placement(module)


def test_what_takes_too_long_is_given_up() -> None:
    lines = "\n".join("    keep(convert(fetch()))" for _ in range(40))
    module = kernel(f"def kernel(n):\n{lines}")
    with pytest.raises(bridge.BridgeError, match="too long"):
        bridge.placement(module, limit_s=0)
    assert checked(module, 0.0).undecided
