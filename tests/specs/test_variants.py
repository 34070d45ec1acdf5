"""Variants of kernels: those that come with wspec, and every way to get a spec wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import ATTENTION, KERNEL, done, refused
from tests.support.goldens import ROOT
from wspec.kernels import attention, matmul
from wspec.specs.variants import read_variants, variant_signature


def variants() -> list[tuple[str, str, str]]:
    """(file, kernel, variant) of every spec that comes with wspec."""
    found = []
    for path in sorted((ROOT / "kernels").glob("*.toml")):
        for kernel, named in tomllib.loads(path.read_text()).items():
            found += [(path.stem, kernel, name) for name in named]
    return found


@pytest.mark.parametrize(("file", "kernel", "variant"), variants())
def test_every_variant_has_a_plan_or_a_reason(file: str, kernel: str, variant: str) -> None:
    out = done("plan", f"{ROOT}/kernels/{file}.py:{kernel}", "--variant", variant, "--gate", "off", "--no-runners-up")
    specialized = file != "elementwise"
    assert ("there is no plan" not in out) == specialized, out


def _values(file: str, kernel: str, variant: str) -> dict[str, Any]:
    found = variant_signature(ROOT / "kernels" / f"{file}.toml", kernel, variant, {})
    return {**found.values, **found.options}


@pytest.mark.parametrize("variant", read_variants(ROOT / "kernels" / "attention.toml", "attention_fwd"))
def test_attention_variants_are_the_default_tiles(variant: str) -> None:
    values = _values("attention", "attention_fwd", variant)
    assert variant == f"d{values['HEAD_DIM']}{'_causal' if values['CAUSAL'] else ''}"
    tile = attention.default_config(values["HEAD_DIM"], 4096, values["CAUSAL"])
    expected = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n}
    launch = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    assert {**values, **expected, **launch} == values


def test_matmul_variants_are_the_default_tile() -> None:
    tile = matmul.default_config(8192, 8192)
    expected = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k, "GROUP_M": tile.group_m}
    for kernel in ("matmul_descriptor_kernel", "matmul_pointer_kernel"):
        values = _values("matmul", kernel, "bf16")
        assert {**values, **expected, "num_warps": tile.num_warps} == values


def test_the_first_variant_is_the_default_and_flags_change_it() -> None:
    def plan(*more: str) -> str:
        return done("plan", ATTENTION, "--no-runners-up", *more)

    assert "CAUSAL=True" in plan() and "CAUSAL=False" in plan("--const", "CAUSAL=False")
    assert "num_stages=4" in plan("--variant", "d64", "--num-stages", "4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[attend.a", "spec.toml: Expected"),
        ("[other.a]", "has no variant of attend"),
        ("attend = 3", "[attend] must hold tables"),
        ('[attend.a]\nlike = "b"', "has no variant 'b'"),
        ('[attend.a]\nlike = "a"', "attend.a is like itself"),
        ("[attend.a]\nsignatures = {}", "has no field 'signatures'"),
        ("[attend.a]\nsignature = 1", "signature must be a table"),
        ("[attend.a]\nsignature = { keys = 1 }", "signature.keys must be the text of a type"),
        ('[attend.a]\nconstexprs = { M = "tl.nothing" }', "'tl.nothing' is no literal and no name"),
        ("[attend.a]\noptions = { num_wraps = 8 }", "no parameter 'num_wraps'"),
    ],
)
def test_bad_specs(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(text)
    assert message in refused("plan", KERNEL, "--spec", str(tmp_path / "spec.toml"))
