"""The checker before every launch: what it proves, refuses and cannot decide, with the real compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wspec
from tests.support import kernels as odd
from tests.support.broken import drop_arrive, start_with_other_phase
from tests.support.cases import GEMM, TILE
from wspec import api, bridge, ir, proof
from wspec.bridge import backend
from wspec.bridge.versions import INSTALLED
from wspec.check import Report, check, explore
from wspec.diagnostics import WspecError, to_json
from wspec.ir.core import Operation
from wspec.ir.disjoint import EVERY, Disjoint
from wspec.ir.loc import file_loc
from wspec.ir.shared_memory import Placement
from wspec.pipeline import Outcome, specialize

PROVED = "proved: no deadlock and no race, for any trip count (3 tasks, "


@pytest.fixture(autouse=True)
def clean(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_announced", set())


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """The reports of the checker, as they come."""
    reports: list[Report] = []

    def counted(module: Operation, *, limit_s: float, disjoint: Disjoint, placement: Placement) -> Report:
        reports.append(check(module, limit_s=limit_s, disjoint=disjoint, placement=placement))
        return reports[-1]

    monkeypatch.setattr("wspec.check.check", counted)
    return reports


def asked(**options: Any) -> api.Offline:
    return wspec.offline(odd.gemm, GEMM, TILE, num_warps=8, **{"gate": "off", "stream_k": False, **options})


def breaks(monkeypatch: pytest.MonkeyPatch, mutate: Callable[[Operation], None]) -> list[Outcome]:
    """From now on the compiler makes that mistake; what it made is in the list."""
    made: list[Outcome] = []

    def wrong(module: Operation, options: wspec.Options, **more: Any) -> Outcome:
        made.append(specialize(module, options, **more))
        assert made[-1].module is not None
        mutate(made[-1].module)
        return made[-1]

    monkeypatch.setattr("wspec.pipeline.specialize", wrong)
    return made


def said(report: api.Report) -> list[object]:
    """All of it, in a form that the cache keeps."""
    return [report.specialized, report.proof, *map(to_json, report.remarks)]


def plain_cubin() -> Any:
    return bridge.load_kernel(asked().source, bridge.Result(False, ()), {}).asm["cubin"]


# --------------------------------------------------------------------------------------------------- proved


def test_a_proof_is_in_the_report_and_kept_with_the_kernel(checked: list[Report]) -> None:
    first = asked().outcome()
    assert first.specialized and first.proof.startswith(PROVED)
    assert " ms" not in first.proof, "equal kernels have equal reports"
    assert f"\n\n{first.proof}\n\n" in str(first)
    assert len(checked) == 1 and checked[0].ok
    again = asked().outcome()
    assert again.proof == first.proof and again.kernel.hash == first.kernel.hash
    assert len(checked) == 1, "a kernel from the cache is not checked again"
    assert asked(cache=False).outcome().proof == first.proof
    assert len(checked) == 2


def _without_places(text: str) -> str:
    """libtriton gives an operation that has no place one in the file that it was read from."""
    return ir.print_module(proof.read_final(text), locations=False)


def test_what_is_checked_is_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def prove(final: str, disjoint: Disjoint) -> bridge.Proof:
        seen.append(final)
        return proof.prove(final, disjoint)

    monkeypatch.setattr(api, "prove", prove)
    report = asked().outcome()
    assert [_without_places(text) for text in seen] == [_without_places(report.kernel.asm["ttgir"])]


def test_the_checker_can_be_turned_off(checked: list[Report]) -> None:
    report = asked(check="off").outcome()
    assert report.specialized and report.proof == "not checked (check=off)" and checked == []
    assert asked().outcome().proof.startswith(PROVED), "another entry of the cache"


def test_a_kernel_that_is_left_alone_is_not_checked(checked: list[Report]) -> None:
    report = asked(enabled=False).outcome()
    assert not report.specialized and report.proof == "" and checked == []


# --------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("mode", ["strict", "errors"])
@pytest.mark.parametrize("mutate", [drop_arrive, start_with_other_phase])
def test_an_error_leaves_the_kernel_alone(
    mutate: Callable[[Operation], None], mode: str, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    made = breaks(monkeypatch, mutate)
    report = asked(check=mode).outcome()
    reason = report.reason
    assert not report.specialized and reason is not None
    assert (reason.code, reason.severity) == ("check-failed", "error")
    assert reason.message.startswith("the checker refuses the specialized gemm: ")
    place = file_loc(reason.location)
    assert place is not None and place.file == odd.__file__
    assert not any(remark.code == "specialized" for remark in report.remarks)
    assert report.proof.startswith("checker: ") and "error" in report.proof
    assert report.kernel.asm["cubin"] == plain_cubin()
    (reproducer,) = (fresh_cache / "wspec-reproducers").iterdir()
    assert reason.note.endswith(f"the plain kernel runs instead; please report this with {reproducer}")
    assert f"// {report.proof.removeprefix('checker: ')}\n" in reproducer.read_text()
    again = proof.prove(reproducer.read_text(), EVERY)
    assert again.summary == report.proof.removeprefix("checker: "), "the file repeats it"
    assert said(asked(check=mode).outcome()) == said(report) and len(made) == 1, "it is stored"


def test_nobody_asks_and_the_broken_kernel_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only to show that the option means what it says: no launch here."""
    breaks(monkeypatch, drop_arrive)
    assert asked(check="off").outcome().specialized


def test_a_launch_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    breaks(monkeypatch, drop_arrive)
    result, _ = asked().compiler.launch(asked().source)
    said = capsys.readouterr().err
    assert not result.specialized
    assert re.search(r"kernels.py:\d+:\d+: error: the checker refuses .* \[check-failed\]\n", said), said
    assert "the plain kernel runs instead" in said
    with pytest.raises(WspecError, match=r"\[check-failed\]"):
        asked(strict=True).compiler.launch(asked().source)


