"""What dots and transfers keep busy, and for how long."""

from __future__ import annotations

from math import prod

from wspec.ir.core import Operation
from wspec.ir.types import Layout, MemDescType, TensorType
from wspec.lab.simulate.actions import Flow
from wspec.lab.simulate.costs import FILL, LOAD, SMEM, STORE, TENSOR, Numbers
from wspec.lab.simulate.tiles import bits, byte_size


def load(size: int, numbers: Numbers) -> Flow:
    """Bytes from L2 to shared memory: the unit is what L2 sends of data that no other SM wants.

    Copies do not take bandwidth from what reads shared memory: beside wgmma that reads all of its 128 bytes a cycle
    they were measured to bring 36 more, while wgmma lost 4 % (`mixed.bf16_ss_own`). They share the way into it with
    stores (`shared_beside.store_rate_copies`).
    """
    return arriving(size, size / numbers.load, numbers)


def arriving(size: int, cycles: float, numbers: Numbers, most: float = 0.0) -> Flow:
    """Bytes that the way from L2 takes so many cycles for; the way into shared memory takes what an SM can get.

    That is `most` bytes a cycle, of whole lines if it is 0.
    """
    alone = size / (most or numbers.load_most)
    return Flow(alone, ((FILL, alone), (LOAD, cycles)))


def store(size: int, numbers: Numbers) -> Flow:
    """Bytes from shared memory to L2. The eighth of shared memory's bandwidth that they are read at is left out: dots
    that read all of it, as no loop does all the time, would stop them."""
    return Flow.of({STORE: size / numbers.store})


def dot(op: Operation, groups: int, numbers: Numbers, serialized: bool = False) -> tuple[Flow, Flow]:
    """One of `groups` warp groups' share of the tile: all instructions but the last, and the last (or halves).

    Groups share the rows, and the columns where there are not 64 rows for each. Operands in shared memory are read for
    every 64 rows anew. Of a `serialized` kernel every instruction waits for the
    one before.
    """
    left, right, result = _types(op)
    inner, (rows, part) = left.shape[-1], _share(result, groups)
    outer = prod(result.shape[:-2])
    rate = numbers.flop_8bit if bits(left) == 8 else numbers.flop_16bit
    read = byte_size(right) / outer * part * rows / 64
    if isinstance(left, MemDescType):
        read += rows * inner * bits(left) / 8
    tensor = 2 * outer * rows * part * result.shape[-1] * inner / rate
    busy = {TENSOR: tensor, SMEM: outer * read / numbers.smem}
    columns = _columns(result)
    count = instructions(op, groups)
    least = numbers.dot_interval.get(columns, 0.0)  # narrow instructions take longer than their FLOP say
    each = max(least, tensor / count) if count else 0.0
    if serialized:
        each += latency(op, numbers)
    whole = Flow.of(busy, count * each)
    last = 1 / max(2.0, count)
    return _part(whole, 1 - last), _part(whole, last)


def held(op: Operation, groups: int, numbers: Numbers) -> tuple[float, float] | None:
    """For how long issuing a dot holds its warp group: (instructions, cycles each); None where until its last one runs.

    Instructions are queued at the tensor core; those that read A from registers take longer to issue.
    """
    left, _, result = _types(op)
    known = numbers.dot_issue if isinstance(left, MemDescType) else numbers.dot_issue_registers
    if not known:
        return None
    columns = _columns(result)
    each = known.get(columns, known[min(known, key=lambda n: abs(n - columns))])
    return instructions(op, groups), each


def instructions(op: Operation, groups: int) -> float:
    """How many wgmma one of `groups` warp groups issues for a dot."""
    left, _, result = _types(op)
    outer, (rows, part) = prod(result.shape[:-2]), _share(result, groups)
    columns = part * result.shape[-1] / max(1, _columns(result))
    return outer * rows / 64 * left.shape[-1] * bits(left) / 256 * columns


def _share(result: TensorType, groups: int) -> tuple[float, float]:
    """(rows, part of the columns) of a result that one of so many warp groups computes."""
    down = max(1.0, min(float(groups), result.shape[-2] / 64))
    return max(64.0, result.shape[-2] / down), min(1.0, down / groups)


def _part(flow: Flow, share: float) -> Flow:
    return Flow(flow.cycles * share, tuple((unit, cycles * share) for unit, cycles in flow.busy))


def latency(op: Operation, numbers: Numbers) -> float:
    """From the end of a dot's last instruction to the warp that waited for it."""
    known = numbers.dot_latency
    return known.get(_columns(_types(op)[2]), min(known.values(), default=0.0))


def flop(op: Operation) -> int:
    """Of a dot, all warps together."""
    left, _, result = _types(op)
    return 2 * prod(result.shape) * left.shape[-1]


def _types(op: Operation) -> tuple[TensorType | MemDescType, TensorType | MemDescType, TensorType]:
    left, right, result = op.operands[0].type, op.operands[1].type, op.results[0].type
    assert isinstance(left, TensorType | MemDescType) and isinstance(right, TensorType | MemDescType)
    assert isinstance(result, TensorType)
    return left, right, result


def _columns(result: TensorType) -> int:
    """N of the instructions that make a tile; 0 where the layout does not say."""
    shape = result.encoding.ints("instrShape") if isinstance(result.encoding, Layout) else ()
    return shape[1] if len(shape) > 1 else 0
