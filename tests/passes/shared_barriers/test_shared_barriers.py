"""Barrier sharing: which rings fill together, and that the kernel computes what it did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import odd_cases, our_attention
from tests.support.compiling import Case, outcome, plain_module
from tests.support.goldens import ROOT
from tests.support.invariants import assert_sound
from tests.support.worlds import assert_same_stores
from wspec.cli import main
from wspec.pipeline import Outcome
from wspec.plan.plan import Plan

ODD = {one.name: one for one in odd_cases()}
GEMM = ODD["gemm"]


def made(one: Case, **options: Any) -> tuple[Outcome, Plan]:
    found = outcome(one, **{"gate": "off", **options})
    assert found.plan is not None and found.module is not None
    return found, found.plan


def lent(plan: Plan) -> dict[str, str]:
    """Ring -> whose barriers it has, of those that have none of their own."""
    return {channel.name: channel.barriers for channel in plan.channels if channel.barriers}


def waits(found: Outcome) -> int:
    assert found.module is not None
    return sum(op.name == "ttng.wait_barrier" for op in found.module.walk())


@pytest.mark.parametrize("consumers", [1, 2])
def test_the_tiles_of_a_product_arrive_together(consumers: int) -> None:
    """Where groups share a by rows, at the barriers of b, which all of them read."""
    found, plan = made(GEMM, consumers=consumers)
    assert lent(plan) == ({"b": "a"} if consumers == 1 else {"a": "b"})
    assert found.module is not None
    assert_sound(found.module, plan)
    assert_same_stores(plain_module(GEMM), found.module, seed=3)


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("persistent", {"a": "b"}),
        ("sum_past_a_branch", {"a": "b", "a2": "b2"}),  # two loops, two rings each
        ("dot_behind", {"a": "b"}),  # a third ring, of a tile that stays
        ("two_products", {}),  # each of three tiles for products of its own
        ("dequantized_b", {}),  # one is converted by threads first
        ("read_twice", {}),  # one is read by threads, too
        ("one_pointer", {}),  # threads copy one
        ("load_in_branch", {}),
    ],
)
def test_only_tiles_for_the_same_products(name: str, shared: dict[str, str]) -> None:
    assert lent(made(ODD[name], **ODD[name].options)[1]) == shared


def test_keys_and_values_do_not() -> None:
    _, plan = made(our_attention(64, False, "bf16"))
    assert not lent(plan) and not plan.shared_barriers.why_not


def test_one_wait_for_two() -> None:
    apart, shared = made(GEMM, shared_barriers=False, consumers=1)[0], made(GEMM, consumers=1)[0]
    assert waits(apart) == 2 * waits(shared)


def test_a_person_decides_and_is_told() -> None:
    assert not lent(made(GEMM, shared_barriers=False)[1])
    _, attention = made(our_attention(64, False, "bf16"), shared_barriers=True)
    assert attention.shared_barriers.why_not.startswith("no two tiles of an iteration")


def test_it_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{ROOT}/kernels/matmul.py:matmul_descriptor_kernel", "--variant", "bf16"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a and b arrive at one barrier" in said and "--shared-barriers 0" in said
