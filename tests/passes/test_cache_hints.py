"""Copies of elements keep what their load says of caches; what it does not say is the ordinary."""

from __future__ import annotations

from tests.support.shipped import shipped
from tests.support.verified import specialize
from wspec.ir import Operation, print_module, read
from wspec.ir.types import i32
from wspec.options import Options

COPY = "ttg.async_copy_global_to_local"


def copies(module: Operation) -> list[tuple[object, object]]:
    """What the copies of the specialized kernel say of caches."""
    made = specialize(module, Options(gate="off")).module
    assert made is not None
    return [(op.properties["cache"], op.properties["evict"]) for op in made.walk() if op.name == COPY]


def test_what_a_load_does_not_say_is_the_ordinary() -> None:
    """Triton 3.9 leaves it out."""
    module = read(print_module(shipped("gathered.py:gathered_matmul_kernel", "bf16")))
    for op in module.walk():
        if op.name == "tt.load":
            op.properties = {name: value for name, value in op.properties.items() if name not in ("cache", "evict")}
    found = copies(module)
    assert found and set(found) == {(i32(1), i32(1))}


def test_what_a_load_says_is_kept() -> None:
    module = read(print_module(shipped("gathered.py:gathered_matmul_kernel", "bf16")))
    for op in module.walk():
        if op.name == "tt.load":
            op.properties = {**op.properties, "evict": i32(2)}
    found = copies(module)
    assert found and set(found) == {(i32(1), i32(2))}
