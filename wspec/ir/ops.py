"""What we know of each operation, one row a name. No row means unknown effects: do not move it, do not drop it.

The rows cover TTGIR before pipelining and TTGIR after specialization for sm_90. Operations of other targets are left
out on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from wspec.ir.core import Operation, Value
from wspec.ir.types import MemDescType

Memory = Literal["global", "shared", "barrier", "other"]  # other: printing, asserting, descriptors in scratch memory
Category = Literal[
    "constant",  # no operands, the same everywhere
    "index",  # program ids, ranges
    "elementwise",  # every operand and result has the same shape, element i depends on elements i
    "shape",  # moves, repeats or renames elements of a tensor in registers; no arithmetic
    "layout",  # changes who holds which element
    "reduce",  # combines elements of one tensor: reduce, scan, histogram
    "dot",
    "load",
    "store",
    "atomic",
    "alloc",
    "view",  # another name for a buffer
    "barrier",
    "copy",  # asynchronous global <-> shared copies
    "control",
    "debug",
]

Unit = Literal[
    "",  # none: names, shapes, or a price of its own (loads, products, reductions)
    "fma",
    "alu",
    "mufu",  # the exponential unit
    "convert",  # between types of floats, and of integers
]


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One row of the table."""

    name: str
    category: Category
    reads: frozenset[Memory] = frozenset()
    writes: frozenset[Memory] = frozenset()
    terminator: bool = False
    asynchronous: bool = False  # its effect may come after the operation is done
    nested: bool = False  # its effects are those of its regions
    pure_flag: str | None = None  # the attribute that says whether it is pure; without it: unknown effects
    unit: Unit = ""  # what an element of it keeps busy
    around: int = 0  # multiplications and additions around its instruction on the exponential unit
    same_type: bool = False  # all operands and results have one type

    @property
    def pure(self) -> bool:
        """No effect and no memory read, whatever the attributes; `is_pure` knows more about a particular operation."""
        return not (self.reads or self.writes or self.terminator or self.nested or self.pure_flag)


_TABLE: dict[str, OpInfo] = {}
_NEVER_PURE = frozenset(("builtin.module", "tt.func", "scf.while", "ttg.warp_specialize"))


def _rows(prefix: str, names: str, row: OpInfo) -> None:
    """Add `row` under each of the names."""
    for name in names.split():
        full = f"{prefix}.{name}"
        assert full not in _TABLE, full
        _TABLE[full] = replace(row, name=full)


def _row(
    category: Category,
    *,
    reads: Iterable[Memory] = (),
    writes: Iterable[Memory] = (),
    asynchronous: bool = False,
    unit: Unit = "",
) -> OpInfo:
    """A row without its name."""
    return OpInfo("", category, frozenset(reads), frozenset(writes), asynchronous=asynchronous, unit=unit)


def _fill() -> None:
    """Elementwise arithmetic: one row says what is known of it, here and to the models of time."""
    alu = _row("elementwise", unit="alu")
    slow = _row("elementwise", unit="alu")  # many instructions, or a unit that is scarce
    same, same_slow = replace(alu, same_type=True), replace(slow, same_type=True)
    fma, convert = replace(same, unit="fma"), replace(alu, unit="convert")
    mufu = [replace(same_slow, unit="mufu", around=around) for around in (0, 1, 2)]
    _rows("arith", "addf mulf subf", fma)
    _rows("math", "fma", fma)
    _rows("arith", "addi andi maximumf maxnumf maxsi maxui minimumf minnumf minsi minui muli negf ori shli shrsi shrui "
          "subi xori", same)  # fmt: skip
    _rows("math", "absf absi ceil clampf copysign floor round roundeven trunc", same)
    _rows("arith", "bitcast cmpf cmpi extsi extui index_cast index_castui select trunci addui_extended mulsi_extended "
          "mului_extended", alu)  # fmt: skip
    _rows("math", "ctlz ctpop cttz isfinite isinf isnan", alu)
    _rows("arith", "extf fptosi fptoui sitofp truncf uitofp", convert)
    _rows("math", "exp2 log2 rsqrt", mufu[0])
    _rows("math", "cos exp log sin sqrt tanh", mufu[1])
    _rows("arith", "divf", mufu[2])
    _rows("math", "erf", replace(mufu[0], around=20))
    _rows("math", "acos acosh asin asinh atan atan2 atanh cbrt cosh erfc expm1 log10 log1p powf sinh tan", same_slow)
    _rows("math", "fpowi ipowi", slow)
    _rows("arith", "ceildivsi ceildivui divsi divui floordivsi remf remsi remui", same_slow)
    _rows("arith", "constant", _row("constant"))
    _rows("ub", "poison", _row("constant"))
    _tensors(alu, slow)
    _memory()
    _barriers()
    _control()


