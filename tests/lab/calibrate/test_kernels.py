"""Every microbenchmark assembles for Hopper, and its binary holds the instructions it is about."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wspec.lab.calibrate import arithmetic, tensor_cores
from wspec.lab.calibrate.assemble import AssemblyError, assemble, missing, opcodes
from wspec.lab.calibrate.ptx import Kernel, entry
from wspec.lab.calibrate.topics import TOPICS

MODULES = {
    f"{topic.name}-{index}": part for topic in TOPICS.values() for index, part in enumerate(topic.modules)
}  # fmt: skip


OFTEN = [name for place, name in enumerate(MODULES) if place % 12 == 0 or name.endswith("-0")]
"""One of each topic, and of several every twelfth: their kernels differ in numbers alone."""


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in MODULES]
)
def test_a_module_holds_what_it_measures(name: str, tmp_path: Path) -> None:
    kernels = MODULES[name]
    found = opcodes(assemble(kernels, tmp_path))
    assert set(found) == {kernel.name for kernel in kernels}
    for kernel in kernels:
        assert kernel.sass, f"{kernel.name} says nothing of its instructions"
        assert missing(kernel, found[kernel.name]) == {}, Counter(found[kernel.name])
        local = [opcode for opcode in found[kernel.name] if opcode.startswith(("LDL", "STL"))]
        assert local == [], f"{kernel.name} spills"


def test_topics_that_share_kernels_are_assembled_side_by_side(tmp_path: Path) -> None:
    """Whoever is first: the file is there for all."""
    kernel = Kernel("short", entry("short", "", "ret;", threads=32), 32)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: assemble([kernel], tmp_path), range(12)))
    assert len(set(made)) == 1 and list(tmp_path.iterdir()) == made[:1]


def test_no_loop_is_unrolled(tmp_path: Path) -> None:
    """What a loop holds is what its name says, no multiple of it: the difference of two loops is the cost."""
    op = next(op for op in arithmetic.OPS if op.name == "ffma")
    kernels = arithmetic.kernels(op)
    found = opcodes(assemble(kernels, tmp_path))
    for kernel in kernels:
        assert sum(opcode == "FFMA" for opcode in found[kernel.name]) == int(kernel.name.rsplit("_", 1)[1])


def test_names_are_unique_and_every_quantity_says_what_it_is() -> None:
    for topic in TOPICS.values():
        assert len(topic.kernels) == sum(len(part) for part in topic.modules)
        names = [quantity.name for quantity in topic.quantities]
        assert len(set(names)) == len(names)
        assert all(quantity.unit and quantity.what for quantity in topic.quantities) and topic.what


def test_wgmma_is_issued_back_to_back(tmp_path: Path) -> None:
    """Between the instructions of a batch stands nothing that waits, nor a copy of a descriptor."""
    kind = tensor_cores.KINDS[0]
    kernel = next(kernel for kernel in tensor_cores.kernels(kind, 64) if kernel.name.endswith("1x16"))
    found = opcodes(assemble([kernel], tmp_path))[kernel.name]
    at = [index for index, opcode in enumerate(found) if opcode.startswith("HGMMA")]
    between = set(found[at[0] : at[-1]]) - {found[at[0]]}
    assert len(at) == 16 and not any(opcode.startswith(("WARPGROUP", "R2UR", "BAR", "BRA")) for opcode in between)


def test_what_ptxas_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    kernel = Kernel("wrong", entry("wrong", "", "nonsense;", threads=32), 32)
    with pytest.raises(AssemblyError, match=r"(?s)wrong: .*nonsense"):
        assemble([kernel], tmp_path)
    assert not list(tmp_path.glob("*.cubin"))
