"""`wspec check`: kernels, modules from outside, right and wrong, and what it cannot read."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import ATTENTION, ELEMENTWISE, KERNEL, done, refused, wspec
from tests.support.broken import drop_arrive, start_with_other_phase
from tests.support.goldens import ROOT
from wspec import ir
from wspec.bridge.versions import INSTALLED
from wspec.check import explore
from wspec.ir.core import Operation

ASSUMED = r"\n(\nassumed: .+)+\n"
PROVED = r"proved: no deadlock and no race, for any trip count \(3 tasks, 12 barriers, 8 buffers, \d+ states, \d+ ms\)"


@functools.cache
def dump(stage: str, form: str = "generic") -> str:
    return done("dump", KERNEL, "--stage", stage, "--form", form)


def broken(mutate: Callable[[Operation], None]) -> str:
    module = ir.read(dump("specialized"))
    mutate(module)
    return ir.print_module(module)


# -------------------------------------------------------------------------------------------------- kernels


def test_a_kernel() -> None:
    out = done("check", KERNEL)
    assert re.fullmatch(rf"attend\(q_desc: .*num_stages=3\), stage final\n\n{PROVED}{ASSUMED}", out), out


def test_the_stage_before() -> None:
    out = done("check", KERNEL, "--stage", "specialized")
    assert "num_stages=3), stage specialized\n" in out and "proved: " in out


def test_what_is_not_finished_yet() -> None:
    """The fences between Q's way into shared memory and the dots come later; only Triton 3.6 does not know yet that its
    back end will put them there."""
    said = wspec("check", KERNEL, "--stage", "ttgir")
    if INSTALLED.release == "3.6":
        assert said.code == 1 and "(missing-fence) [check-failed]" in said.out
        assert "note: Triton's last passes, which add proxy fences, come after this stage" in said.out
    else:
        assert said.code == 0 and "proved: " in said.out


def test_every_variant() -> None:
    out = done("check", ATTENTION, "--all")
    found = re.findall(r"^(\w+): attention_fwd\(.*\), stage final\n\nproved: ", out, re.M)
    assert found == ["d128_causal", "d128", "d64_causal", "d64", "d256_causal", "d256"]
    assert out.endswith("\n\n6 of 6 proved\n")
    assert out.count("\nassumed: index arithmetic") == 1, "not once for each"
    assert "\nassumed: rows that are stored through " in out


def test_flags_change_the_kernel() -> None:
    out = done("check", KERNEL, "--depth", "1", "--gate", "off", "--json", "-")
    (one,) = json.loads(out)["modules"]
    assert one["barriers"] == 8, "rings of one: 2 x (1 full + 1 empty), and the same for each half of Q"


def test_tritons_own() -> None:
    out = done("check", KERNEL, "--plain")
    assert "num_stages=3), as Triton itself makes it\n" in out and "proved: " in out and "(1 task, " in out
    assert "0 barriers" not in out, "TMA loads are pipelined"
    assert "0 barriers" in done("check", f"{ELEMENTWISE}:add_kernel", "--plain")


def test_a_kernel_that_is_left_alone() -> None:
    out = done("check", f"{ELEMENTWISE}:softmax_kernel")
    assert ", as Triton itself makes it\n\n" in out and "[no-loop]" in out
    assert out.index("[no-loop]") < out.index("proved: ")
    assert "softmax_kernel is left alone and has no stage 'specialized'" in refused(
        "check", f"{ELEMENTWISE}:softmax_kernel", "--stage", "final"
    )


# -------------------------------------------------------------------------------------------------- modules


@pytest.mark.parametrize(
    ("stage", "form"), [("final", "generic"), ("final", "pretty"), ("specialized", "short"), ("finish", "generic")]
)
def test_a_module(stage: str, form: str) -> None:
    out = done("check", "-", "--disjoint", "all", stdin=dump(stage, form))
    assert re.fullmatch(rf"attend of <stdin>\n\n{PROVED}{ASSUMED}", out), out


def test_a_file_is_checked_as_it_is(tmp_path: Path) -> None:
    """Not specialized first: what goes into the compiler has no tasks yet."""
    path = tmp_path / "kernel.ttgir"
    path.write_text(done("dump", f"{ELEMENTWISE}:add_kernel", "--stage", "ttgir"))
    out = done("check", str(path))
    assert out.startswith(f"add_kernel of {path}\n") and "(1 task, 0 barriers, " in out


WRONG = r"""attend of <stdin>

