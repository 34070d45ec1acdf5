"""`wspec plan`: plans out, edited, and in again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import ATTENTION, ELEMENTWISE, KERNEL, done, refused, wspec
from tests.support.goldens import ROOT
from wspec.plan.plan import Plan


@pytest.fixture(scope="module")
def text() -> str:
    return done("plan", KERNEL, "--toml")


def test_the_table() -> None:
    rows = [line.split() for line in done("plan", KERNEL).splitlines()]
    assert ["mma", "consumer", "2", "4", "240", "computes,", "1/2", "of", "the", "tile", "each"] in rows
    assert ["k", "2", "32", "KiB", "64", "KiB", "whole", "reused", "tour_kernel.py:18"] in rows
    assert ["q", "1", "32", "KiB", "32", "KiB", "sliced,", "dim", "0", "for", "a", "tile", "tour_kernel.py:13"] in rows
    assert ["stores", "through", "a", "buffer", "of", "its", "own:", "tour_kernel.py:28"] in rows
    assert any(row[:1] == ["tiles"] for row in rows)
    loop = next(row for row in rows if row and row[0] == "tour_kernel.py:17")
    assert loop[2] == "5" and "acc" in loop
    assert any(row[:1] == ["predicted"] and "tensor" in row for row in rows)


def test_runners_up() -> None:
    out = done("plan", KERNEL)
    assert "plans, predicted for 512" in out and "the planner's (used)" in out and "the plain kernel" in out
    assert "the planner's own plan is used" in out


def test_without_runners_up() -> None:
    out = done("plan", KERNEL, "--no-runners-up")
    assert "predicted for" not in out and "why it lost" not in out


def test_json(tmp_path: Path) -> None:
    values = json.loads(done("plan", KERNEL, "--json", "-"))
    assert values["plan"]["kernel"] == "attend"
    found = values["search"]
    assert found["chosen"] == "the planner's" and found["plain"][0]["microseconds"] > 0
    ranked = {one["name"]: one for one in found["plans"]}
    assert ranked["nothing late"]["why"] and ranked["nothing late"]["ratio"] > 1
    assert Plan.from_text(ranked["one block a tile"]["plan"]).persistent is False
    done("plan", KERNEL, "--json", str(tmp_path / "plan.json"), "--no-runners-up")
    assert json.loads((tmp_path / "plan.json").read_text())["search"] is None


def test_a_plan_that_lost_can_be_used(tmp_path: Path) -> None:
    found = json.loads(done("plan", KERNEL, "--json", "-"))["search"]
    text = next(one["plan"] for one in found["plans"] if one["name"] == "one block a tile")
    (tmp_path / "plan.toml").write_text(text)
    assert "blocks walk through tiles" not in done("explain", KERNEL, "--plan", str(tmp_path / "plan.toml"))


def test_a_gated_kernel_shows_what_it_would_be() -> None:
    out = done("plan", f"{ROOT}/kernels/matmul.py:matmul_pointer_kernel", "--promote", "0")
    assert "[gate-slower]" in out and "there is no plan" in out and "(used)" not in out
    assert "the kernel is left as it was; under gate=off it would run by the planner's own plan" in out


def test_options() -> None:
    out = done("plan", KERNEL, "--overlap", "0", "--depth", "1", "--gate", "off")
    assert "k            1" in out and "nothing" in next(
        line for line in out.splitlines() if "tour_kernel.py:17" in line
    )


def test_the_text_is_the_stage(text: str, tmp_path: Path) -> None:
    assert text == done("dump", KERNEL, "--stage", "plan") == Plan.from_text(text).to_text()
    assert done("plan", KERNEL, "-o", str(tmp_path / "plan.toml")) == ""
    assert (tmp_path / "plan.toml").read_text() == text


def test_a_plan_comes_back(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(text)
    assert done("plan", KERNEL, "--toml", "--plan", str(tmp_path / "plan.toml")) == text


def test_an_edited_plan_is_followed(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(text.replace("depth = 2", "depth = 1"))
    flags = ["--plan", str(tmp_path / "plan.toml")]
    assert "k            1" in done("plan", KERNEL, *flags)
    assert "memdesc<1x128x128xbf16" in done("dump", KERNEL, "--stage", "lower_channels", *flags)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("depth = 2", "depth = 0", "depth must be at least 1"),
        ("depth = 2", "depth = 9", "[plan-mismatch]"),
        ("depth = 2", 'deepth = "3"', "unknown field 'deepth'"),
        ("[[tasks]]", "[tasks", "not valid TOML"),
        ('fingerprint = "', 'fingerprint = "0', "fingerprint: made for kernel 0"),
        ("loads = [32]", "loads = [33]", "[plan-mismatch]"),
    ],
)
def test_bad_plans(text: str, tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text.replace(old, new))
    for command in (["plan"], ["compile"], ["dump", "--stage", "split"]):
        assert message in refused(command[0], KERNEL, *command[1:], "--plan", str(path))


def test_no_plan_file() -> None:
    assert "cannot read nowhere.toml: No such file" in refused("plan", KERNEL, "--plan", "nowhere.toml")


def test_a_plan_of_another_kernel(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(text)
    assert "fingerprint" in refused("explain", ATTENTION, "--plan", str(tmp_path / "plan.toml"))


def test_no_plan() -> None:
    out = done("plan", f"{ELEMENTWISE}:add_kernel")
    assert "there is no plan" in out and "[no-loop]" in out
    said = wspec("plan", f"{ELEMENTWISE}:add_kernel", "--toml")
    assert said.code == 1 and said.out == "" and "error: the kernel has no loop" in said.err
