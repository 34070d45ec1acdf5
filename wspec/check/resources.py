"""What can be seen without running anything: registers, warps, numbers of named barriers."""

from __future__ import annotations

from collections.abc import Iterator

from wspec.check import code as c
from wspec.check.findings import Finding
from wspec.check.names import Names
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr

REGISTERS = 65536  # of an SM
THREADS = 1024  # of a block
MAX_REGISTERS = 255
GROUP = 4  # warps of a warp group
NAMED = 16  # hardware barriers of a block


def resources(module: Operation, function: Operation, program: c.Program, names: Names) -> Iterator[Finding]:
    """Findings about what the launch asks of the machine."""
    regions = [op for op in function.walk() if op.name == ws.NAME]
    base = module.int_attr("ttg.num-warps") or 4
    for region in regions:
        yield from _specialized(module, region, base)
    yield from _dots(program, names)
    yield from _named(program, names, sum(len(ws.partition_blocks(region)) for region in regions))


def _specialized(module: Operation, region: Operation, base: int) -> Iterator[Finding]:
    warps = region.attr("partitionNumWarps")
    counts = list(warps.values) if isinstance(warps, DenseArrayAttr) else []
    if len(counts) != len(ws.partition_blocks(region)):
        yield Finding("error", "warps", "there are not as many warp counts as partitions", region.location)
        return
    if min(counts, default=1) < 1 or any(count & (count - 1) for count in counts):
        yield Finding(
            "error",
            "warps",
            f"the partitions have {', '.join(map(str, counts))} warps",
            region.location,
            note="use 1, 2, 4 or 8",
        )
        return
    total = _rounded(base) + _rounded(sum(counts))
    if 32 * total > THREADS:
        message = f"the tasks have {32 * total} threads; a block has at most {THREADS}"
        yield Finding("error", "warps", message, region.location, note="use fewer warps")
    asked = region.attr("requestedRegisters")
    if not isinstance(asked, DenseArrayAttr):
        return
    if len(asked.values) != len(counts):
        yield Finding("error", "registers", "there are not as many register counts as partitions", region.location)
        return
    yield from _registers(module, region, base, counts, asked.values, total)


def _registers(
    module: Operation, region: Operation, base: int, counts: list[int], asked: tuple[int, ...], total: int
) -> Iterator[Finding]:
    for number, wanted in enumerate(asked):
        if not 24 <= wanted <= 256 or wanted % 8:
            message = f"partition {number} asks for {wanted} registers a thread"
            note = "setmaxnreg takes multiples of 8 from 24 to 256"
            yield Finding("error", "registers", message, region.location, note=note)
            return
    start = module.int_attr("ttg.maxnreg") or min(MAX_REGISTERS + 1, REGISTERS // (32 * total)) // 8 * 8
    have = start * _rounded(base) + start * _rounded(sum(counts))
    # Partitions are laid out one after the other; a warp group gets what the first of its partitions to need most asks.
    groups = _groups(counts, asked)
    rest = have - sum(GROUP * wanted for wanted in groups)
    if rest < 24 * _rounded(base):
        left = f"the block starts with {start}, which leaves {max(rest, 0) // _rounded(base)} for the default task"
        message = f"the partitions ask for {', '.join(map(str, asked))} registers a thread; {left}"
        note = "the tasks together cannot have more registers than the launch gives; setmaxnreg would wait forever"
        yield Finding("error", "registers", message, region.location, note=note)


def _rounded(warps: int) -> int:
    return -(-warps // GROUP) * GROUP


def _groups(counts: list[int], asked: tuple[int, ...]) -> list[int]:
    """The registers each warp group of the partitions gets."""
    each = [wanted for count, wanted in zip(counts, asked, strict=True) for _ in range(count)]
    each += [each[-1] if each else 24] * (-len(each) % GROUP)
    return [max(each[at : at + GROUP]) for at in range(0, len(each), GROUP)]


def _dots(program: c.Program, names: Names) -> Iterator[Finding]:
    for index, code in enumerate(program.codes):
        dot = next((step for step in code.steps if isinstance(step, c.Dot)), None)
        if dot is not None and code.warps % GROUP:
            message = f"{names.task(index)} multiplies on {code.warps} warps; wgmma takes whole groups of {GROUP}"
            yield Finding("error", "warps", message, dot.op.location)


def _named(program: c.Program, names: Names, partitions: int) -> Iterator[Finding]:
    """Triton itself takes the lowest numbers: one for each task, and one to start and end the partitions."""
    taken = 2 + partitions if partitions else 1
    for index, code in enumerate(program.codes):
        for step in code.steps:
            if not isinstance(step, c.Named):
                continue
            if step.number < taken or step.number >= NAMED:
                message = f"{names.task(index)} uses named barrier {step.number}; free are {taken} to {NAMED - 1}"
                yield Finding("error", "named-barrier", message, step.op.location)
            if step.threads % 32:
                message = f"named barrier {step.number} is used for {step.threads} threads, not whole warps"
                yield Finding("error", "named-barrier", message, step.op.location)
