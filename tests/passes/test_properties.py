"""Kernels of any tile, type, number of warps and options: specialized and sound, or left alone with a reason.

What "sound" is stands in `support/invariants.py`: every wait has a ring, arrivals are as many as readers, bytes
are those of a buffer, partitions are isolated, and so on. What the kernel stores is compared by simulation.
"""

from __future__ import annotations

from typing import Any

import hypothesis
from hypothesis import strategies as st

from tests.support import kernels as odd
from tests.support.cases import desc
from tests.support.compiling import Case, outcome, place, plain_module, source
from tests.support.invariants import assert_sound
from tests.support.worlds import assert_same_stores
from wspec import bridge
from wspec.ir import print_module
from wspec.ir.verify import verify
from wspec.kernels import attention

SETTINGS = hypothesis.settings(
    max_examples=18, deadline=None, database=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
# Reasons a tile or an option may give; anything else is about the kernel, and these kernels are fine.
LIMITS = {"not-partitionable", "shared-memory", "registers", "gate-slower"}


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Compiler options: mostly left to wspec."""
    asked: dict[str, Any] = {"gate": draw(st.sampled_from(["off", "off", "off", "model"]))}
    choices = {
        "consumers": st.sampled_from([1, 2]),
        "depth": st.integers(1, 5),
        "overlap": st.booleans(),
        "persistent": st.booleans(),
        "ping_pong": st.booleans(),
        "blocks": st.sampled_from([1, 2]),
        "producer_warps": st.sampled_from([1, 2, 4]),
    }
    for name, values in choices.items():
        if draw(st.integers(0, 3)) == 0:
            asked[name] = draw(values)
    return asked


FLAG, ROWS, SUMS = {"flag": "i32"}, {"m": "i32"}, {"s_ptr": "*fp32:16"}
PRODUCTS: list[tuple[Any, bool, bool, dict[str, str]]] = [  # kernel, A transposed, B transposed, more arguments
    (odd.gemm, False, False, {}),
    (odd.gemm_transposed, False, True, {}),
    (odd.a_transposed, True, False, {}),
    (odd.both_transposed, True, True, {}),
    (odd.persistent, False, False, {"m": "i32", "n": "i32"}),
    (odd.skipped_tiles, False, False, FLAG),
    (odd.compute_in_branch, False, False, FLAG),
    (odd.loop_in_branch, False, False, FLAG),
    (odd.guarded, False, False, ROWS),
    (odd.read_twice, False, False, SUMS),
    (odd.moving, False, False, {}),
]


@st.composite
def products(draw: st.DrawFn) -> Case:
    """A kernel with one product in a loop."""
    m, n, k = (draw(st.sampled_from(sizes)) for sizes in ((64, 128, 256), (32, 64, 128, 256), (32, 64, 128)))
    dtype = draw(st.sampled_from(["fp16", "bf16", "fp8e4nv", "fp8e5"]))
    half = "fp16" if dtype.startswith("fp8") else dtype
    kernel, a_turned, b_turned, more = draw(st.sampled_from(PRODUCTS))
    types = {
        "a_desc": desc(k, m, dtype) if a_turned else desc(m, k, dtype),
        "b_desc": desc(n, k, dtype) if b_turned else desc(k, n, dtype),
        "c_desc": desc(m, n, half),
        "k": draw(st.sampled_from(["i32", "i32:16"])),
        **more,
    }
    values: dict[str, Any] = {"BM": m, "BN": n, "BK": k, "num_warps": draw(st.sampled_from([4, 8, 16]))}
    if kernel is odd.persistent:
        values["FLATTEN"] = draw(st.booleans())
    return Case("product", kernel, types, values, draw(options()))


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """Attention: one loop or two, masked or not, one head or groups of them."""
    m, n, d = (draw(st.sampled_from(sizes)) for sizes in ((64, 128), (32, 64, 128), (32, 64, 128)))
    dtype = draw(st.sampled_from(["fp16", "bf16"]))
    kernels = [odd.attention_masked, odd.attention_two_loops, odd.attention_grouped, odd.attention_persistent]
    kernels += [odd.attention_offsets]
    kernel = draw(st.sampled_from(kernels))
    types = {"q_desc": desc(m, d, dtype), "k_desc": desc(n, d, dtype), "v_desc": desc(n, d, dtype)}
    types |= {"o_desc": desc(m, d, dtype), "scale": "fp32", "length": "i32"}
    values: dict[str, Any] = {"BM": m, "BN": n, "D": d, "num_warps": draw(st.sampled_from([4, 8]))}
    if kernel is odd.attention_masked:
        values["CAUSAL"] = draw(st.booleans())
    if kernel is odd.attention_grouped:
        types["group"] = "i32"
    if kernel is odd.attention_persistent:
        types["tiles"] = "i32"
    return Case("chain", kernel, types, values, draw(options()))


@st.composite
def our_own(draw: st.DrawFn) -> Case:
    """The attention kernel with tiles that are not its default."""
    head, causal = draw(st.sampled_from([64, 128, 256])), draw(st.booleans())
    tile = draw(st.sampled_from(attention.plain_configs(head)))
    q, kv = (f"tensordesc<bf16[1, 1, {rows}, {head}]>" for rows in (tile.block_m, tile.block_n))
    types = {"q_desc": q, "k_desc": kv, "v_desc": kv, "o_desc": q, "lse_ptr": "*fp32:16", "scale_log2": "fp32"}
    types |= dict.fromkeys(("seqlen_q", "seqlen_k", "heads", "group"), "i32")
    values = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "HEAD_DIM": head, "CAUSAL": causal}
    return Case("our own", attention.attention_fwd, types, {**values, "num_warps": tile.num_warps}, draw(options()))


@SETTINGS
@hypothesis.given(st.one_of(products(), chains(), our_own()), st.integers(0, 1 << 16))
def test_sound_or_left_alone(case: Case, seed: int) -> None:
    hypothesis.note(source(case).describe())
    hypothesis.note(str(case.options))
    plain = plain_module(case)
    assert verify(plain) == []
    made = outcome(case)
    (remark,) = made.remarks
    if made.module is None:
        assert remark.code in LIMITS and remark.message and remark.note
        assert place(remark)[0] == expected_file(case)
        return
    assert remark.code == "specialized" and made.plan is not None
    assert_sound(made.module, made.plan)
    assert_as_asked(case, made.plan)
    bridge.text.verify(bridge.reparse(print_module(made.module)))
    assert_same_stores(plain, made.module, seed)


def expected_file(case: Case) -> str:
    """The file the kernel stands in."""
    return str(case.fn.fn.__code__.co_filename)


def assert_as_asked(case: Case, plan: Any) -> None:
    """Options that were given are kept."""
    asked = case.options
    assert plan.consumer.replicas == asked.get("consumers", plan.consumer.replicas)
    assert plan.blocks_per_sm == asked.get("blocks", plan.blocks_per_sm)
    assert plan.producer.warps == asked.get("producer_warps", 1)
    assert plan.persistent == asked.get("persistent", False)
    turns = [loop.ping_pong for loop in plan.loops]
    assert asked.get("ping_pong", True) or not any(turns)
    wanted = [bool(loop.stage1) and plan.consumer.replicas > 1 for loop in plan.loops]
    assert not asked.get("ping_pong", False) or turns == wanted
    depths = {channel.depth for channel in plan.channels if channel.reused and not channel.stays}
    assert depths == {asked["depth"]} if "depth" in asked else depths
    assert asked.get("overlap", True) or not any(loop.stage1 or loop.in_flight for loop in plan.loops)