def _tensors(alu: OpInfo, slow: OpInfo) -> None:
    """tt and ttg operations on values in registers."""
    _rows("tt", "addptr bitcast clampf int_to_ptr ptr_to_int mulhiui", alu)
    _rows("tt", "fp_to_fp", replace(alu, unit="convert"))
    _rows("tt", "precise_divf precise_sqrt", replace(slow, unit="mufu", around=8))
    _rows("ttg", "fp4_to_fp", _row("shape"))
    index = _row("index")
    _rows("tt", "get_program_id get_num_programs make_range", index)
    _rows("gpu", "thread_id block_id block_dim grid_dim lane_id cluster_id cluster_block_id", index)
    _rows("ttg", "warp_id", index)
    _rows("ttng", "cluster_id", index)
    _rows("wspec", "member", index)  # the number of a warp group in its team
    _rows(
        "tt", "splat unsplat expand_dims broadcast reshape trans join split cat advance make_tensor_ptr", _row("shape")
    )
    _rows("ttg", "convert_layout", _row("layout"))  # through shared memory that it owns: not an effect
    _rows("tt", "gather", _row("layout"))
    _rows("tt", "histogram", _row("reduce"))
    _rows("tt", "dot dot_scaled", _row("dot"))
    _rows("ttng", "warp_group_dot", _row("dot", reads=["shared"], asynchronous=True))
    _rows("ttng", "warp_group_dot_wait", _row("dot", reads=["barrier"], writes=["barrier"]))
    _rows("tt", "reduce scan", OpInfo("", "reduce", nested=True))
    _rows("tt", "map_elementwise", OpInfo("", "elementwise", nested=True))
    flagged = OpInfo("", "elementwise", pure_flag="pure")
    _rows("tt", "elementwise_inline_asm extern_elementwise", flagged)


def _memory() -> None:
    """Global and shared memory."""
    _rows("tt", "load descriptor_load descriptor_gather", _row("load", reads=["global"]))
    _rows("tt", "store descriptor_store descriptor_scatter", _row("store", writes=["global"]))
    both = _row("atomic", reads=["global"], writes=["global"])
    _rows("tt", "atomic_rmw atomic_cas descriptor_reduce", both)
    # A descriptor made on the device is written to scratch memory that only its users read: safe to drop or to repeat.
    _rows("tt", "make_tensor_descriptor", _row("alloc"))
    _rows("ttng", "reinterpret_tensor_descriptor", _row("view"))
    _rows("ttng", "tensormap_create", _row("alloc", writes=["other"]))
    _rows("ttng", "tensormap_fenceproxy_acquire", _row("barrier", reads=["other"], writes=["other"]))
    _rows("ttg", "global_scratch_alloc", _row("alloc", writes=["other"]))
    _rows("ttg", "local_alloc", _row("alloc", writes=["shared"]))
    _rows("ttg", "local_dealloc", _row("alloc", writes=["shared"]))
    _rows("ttg", "local_load", _row("load", reads=["shared"]))
    _rows("ttg", "local_store", _row("store", writes=["shared"]))
    views = "memdesc_index memdesc_subslice memdesc_trans memdesc_reshape memdesc_reinterpret memdesc_subview"
    _rows("ttg", views, _row("view"))
    copied = _row("copy", reads=["global"], writes=["shared"], asynchronous=True)
    _rows("ttg", "async_copy_global_to_local", copied)
    _rows("ttg", "async_commit_group async_wait", _row("barrier", reads=["barrier"], writes=["barrier"]))
    copied = _row("copy", reads=["global", "barrier"], writes=["shared", "barrier"], asynchronous=True)
    _rows("ttng", "async_tma_copy_global_to_local async_tma_gather", copied)
    stored = _row("copy", reads=["shared"], writes=["global"], asynchronous=True)
    _rows("ttng", "async_tma_copy_local_to_global async_tma_reduce async_tma_scatter", stored)
    _rows("ttng", "async_tma_store_wait", _row("barrier", reads=["barrier"], writes=["barrier"]))


def _barriers() -> None:
    """Barriers and fences. They order everything, so they count as touching the barriers' memory both ways."""
    ordering = _row("barrier", reads=["barrier"], writes=["barrier"])
    _rows("ttng", "init_barrier inval_barrier barrier_expect wait_barrier arrive_barrier async_copy_mbarrier_arrive "
          "fence_async_shared fence cluster_arrive cluster_wait", ordering)  # fmt: skip
    _rows("ttg", "local_barrier barrier", ordering)
    _rows("gpu", "barrier", ordering)