def test_a_kernel_that_is_asked_goes_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, drop_arrive)
    kernel = wspec.compile(odd.gemm, gate="off", stream_k=False)
    assert "[check-failed]" in kernel.explain(*GEMM.values(), **TILE, num_warps=8)


# ------------------------------------------------------------------------------------------------ undecided


def gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "MAX_STATES", 1)


def test_undecided_under_strict(monkeypatch: pytest.MonkeyPatch, checked: list[Report], fresh_cache: Path) -> None:
    gives_up(monkeypatch)
    report = asked().outcome()
    assert not report.specialized and report.reason is not None
    assert (report.reason.code, report.reason.severity) == ("check-undecided", "warning")
    assert report.reason.message.startswith("the specialized gemm is not proved: gave up after ")
    assert report.reason.note.endswith("check=errors runs the specialized one all the same")
    assert report.proof.startswith("checker: not proved, 1 undecided (")
    assert report.kernel.asm["cubin"] == plain_cubin()
    assert not (fresh_cache / "wspec-reproducers").exists(), "it is no failure"
    assert len(checked) == 4, "a block for each tile is tried, too, and one consumer, and both"
    assert said(asked().outcome()) == said(report) and len(checked) == 4


def test_undecided_under_errors(monkeypatch: pytest.MonkeyPatch, checked: list[Report]) -> None:
    gives_up(monkeypatch)
    report = asked(check="errors").outcome()
    assert report.specialized and report.reason is None
    assert [remark.code for remark in report.remarks] == ["specialized", "check-undecided"]
    assert report.remarks[1].severity == "warning"
    assert report.proof.startswith("checker: not proved, 1 undecided (")
    assert said(asked(check="errors").outcome()) == said(report) and len(checked) == 1


def test_undecided_and_off(monkeypatch: pytest.MonkeyPatch, checked: list[Report]) -> None:
    gives_up(monkeypatch)
    report = asked(check="off").outcome()
    assert report.specialized and len(report.remarks) == 1 and checked == []


def test_want_of_time_is_not_for_ever(monkeypatch: pytest.MonkeyPatch, checked: list[Report]) -> None:
    """The machine may have been busy: the verdict is not stored."""
    with monkeypatch.context() as busy:
        busy.setattr(proof, "LIMIT_S", 0.0)
        report = asked().outcome()
        assert report.reason is not None and report.reason.code == "check-undecided"
        assert len(checked) == 2, "rings of two are tried where the first plan takes too long"
    assert asked().outcome().specialized and len(checked) == 3


# ----------------------------------------------------------------------------------------- bugs of the checker


def fails(*_: object, **__: object) -> Report:
    raise ZeroDivisionError("in the checker")


@pytest.mark.parametrize("mode", ["strict", "errors"])
def test_a_failure_of_the_checker(mode: str, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("wspec.check.check", fails)
        report = asked(check=mode).outcome()
    assert not report.specialized and report.reason is not None
    assert (report.reason.code, report.reason.severity) == ("internal-error", "error")
    assert "the checker failed on the specialized gemm: ZeroDivisionError: in the checker" in report.reason.message
    assert report.kernel.asm["cubin"] == plain_cubin()
    (reproducer,) = (fresh_cache / "wspec-reproducers").iterdir()
    assert "// ZeroDivisionError: in the checker\n" in reproducer.read_text()
    assert asked(check=mode).outcome().specialized, "a failure must not be cached"


def test_a_failure_that_cannot_be_written_down(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    monkeypatch.setattr("wspec.check.check", fails)
    fresh_cache.mkdir(parents=True, exist_ok=True)
    (fresh_cache / "wspec-reproducers").write_text("in the way")
    report = asked().outcome()
    assert report.reason is not None and report.reason.code == "internal-error"
    assert "no file to repeat it with could be written" in report.reason.note


# ---------------------------------------------------------------------------------------------- the edited PTX


def test_the_edits_of_the_ptx_are_shown_to_be_right() -> None:
    report = asked().outcome()
    gone = r"\d+ barriers gone, " if INSTALLED.gathers_before_waits else ""  # others have none to lose
    said = rf"; PTX: .*; {gone}.*shown to be equivalent; SASS: the same order$"
    assert report.specialized and re.search(said, report.proof)


def test_an_edit_that_is_wrong_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = bridge.PtxEdits.apply

    def wrong(self: bridge.PtxEdits, ptx: str, *read: Any) -> str:
        made = right(self, ptx, *read)
        before, arrival, after = re.split(r"(\n[^\n]*mbarrier\.arrive\.shared[^\n]*)", made, maxsplit=1)
        return before + arrival + arrival + after

    monkeypatch.setattr(bridge.PtxEdits, "apply", wrong)
    report = asked().outcome()
    assert report.specialized and "not edited" in report.proof and "mbarrier.arrive" in report.proof
    assert "griddepcontrol" not in report.kernel.asm["ptx"]


def test_ptx_that_does_not_follow_the_ttgir_leaves_the_kernel_alone(
    monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    right = backend.emit

    def wrong(*args: Any) -> backend.Emitted:
        made = right(*args)
        return replace(made, ptx=re.sub(r"\n[^\n]*mbarrier\.arrive\.shared[^\n]*", "", made.ptx, count=1))

    monkeypatch.setattr(backend, "emit", wrong)
    report = asked().outcome()
    reason = report.reason
    assert not report.specialized and reason is not None and reason.code == "check-undecided"
    assert report.proof.endswith("; PTX: not shown to follow the TTGIR")
    assert report.kernel.asm["cubin"] == plain_cubin()