(\S+/)?docs/tour_kernel.py:\d+:\d+: error: .*wait for each other forever \(deadlock\) \[check-failed\]
  \s+\w+.*
  \s+\^~*
(  .*  docs/tour_kernel.py:\d+
)+note: .*
(?:.*\n)*
1 error, \d+ undecided \(3 tasks, 12 barriers, 8 buffers, \d+ states, \d+ ms\)

(assumed: .+
)+"""


@pytest.mark.parametrize("mutate", [drop_arrive, start_with_other_phase])
def test_a_module_that_is_wrong(
    mutate: Callable[[Operation], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    said = wspec("check", "-", "--disjoint", "all", "--json", str(tmp_path / "verdict.json"), stdin=broken(mutate))
    assert said.code == 1 and said.err == ""
    assert re.fullmatch(WRONG, said.out), said.out
    (one,) = json.loads((tmp_path / "verdict.json").read_text())["modules"]
    assert (one["verdict"], one["stage"], one["left_alone"]) == ("wrong", "", None)
    error = next(found for found in one["findings"] if found["kind"] == "error")
    assert error["code"] == "deadlock" and error["message"] in said.out
    file, line, _ = error["location"]
    assert f"{Path(file).name}:{line}:" in said.out
    assert [step[0] for step in error["path"] if f"  {step[0]}" not in said.out] == []


def test_a_module_that_cannot_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "MAX_STATES", 1)
    said = wspec("check", KERNEL)
    assert said.code == 1 and "warning: undecided: gave up after 2 states (too-many-states)" in said.out
    assert "\nnot proved, 1 undecided (" in said.out


def test_no_time() -> None:
    said = wspec("check", KERNEL, "--limit", "0.000001")
    assert said.code == 1 and "not proved, 1 undecided (" in said.out


def test_json_alone() -> None:
    data = json.loads(done("check", KERNEL, "--json", "-"))
    (one,) = data["modules"]
    assert (one["verdict"], one["stage"], one["variant"], one["findings"]) == ("proved", "final", "", [])
    assert one["tasks"][-1] == "load" and len(one["tasks"]) == 3
    assert one["assumptions"] and one["barriers"] == 12 and one["states"] > 0 and one["seconds"] > 0


# -------------------------------------------------------------------------------------- what cannot be checked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<stdin> is empty"),
        ("what is this?", "<stdin>:"),
        ("module { tt.func @f( }", "this is not valid IR"),
        ('"builtin.module"() ({}) : () -> ()', "has no function to check"),
    ],
)
def test_text_that_is_no_module(text: str, message: str) -> None:
    assert message in refused("check", "-", stdin=text)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("ptx", "is PTX, not TTGIR"),
        ("llir", "is LLVM IR, not TTGIR"),
        ("split", "is not lowered yet: it has wspec."),
        ("async_dots", "is not lowered yet: it has wspec."),
    ],
)
def test_other_stages(stage: str, message: str) -> None:
    assert message in refused("check", "-", stdin=dump(stage))


def test_a_module_that_does_not_verify() -> None:
    module = ir.read(dump("specialized"))
    next(op for op in module.walk() if op.name == "tt.func").regions[0].blocks[0].ops.pop()
    assert "is not valid: " in refused("check", "-", stdin=ir.print_module(module))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.ttgir"], "cannot read nowhere.ttgir: No such file"),
        (["-", "--stage", "final"], "--stage says how to compile a kernel, but - is TTGIR"),
        (["-", "--plain"], "--plain says how to compile a kernel, but - is TTGIR"),
        (["-", "--all"], "--all says how to compile a kernel, but - is TTGIR"),
        ([KERNEL, "--plain", "--stage", "final"], "not allowed with argument --plain"),
        ([KERNEL, "--all", "--variant", "d128"], "--variant and --all do not go together"),
        ([KERNEL, "--all", "--spec", "nowhere.toml"], "nowhere.toml"),
        ([f"{ROOT}/tests/support/kernels.py:gemm", "--all"], "kernels.toml"),
        ([KERNEL, "--stage", "split"], "invalid choice: 'split'"),
        ([KERNEL, "--limit", "0"], "--limit: 0 seconds are no time"),
        ([KERNEL, "--json", "/nowhere/x.json"], "cannot write /nowhere/x.json"),
    ],
)
def test_what_check_refuses(arguments: list[str], message: str) -> None:
    assert message in refused("check", *arguments, stdin="")