def _control() -> None:
    """Control flow, calls, debugging."""
    nested = OpInfo("", "control", nested=True)
    _rows("scf", "for while execute_region if index_switch", nested)
    _rows("builtin", "module", nested)
    _rows("tt", "func", nested)
    _rows("ttg", "warp_specialize", nested)
    end = OpInfo("", "control", terminator=True)
    _rows("ttg", "warp_specialize.partitions", replace(end, nested=True))
    _rows("ttg", "warp_yield warp_return mask.return", end)
    _rows("scf", "yield condition", end)
    _rows("cf", "br cond_br switch", end)
    _rows("tt", "return reduce.return scan.return map_elementwise.return", end)
    _rows("llvm", "unreachable", end)
    _rows("tt", "print assert", _row("debug", writes=["other"]))
    _rows("cf", "assert", _row("debug", writes=["other"]))
    _rows("llvm.intr", "assume", _row("debug", writes=["other"]))


_fill()


def info(name: str) -> OpInfo | None:
    """The row of an operation's name; None when nothing is known."""
    return _TABLE.get(name)


def known_names() -> Iterator[str]:
    """Every name that has a row, sorted."""
    yield from sorted(_TABLE)


def is_terminator(op: Operation) -> bool:
    """Does the operation end its block? Operations without a row count as terminators when they have successors."""
    row = _TABLE.get(op.name)
    return row.terminator if row is not None else bool(op.successors)


def is_elementwise(op: Operation) -> bool:
    """Does it compute an element of those in its place? Inline assembly may take several elements at a time."""
    row = _TABLE.get(op.name)
    return row is not None and row.category == "elementwise"


def is_pure(op: Operation) -> bool:
    """No effect on memory and no dependence on it: may be moved, repeated, or dropped when its results are unused.

    Looks into regions (`scf.if`, `scf.for`, `tt.reduce`, ...), at the flag of inline assembly, and takes an immutable
    buffer (filled by its allocation, never written again) as the value it holds, so that reading it is no dependence on
    memory. `scf.while` is never pure: it may not end.
    """
    row = _TABLE.get(op.name)
    if row is None or op.name in _NEVER_PURE:
        return False
    if row.nested:
        return all(is_terminator(inner) or is_pure(inner) for inner in _inner_ops(op))
    if row.pure_flag is not None:
        return bool(op.int_attr(row.pure_flag))
    return row.pure or is_value_in_shared(op) or _reads_values_only(op)


def is_value_in_shared(op: Operation) -> bool:
    """An immutable `ttg.local_alloc` with a source: a tensor's value in shared memory."""
    if op.name != "ttg.local_alloc" or not op.operands:
        return False
    type = op.result.type
    return isinstance(type, MemDescType) and not type.mutable


def _reads_values_only(op: Operation) -> bool:
    """A load or a synchronous dot all of whose buffers are values in shared memory, perhaps through views.

    The type of a buffer does not say it: a view of a buffer that others write may have an immutable type.
    """
    if op.name not in ("ttg.local_load", "ttng.warp_group_dot") or op.int_attr("isAsync"):
        return False
    return all(_is_value_buffer(value) for value in op.operands if isinstance(value.type, MemDescType))


def _is_value_buffer(buffer: Value) -> bool:
    source = buffer.op
    while source is not None and source.operands and (row := info(source.name)) is not None and row.category == "view":
        source = source.operands[0].op
    return source is not None and is_value_in_shared(source)


def reads(op: Operation) -> frozenset[Memory] | None:
    """The memories the operation, or anything inside it, may read; None when unknown."""
    return _effects(op, "reads")


def writes(op: Operation) -> frozenset[Memory] | None:
    """The memories the operation, or anything inside it, may write; None when unknown."""
    return _effects(op, "writes")


def _effects(op: Operation, which: Literal["reads", "writes"]) -> frozenset[Memory] | None:
    row = _TABLE.get(op.name)
    if row is None or (row.pure_flag is not None and not is_pure(op)):
        return None
    found: frozenset[Memory] = frozenset() if is_pure(op) else row.reads if which == "reads" else row.writes
    if op.name == "tt.load" and which == "writes" and op.int_attr("isVolatile"):
        found |= {"global"}  # a volatile load keeps its place among the others
    for inner in _inner_ops(op):
        effects = _effects(inner, which)
        if effects is None:
            return None
        found |= effects
    return found


def _inner_ops(op: Operation) -> Iterator[Operation]:
    """The operations directly inside the regions."""
    for block in op.blocks:
        yield from block.ops
