"""What can be seen without running anything: registers, warps, numbers of named barriers."""

from __future__ import annotations

from collections.abc import Iterator

from wspec.check import code as c
from wspec.check.findings import Finding
from wspec.check.names import Names
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.shared_memory import size_bytes
from wspec.ir.types import DenseArrayAttr, MemDescType

REGISTERS = 65536  # of an SM
THREADS = 1024  # of a block
LEAST, MOST = 24, 256  # registers a thread that setmaxnreg takes
SHARED_BYTES = 232448  # of a block
GROUP = 4  # warps of a warp group
NAMED = 16  # hardware barriers of a block


def resources(module: Operation, function: Operation, program: c.Program, names: Names) -> Iterator[Finding]:
    """Findings about what the launch asks of the machine."""
    regions = [op for op in function.walk() if op.name == ws.NAME]
    base = module.int_attr("ttg.num-warps") or 4
    for region in regions:
        yield from _specialized(module, region, base)
    if not regions:
        yield from _launch(module, base, function)
    yield from _shared(program, function)
    yield from _dots(program, names)
    yield from _named(program, names, max((len(ws.partition_blocks(region)) for region in regions), default=0))


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
    yield from _launch(module, total, region)
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
    groups = _groups(counts, asked)
    for wanted, _ in groups:
        if not LEAST <= wanted <= MOST:
            message = f"a warp group of the partitions gets {wanted} registers a thread"
            note = f"setmaxnreg takes {LEAST} to {MOST}"
            yield Finding("error", "registers", message, region.location, note=note)
            return
    start = module.int_attr("ttg.maxnreg") or REGISTERS // (32 * total) // 8 * 8
    have = start * (base + sum(warps for _, warps in groups))
    rest = have - sum(wanted * warps for wanted, warps in groups)
    if rest < LEAST * base:
        left = f"the block starts with {start}, which leaves {max(rest, 0) // base} for the default task"
        message = f"the partitions ask for {', '.join(map(str, asked))} registers a thread; {left}"
        note = "Triton then moves no registers at all"
        yield Finding("undecided", "registers", message, region.location, note=note)


def _launch(module: Operation, total: int, place: Operation) -> Iterator[Finding]:
    """A block gets registers in steps of eight a thread, for whole warps."""
    start = _up(module.int_attr("ttg.maxnreg") or 0)
    if 32 * total * start > REGISTERS:
        message = f"{32 * total} threads with {start} registers each are {32 * total * start}; an SM has {REGISTERS}"
        yield Finding("error", "registers", message, place.location, note="set maxnreg lower, or leave it out")


def _shared(program: c.Program, function: Operation) -> Iterator[Finding]:
    """What the back end gives out in all; where that is not known, the largest allocation."""
    placement = program.placement
    sizes = {root: size_bytes(root.result.type) for root in program.roots if root.name == "ttg.local_alloc"
             and isinstance(root.result.type, MemDescType)}  # fmt: skip
    largest = max(sizes, key=lambda root: sizes[root], default=None)
    total = placement.total_bytes if placement is not None else sizes[largest] if largest is not None else 0
    if total > SHARED_BYTES:
        message = f"{total} bytes of shared memory are asked for; a block has at most {SHARED_BYTES}"
        place = largest.location if largest is not None else function.location
        yield Finding("error", "shared-memory", message, place, note="use smaller tiles or fewer of them")


def _rounded(warps: int) -> int:
    return -(-warps // GROUP) * GROUP


def _up(registers: int) -> int:
    return -(-registers // 8) * 8


def _groups(counts: list[int], asked: tuple[int, ...]) -> list[tuple[int, int]]:
    """(registers a thread, warps) of the partitions' warp groups, as Triton 3.6 lays them out.

    The largest partitions come first, then those that fill up the last group, which ask for 16. What lies between two
    partitions that begin at a multiple of four warps gets what the first of it to need most asks, rounded up to eight.
    (lib/Conversion/TritonGPUToLLVM/AllocateWarpGroups.cpp)
    """
    partitions = [*zip(counts, asked, strict=True)]
    missing = -sum(counts) % GROUP
    partitions += [(warps, 16) for warps in (2, 1) if missing & warps]
    found: list[tuple[int, int]] = []
    at = 0
    for warps, wanted in sorted(partitions, key=lambda one: -one[0]):
        if at % GROUP == 0:
            found.append((0, 0))
        most, before = found[-1]
        found[-1] = (max(most, _up(wanted)), before + warps)
        at += warps
    return found


def _dots(program: c.Program, names: Names) -> Iterator[Finding]:
    for index, code in enumerate(program.codes):
        dot = next((step for step in code.steps if isinstance(step, c.Dot)), None)
        if dot is not None and code.warps % GROUP:
            message = f"{names.task(index)} multiplies on {code.warps} warps; wgmma takes whole groups of {GROUP}"
            yield Finding("error", "warps", message, dot.op.location)


def _named(program: c.Program, names: Names, partitions: int) -> Iterator[Finding]:
    """Triton itself takes the lowest numbers: one for each task of a region, and one to start and end the partitions.

    Regions one after the other take the same ones (`bar.sync 2` and `3` in the PTX of two regions of two partitions).
    """
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
