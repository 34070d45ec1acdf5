"""Which kernels the compiler's tests compile, for what, and what must become of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support import kernels as odd
from tests.support.compiling import Case
from wspec.kernels import attention, elementwise, matmul

Types = Mapping[str, str]
TILE = {"BM": 128, "BN": 128, "BK": 64}


def desc(rows: int, columns: int, dtype: str = "fp16") -> str:
    """The type of a descriptor of a box."""
    return f"tensordesc<{dtype}[{rows}, {columns}]>"


SLOW = frozenset({"C7515"})  # ptxas lets the products wait for each other
GEMM = {"a_desc": desc(128, 64), "b_desc": desc(64, 128), "c_desc": desc(128, 128), "k": "i32:16"}
TURNED = {**GEMM, "b_desc": desc(128, 64)}
POINTERS = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", "n": "i32:16", "k": "i32:16"}
HEAD = {"BM": 128, "BN": 128, "D": 64}
ATTENTION = {**dict.fromkeys(("q_desc", "k_desc", "v_desc", "o_desc"), desc(128, 64)), "scale": "fp32", "length": "i32"}


def without(types: Types, *names: str, **more: str) -> dict[str, str]:
    """The types less some names, with others."""
    return {name: text for name, text in {**types, **more}.items() if name not in names}


def case(name: str, types: Types, values: Mapping[str, Any], kernel: Any = None, **expected: Any) -> Case:
    """A case of the kernel of that name, unless another is given. What can be specialized is, whatever it gains."""
    expected = {"options": {"gate": "off"}, **expected}
    return Case(name, getattr(odd, name) if kernel is None else kernel, types, values, **expected)


def product(rows: int, columns: int, depth: int, **values: Any) -> Case:
    """The shipped kernel, whose tiles are numbered down groups of eight."""
    types = {"a_desc": desc(rows, depth), "b_desc": desc(depth, columns), "c_desc": desc(rows, columns)}
    blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP_M": 8, "B_TRANSPOSED": False}
    kernel = matmul.plain_kernel("descriptor")
    return Case("product", kernel, types | dict.fromkeys("mnk", "i32:16"), blocks | {"num_warps": 4} | values)


def odd_cases() -> list[Case]:
    """Every kernel of `kernels.py`, by unique name."""
    found = [*_products(), *_branches(), *_control(), *_operands(), *_epilogues(), *_declined(), *_warps(), *_chains()]
    assert len({one.name for one in found}) == len(found)
    return found


def _products() -> Iterator[Case]:
    yield case("gemm", GEMM, TILE)
    yield case("gemm_transposed", TURNED, TILE)
    yield case("a_transposed", {**GEMM, "a_desc": desc(64, 128)}, TILE)
    yield case("persistent", {**GEMM, "m": "i32", "n": "i32:16"}, {**TILE, "FLATTEN": False})
    flat = {**TILE, "FLATTEN": True}
    yield case("persistent_flat", {**GEMM, "m": "i32", "n": "i32:16"}, flat, odd.persistent)
    yield case("constant_trips", without(TURNED, "k"), {**TILE, "TRIPS": 64})
    more = {"c_desc": desc(64, 128), "x_desc": desc(128, 128), "y_desc": desc(128, 128)}
    yield case("two_products", {**GEMM, **more}, TILE)
    batched = {"a_desc": "tensordesc<fp16[1, 128, 64]>", "b_desc": desc(128, 64), "c_desc": desc(128, 64)}
    batched |= dict.fromkeys(("x_desc", "y_desc"), "tensordesc<fp16[1, 128, 128]>")
    yield case("gated", {**GEMM, **batched}, TILE)
    yield case("store_between_loops", {**GEMM, "x_desc": desc(128, 128)}, TILE)
    yield case(
        "turned_once", {**GEMM, "a_desc": desc(128, 128), "b_desc": desc(128, 128)}, {**TILE, "BK": 128}, notes=SLOW
    )
    yield case("stored_whole", {**GEMM, "x_desc": desc(128, 128), "x_ptr": "*fp16:16"}, TILE)
    yield case("block_scales", {**TURNED, "scale_ptr": "*fp32:16"}, TILE)
    yield case("paged", {**GEMM, "table_ptr": "*i32"}, TILE)
    yield case("weighted", {**GEMM, **dict.fromkeys(("b_desc", "c_desc", "x_desc"), desc(128, 64))}, TILE)
    yield case("asked_for", GEMM, TILE)
    yield case("asked_for_4", GEMM, {**TILE, "num_warps": 4}, odd.asked_for)
    device = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", "m": "i32", "n": "i32:16", "k": "i32:16"}
    yield case("device_descriptors", device, TILE)


def _branches() -> Iterator[Case]:
    for name in ("load_in_branch", "skipped_tiles", "compute_in_branch", "branch_beside", "sum_past_a_branch"):
        yield case(name, {**GEMM, "flag": "i32"}, TILE)


def _control() -> Iterator[Case]:
    """Loops and conditionals around, inside and behind each other."""
    yield case("while_loop", GEMM, TILE, notes=SLOW)
    yield case("flattened", without(ATTENTION, "scale", tiles="i32"), HEAD, notes=SLOW)
    yield case("guarded", {**GEMM, "m": "i32"}, TILE)
    yield case("loop_in_branch", {**GEMM, "flag": "i32"}, TILE)
    yield case("nested_loops", {**GEMM, "w_desc": desc(128, 128), "n": "i32"}, TILE)
    yield case("dot_behind", {**GEMM, "w_desc": desc(128, 128)}, TILE)
    yield case("backwards", GEMM, TILE)
    yield case("moving", GEMM, TILE)
    yield case("early_return", {**GEMM, "m": "i32"}, TILE)
    yield case("block_barrier", GEMM, TILE)


def _operands() -> Iterator[Case]:
    fp8 = {"a_desc": desc(128, 64, "fp8e4nv"), "b_desc": desc(128, 64, "fp8e4nv")}
    yield case("fp8", {**TURNED, **fp8}, TILE, odd.gemm_transposed)
    turned = {"a_desc": desc(64, 128, "fp8e4nv"), "b_desc": desc(128, 64, "fp8e4nv")}  # slices would cut the swizzle
    yield case("a_transposed_fp8", {**GEMM, **turned}, TILE, odd.both_transposed, replicas=1)
    yield case("fp8_straight", {**GEMM, **fp8, "b_desc": desc(64, 128, "fp8e4nv")}, TILE, odd.gemm)
    weights = {"w_desc": desc(128, 64, "i8"), "x_desc": desc(64, 128), "c_desc": desc(128, 128)}
    alone = {"options": {"gate": "off", "chain": "off"}}  # chains have tests of their own
    yield case("dequantized_a", {**weights, "scale_ptr": "*fp32:16", "k": "i32:16"}, TILE, **alone)
    yield case("dequantized_b", without(GEMM, "b_desc", w_desc=desc(64, 128, "i8")), TILE, **alone)
    turned = {**weights, "w_desc": desc(64, 128, "i8"), "k": "i32:16"}
    yield case("dequantized_turned", turned, TILE, replicas=1, **alone)
    yield case("read_twice", {**GEMM, "s_ptr": "*fp32:16"}, TILE)
    tf32 = {"a_desc": desc(128, 32, "fp32"), "b_desc": desc(128, 32, "fp32"), "c_desc": desc(128, 128, "fp32")}
    yield case("tf32", {**tf32, "k": "i32"}, {**TILE, "BK": 32}, odd.gemm_transposed)
    copied = {"replicas": 1, "options": {"gate": "off", "promote": False}}  # by cp.async, in one piece
    yield case("one_pointer", without(GEMM, "a_desc", a_ptr="*fp16:16"), TILE, **copied)
    yield case("pointers", POINTERS, TILE, **copied)
    yield case("promoted", POINTERS, TILE, odd.pointers)
    keys = {"k_ptr": "*fp16:16", "v_ptr": "*fp16:16", "page_ptr": "*i32:16", "scale": "fp32", "length": "i32"}
    gathered = {"q_desc": desc(128, 64), **keys, "o_desc": desc(128, 64)}
    yield case("gathered_keys", gathered, {**HEAD, "BN": 64}, options={"gate": "off", "promote": False})


def _epilogues() -> Iterator[Case]:
    yield case("bias", without(GEMM, "c_desc", c_ptr="*fp16:16", bias_ptr="*fp32:16", n="i32:16"), TILE)
    sums = without(GEMM, "c_desc", out_ptr="*fp32:16")
    yield case("row_sums", sums, {**TILE, "AXIS": 1})
    yield case("column_sums", sums, {**TILE, "AXIS": 0}, odd.row_sums, replicas=1)
    yield case("atomics", without(GEMM, "c_desc", c_ptr="*fp32:16", n="i32"), {**TILE, "USED": False})
    yield case("counter", {**GEMM, "count_ptr": "*i32:16"}, TILE)
    yield case("twice_stored", {**GEMM, "d_desc": desc(128, 128)}, TILE)
    yield case("reduce_add", GEMM, TILE, replicas=1)
    yield case("assumed", GEMM, TILE)
    yield case("inline_asm", GEMM, {**TILE, "PURE": True})
    square = {**TILE, "BK": 128}  # what one step stores begins where that of the one before ends
    yield case("writes_in_loop", without(GEMM, "c_desc", c_ptr="*fp32:16"), square)


def _declined() -> Iterator[Case]:
    """Kernels that are left alone, with the reason and the line."""
    trips = without(TURNED, "k")
    for count in (0, 1):  # Triton itself takes such a loop away
        values = {**TILE, "TRIPS": count}
        yield case(f"trips_{count}", trips, values, odd.constant_trips, code="no-loop", at="kernel")
    few = without(ATTENTION, "length")
    twice, alone = {**HEAD, "TRIPS": 2}, {"trials": 0}
    yield case("trips_2", few, twice, odd.short_chain, code="short-loop", at="loop", options=alone)
    used = without(GEMM, "c_desc", c_ptr="*fp32:16", n="i32")
    yield case("atomics_used", used, {**TILE, "USED": True}, odd.atomics, code="unsupported-op", at="atomic")
    yield case("doubling", GEMM, TILE, code="unsupported-control-flow", at="while")
    unaligned = {**POINTERS, "a_ptr": "*fp16", "b_ptr": "*fp16", "n": "i32", "k": "i32"}
    yield case("pointers_unaligned", unaligned, TILE, odd.pointers, code="no-descriptor-load", at="load")
    yield case(
        "pointers_gated", POINTERS, TILE, odd.pointers, code="gate-slower", at="load", options={"promote": False}
    )
    aliased = {"a_desc": desc(128, 64), "b_desc": desc(64, 64), "k": "i32:16"}
    yield case("same_memory", aliased, {**TILE, "BN": 64}, code="memory-alias", at="load")
    yield case("table_written", {**GEMM, "table_ptr": "*i32"}, TILE, code="memory-alias", at="load")
    yield case("inline_asm_effects", GEMM, {**TILE, "PURE": False}, odd.inline_asm, code="unsupported-op", at="asm")
    index = {**GEMM, "index_desc": desc(128, 16, "i32")}
    yield case("load_if_computed", GEMM, TILE, code="not-partitionable", at="load")
    yield case("address_from_tile", index, TILE, code="not-partitionable", at="load")
    yield case("clusters", GEMM, {**TILE, "num_ctas": 2}, odd.gemm, code="num-ctas", at="kernel")
    small = {**GEMM, "a_desc": desc(128, 64), "b_desc": desc(64, 64), "c_desc": desc(128, 64)}
    yield case("called", small, {**TILE, "BN": 64}, code="unsupported-op", at="call")


def _warps() -> Iterator[Case]:
    """The same product on other numbers of warps and other tiles."""
    for warps in (1, 2):
        values = {**TILE, "num_warps": warps}
        yield case(f"warps_{warps}", GEMM, values, odd.gemm, code="not-partitionable", at="dot")
    for warps in (4, 16):
        yield case(f"warps_{warps}", GEMM, {**TILE, "num_warps": warps}, odd.gemm)
    for rows, warps, replicas in ((256, 8, 2), (256, 16, 2), (64, 4, 1), (64, 8, 1)):
        types = {**GEMM, "a_desc": desc(rows, 64), "c_desc": desc(rows, 128)}
        values = {**TILE, "BM": rows, "num_warps": warps}
        yield case(f"rows_{rows}_warps_{warps}", types, values, odd.gemm, replicas=replicas)


def _chains() -> Iterator[Case]:
    yield case("attention_masked", ATTENTION, {**HEAD, "CAUSAL": False})
    yield case("attention_masked_causal", ATTENTION, {**HEAD, "CAUSAL": True}, odd.attention_masked)
    yield case("attention_two_loops", ATTENTION, HEAD)
    yield case("attention_offsets", ATTENTION, HEAD)
    yield case("attention_grouped", {**ATTENTION, "group": "i32"}, HEAD)
    yield case("attention_persistent", {**ATTENTION, "tiles": "i32"}, HEAD)
    yield case("attention_weighted", {**ATTENTION, "tiles": "i32", "weight_ptr": "*fp32:16"}, HEAD)
    three = {**dict.fromkeys(("q_desc", "o_desc"), desc(128, 64)), "n": "i32"}
    three |= dict.fromkeys(("k_desc", "v_desc", "w_desc"), desc(64, 64))
    yield case("three_dots", three, {"BM": 128, "BN": 64, "D": 64}, notes=frozenset({"C7514"}))


# --------------------------------------------------------------------------------------------- our own kernels


def our_attention(head: int, causal: bool, dtype: str) -> Case:
    """The attention kernel at its default tile."""
    tile = attention.default_config(head)
    q, kv = (f"tensordesc<{dtype}[1, 1, {rows}, {head}]>" for rows in (tile.block_m, tile.block_n))
    types = {"q_desc": q, "k_desc": kv, "v_desc": kv, "o_desc": q, "lse_ptr": "*fp32:16", "scale_log2": "fp32"}
    types.update(dict.fromkeys(("seqlen_q", "seqlen_k", "heads", "group"), "i32"))
    values = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "HEAD_DIM": head, "CAUSAL": causal}
    launch = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    name = f"attention_{head}_{'causal' if causal else 'full'}_{dtype}"
    return Case(name, attention.attention_fwd, types, {**values, **launch}, replicas=tile.block_m // 64)


def our_matmul(config: matmul.Config, turned: bool, dtype: str) -> Case:
    """The descriptor kernel of the matrix product; whether that pays, others test."""
    m, n, k = config.block_m, config.block_n, config.block_k
    b = desc(n, k, dtype) if turned else desc(k, n, dtype)
    types = {"a_desc": desc(m, k, dtype), "b_desc": b, "c_desc": desc(m, n, dtype)}
    types.update({"m": "i32", "n": "i32:16", "k": "i32:16"})
    values = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": config.group_m, "B_TRANSPOSED": turned}
    launch = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    name = f"matmul_{m}x{n}x{k}_w{config.num_warps}_{'turned' if turned else 'straight'}_{dtype}"
    return Case(
        name,
        matmul.matmul_descriptor_kernel,
        types,
        {**values, **launch},
        {"gate": "off"},
        replicas=min(2, m // 64),
        notes=SLOW if k == 128 else frozenset(),  # of the planner's first plan; then the next one is taken
    )


def left_alone() -> list[Case]:
    """The kernels without a loop worth specializing."""
    half = {"x_ptr": "*fp16:16", "out_ptr": "*fp16:16"}
    norm = {**half, "weight_ptr": "*fp16:16", "bias_ptr": "*fp16:16", "columns": "i32:16", "eps": "fp32"}
    return [
        Case("add", elementwise.add_kernel, {**half, "y_ptr": "*fp16:16", "count": "i64"}, {"BLOCK": 1024}),
        Case("softmax", elementwise.softmax_kernel, {**half, "columns": "i32"}, {"BLOCK": 1024}),
        Case("layer_norm", elementwise.layer_norm_kernel, norm, {"BLOCK": 1024}),
    ]
