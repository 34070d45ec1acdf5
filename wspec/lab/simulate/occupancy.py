"""How many blocks of a module share an SM: threads, registers and shared memory."""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, uses
from wspec.ir.shapes import DOTS
from wspec.ir.types import DenseArrayAttr
from wspec.lab.simulate.costs import RESIDENT_BLOCKS, RESIDENT_THREADS, WARP
from wspec.lab.simulate.tiles import byte_size
from wspec.model.machine import Machine
from wspec.plan.registers import consumer_need

_RESERVED = 1024  # bytes of shared memory the system takes of each block; CUDA programming guide


def blocks_per_sm(module: Operation, machine: Machine, registers: int | None = None) -> int:
    """At least 1. `registers` is what a thread has at launch; left out, it is the module's limit or an estimate."""
    threads = WARP * total_warps(module)
    each = registers or _registers(module, machine, threads)
    rounded = -(-each // 8) * 8
    return max(
        1,
        min(
            RESIDENT_BLOCKS,
            RESIDENT_THREADS // threads,
            machine.registers // (rounded * threads),
            (machine.smem_bytes + _RESERVED) // (shared_bytes(module) + _RESERVED),
        ),
    )


def total_warps(module: Operation) -> int:
    """Of all tasks, in whole warp groups."""
    own, op = module.int_attr("ttg.num-warps") or 4, ws.find(module)
    counts = op.attr("partitionNumWarps") if op is not None else None
    more = sum(counts.values) if isinstance(counts, DenseArrayAttr) else 0
    return -(-(own + more) // 4) * 4 if more else own


def _registers(module: Operation, machine: Machine, threads: int) -> int:
    """Of a specialized kernel what it is limited to, or all there are; of a plain one what its loops need."""
    limit = module.int_attr("ttg.maxnreg")
    if limit is not None:
        return limit
    if ws.find(module) is not None:
        return machine.registers // threads // 8 * 8
    loops = [op for op in module.walk() if op.name == "scf.for" and any(inner.name in DOTS for inner in op.walk())]
    need = consumer_need(loops, (), threads) if loops else 64
    return min(machine.max_registers_thread, need)


def shared_bytes(module: Operation) -> int:
    """The most that is allocated at a time: from an allocation to its end or, where none is stated, its last use."""
    users = uses(module)
    order = {op: number for number, op in enumerate(module.walk())}
    ends = {op: max(order[inner] for inner in op.walk()) for op in order if op.regions}
    spans: list[tuple[int, int, int]] = []
    for op, start in order.items():
        if op.name != "ttg.local_alloc":
            continue
        last, seen, work = start, {op.result}, [op.result]
        freed = [order[user] for user, _ in users.get(op.result, []) if user.name == "ttg.local_dealloc"]
        while work and not freed:
            for user, _ in users.get(work.pop(), []):
                top = user
                for outer in user.ancestors():
                    if outer.parent is op.parent:
                        top = outer
                last = max(last, order[user], ends.get(top, 0))
                more = [result for result in user.results if result not in seen and user.name.startswith("ttg.memdesc")]
                seen.update(more)
                work += more
        spans.append((start, freed[0] if freed else last, byte_size(op.result.type)))
    return max((sum(size for a, b, size in spans if a <= at <= b) for at, _, _ in spans), default=0)
