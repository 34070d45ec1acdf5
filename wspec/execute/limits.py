"""What a card or Triton's back end refuses before anything runs: threads, registers, shared memory, named barriers."""

from __future__ import annotations

from wspec.execute.errors import ExecutionError
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr

THREADS = 1024  # of a block
REGISTERS = 65536  # of an SM, and so of a block
SHARED_BYTES = 232448  # of a block
LEAST_REGISTERS = 24  # of a thread
WARP_GROUP = 4  # warps


def check_limits(module: Operation) -> None:
    """Raises ExecutionError where a block cannot be launched, or would wait for registers for ever.

    Of registers no more is asked than must be there: how Triton divides them between warp groups it does not say.
    """
    base = module.int_attr("ttg.num-warps") or 4
    shared = module.int_attr("ttg.shared") or 0
    if shared > SHARED_BYTES:
        raise ExecutionError(f"{shared} bytes of shared memory; a block has at most {SHARED_BYTES}", module.location)
    for op in module.walk():
        if op.name == ws.NAME:
            counts, asked = _numbers(op, "partitionNumWarps"), _numbers(op, "requestedRegisters")
            threads = 32 * (_rounded(base) + _rounded(sum(counts)))
            if threads > THREADS:
                raise ExecutionError(f"{threads} threads; a block has at most {THREADS}", op.location)
            _check_registers(module, op, base, threads, counts, asked)


def _check_registers(
    module: Operation, op: Operation, base: int, threads: int, counts: tuple[int, ...], asked: tuple[int, ...]
) -> None:
    start = module.int_attr("ttg.maxnreg")
    if start is not None and start * threads > REGISTERS:
        text = f"{start} registers for each of {threads} threads are {start * threads}; an SM has {REGISTERS}"
        raise ExecutionError(text, op.location)
    for one in asked:
        if one % 8 or not LEAST_REGISTERS <= one <= 256:
            text = f"{one} registers a thread; setmaxnreg takes multiples of 8 from {LEAST_REGISTERS} to 256"
            raise ExecutionError(text, op.location)
    taken = sum(32 * count * one for count, one in zip(counts, asked, strict=False))
    if asked and taken + 32 * _rounded(base) * LEAST_REGISTERS > REGISTERS:
        text = f"the partitions ask for {taken} registers, which leaves less than {LEAST_REGISTERS} for the others"
        raise ExecutionError(text, op.location)


def first_named(module: Operation) -> int:
    """The lowest number of a hardware barrier that a kernel may use itself: Triton takes one for each task, and one to
    start and end the partitions. Regions one after the other take the same ones."""
    partitions = max((len(_numbers(op, "partitionNumWarps")) for op in module.walk() if op.name == ws.NAME), default=0)
    return 2 + partitions if partitions else 1


def _numbers(op: Operation, name: str) -> tuple[int, ...]:
    found = op.attr(name)
    return found.values if isinstance(found, DenseArrayAttr) else ()


def _rounded(warps: int) -> int:
    return -(-warps // WARP_GROUP) * WARP_GROUP
