"""`wspec dump` and `wspec opt`: every dump is a valid input."""

from __future__ import annotations

import functools

import pytest

from tests.cli.helpers import ELEMENTWISE, KERNEL, done, refused, wspec
from wspec import ir
from wspec.pipeline import PASSES

NAMES = [one.__name__ for one in PASSES]
OURS = ["input", *NAMES, "specialized"]  # printed by us, so they come back byte for byte


@functools.cache
def dump(stage: str, form: str = "generic") -> str:
    return done("dump", KERNEL, "--stage", stage, "--form", form)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(dump("plan"))
    return str(path)


def test_the_list_of_stages() -> None:
    names = [line.split()[0] for line in done("dump", KERNEL, "--list").splitlines()[1:]]
    end = ["specialized", "final", "llir", "ptx", "sass"]
    assert names == ["ttir", "ttgir", "input", "plan", "walk_tiles", "graph", *NAMES[1:], *end]
    lines = done("dump", KERNEL, "--list").splitlines()[1:]
    assert all(len(line.split()) > 1 for line in lines), "every stage says what it is"


@pytest.mark.parametrize(
    ("stage", "sign"),
    [("llir", "define "), ("ptx", ".target sm_90a"), ("sass", "HGMMA"), ("plan", "[[channels]]"), ("graph", '"edges"')],
)
def test_stages_that_are_no_modules(stage: str, sign: str) -> None:
    assert sign in dump(stage)


# --------------------------------------------------------------------------------------------- read back


@pytest.mark.parametrize("stage", OURS)
def test_our_modules_come_back(stage: str) -> None:
    assert done("opt", "-", stdin=dump(stage)) == dump(stage)


@pytest.mark.parametrize("stage", ["ttir", "ttgir", "final"])
def test_tritons_modules_come_back(stage: str) -> None:
    once = done("opt", "-", "--verify", stdin=dump(stage))
    assert done("opt", "-", stdin=once) == once
    assert "wspec." not in once and "attend" in once


@pytest.mark.parametrize("stage", ["split", "specialized"])
def test_short_form_comes_back(stage: str) -> None:
    text = dump(stage, "short")
    assert "loc(" not in text and "%q_desc" in text
    assert _operations(text) == _operations(dump(stage))


def test_pretty_form_comes_back() -> None:
    text = dump("specialized", "pretty")
    assert "scf.for" in text and '"scf.for"' not in text
    assert _operations(done("opt", "-", stdin=text)) == _operations(dump("specialized"))


def _operations(text: str) -> list[str]:
    """The operations but constants, which libtriton may print in another order."""
    return sorted(op.name for op in ir.read(text).walk() if op.name != "arith.constant")


def test_brief_form() -> None:
    text = dump("split", "brief")
    assert "%k = wspec.wait {k} : i32  // 18\n" in text and "} partition1(" in text
    assert "wspec.id" not in text and "loc(" not in text
    assert len(text) < len(dump("split", "short")) / 2


def test_pretty_form_of_our_operations() -> None:
    assert "brief" in refused("dump", KERNEL, "--stage", "split", "--form", "pretty")


# ------------------------------------------------------------------------------------------------- passes


def test_all_passes_at_once(plan_file: str) -> None:
    assert done("opt", "-", "--passes", "all", "--verify", stdin=dump("ttgir")) == dump("finish")
    assert done("opt", "-", "--passes", "all", "--plan", plan_file, stdin=dump("input")) == dump("finish")


def test_pass_by_pass(plan_file: str) -> None:
    for before, name in zip(["input", *NAMES], NAMES, strict=False):
        assert done("opt", "-", "--passes", name, "--plan", plan_file, stdin=dump(before)) == dump(name), name


def test_options_make_another_plan() -> None:
    shallow = done("opt", "-", "--passes", "all", "--depth", "1", "--gate", "off", stdin=dump("ttgir"))
    assert "memdesc<1x128x128xbf16" in shallow and "memdesc<2x128x128xbf16" not in shallow


def test_the_list_of_passes() -> None:
    assert done("opt", "-", "--passes", "list").split() == NAMES


@pytest.mark.parametrize(
    ("stage", "flags", "message"),
    [
        ("ttgir", ["--passes", "spilt"], "no pass 'spilt'; did you mean split?"),
        ("ttgir", ["--passes", "slice_tile"], "works on a module that is split"),
        ("split", ["--passes", "split"], "split already"),
        ("split", ["--passes", "slice_tile"], "needs the plan"),
        ("split", ["--verify"], "does not know wspec's own operations"),
        ("ptx", [], "is PTX, not TTGIR"),
        ("llir", [], "is LLVM IR, not TTGIR"),
        ("ttgir", ["--passes", "all", "--depth", "x"], "'x' is not allowed"),
    ],
)
def test_what_opt_refuses(stage: str, flags: list[str], message: str) -> None:
    assert message in refused("opt", "-", *flags, stdin=dump(stage))


def test_passes_on_what_is_left_alone() -> None:
    text = done("dump", f"{ELEMENTWISE}:add_kernel", "--stage", "ttgir")
    said = wspec("opt", "-", "--passes", "all", stdin=text)
    assert said.code == 1 and "[no-loop]" in said.err  # a decision of the compiler, not a bad input


# ------------------------------------------------------------------------------------------------- broken


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"tt.func"', '"tt.func', "<stdin>:"),
        ('"scf.yield"', '"scf.yeild"', "not valid"),
        ("tensor<128x128xbf16", "tensor<128x64xbf16", "not valid"),
        ("#loc1)", "#nowhere)", "undefined location alias #nowhere"),
        ('"builtin.module"', "module {", "<stdin>"),
    ],
)
def test_broken_modules(old: str, new: str, message: str) -> None:
    assert message in refused("opt", "-", stdin=dump("input").replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "\n", "hello", "module { foo }", '"builtin.module"() ({'])
def test_what_is_no_module(text: str) -> None:
    refused("opt", "-", stdin=text)
    refused("compile", "-", stdin=text)


def test_a_module_that_libtriton_dies_of() -> None:
    """Layouts that make no sense end its process; here only the child's."""
    text = dump("specialized", "pretty").replace("versionMajor = 3", "versionMajor = 7")
    assert "<stdin>" in refused("opt", "-", stdin=text)


# --------------------------------------------------------------------------------------------------- diff


def test_diff() -> None:
    text = done("dump", KERNEL, "--diff", "ping_pong", "release_buffers")
    assert text.startswith("--- ping_pong\n+++ release_buffers\n@@ ")
    changed = [line for line in text.splitlines()[2:] if line[0] in "+-"]
    assert changed and all("wspec.release" in line and line[0] == "+" for line in changed)


def test_diff_of_equals() -> None:
    assert done("dump", KERNEL, "--diff", "finish", "specialized") == ""


def test_diff_of_other_stages() -> None:
    assert "+[[tasks]]" in done("dump", KERNEL, "--diff", "ttgir", "plan")
    assert "has no stage 'splt'; did you mean split?" in refused("dump", KERNEL, "--diff", "split", "splt")
