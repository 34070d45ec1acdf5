"""Stamps change no result, stand where they should, and say what happened, in order."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest
import torch

from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome
from tests.support.recorded import Subject
from wspec import bridge
from wspec.ir import print_module, read
from wspec.ir.disjoint import EVERY
from wspec.ir.verify import check_valid
from wspec.lab.trace.instrument import DETAILS, HEAD, KINDS, Event, instrument
from wspec.planner.decide import function_of
from wspec.proof import prove

CAUSAL = Subject("d64_causal", epilogue_overlap=False)
FLAT = Subject("d64_causal", persistent=False)
TURNS = Subject("d128")
SPECIALIZED = [case for case in odd_cases() if case.code == "specialized"]
FEW = ("gemm", "persistent", "branch", "flash", "chain")


def assert_sound(case: Case, detail: str) -> None:
    made = outcome(case)
    assert made.module is not None and made.plan is not None
    own = len(function_of(made.module).regions[0].block.args)  # what a trace is written to is nobody else's
    stamped = instrument(made.module, made.plan, detail=detail)
    check_valid(stamped.module)
    text = print_module(stamped.module)
    assert print_module(read(text)) == text
    verdict = prove(bridge.final_ttgir(text, _source(case)), replace(EVERY, own=own))
    assert verdict.errors == () and verdict.undecided == (), verdict


def _source(case: Case) -> bridge.KernelSource:
    return bridge.from_signature(case.fn, case.types, {"num_warps": 8, **case.values})


@pytest.mark.parametrize("case", [case for case in SPECIALIZED if case.name.startswith(FEW)][:6], ids=str)
@pytest.mark.parametrize("detail", ["loops", "all"])
def test_what_comes_out_is_proved(case: Case, detail: str) -> None:
    assert_sound(case, detail)


@pytest.mark.slow
@pytest.mark.parametrize("case", SPECIALIZED, ids=str)
def test_what_comes_out_of_every_kernel_is_proved(case: Case) -> None:
    for detail in DETAILS:
        assert_sound(case, detail)


# ------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("subject", [CAUSAL, FLAT, TURNS], ids=["causal", "flat", "ping_pong"])
def test_results_are_the_same_to_the_bit(subject: Subject) -> None:
    expected, _ = subject.run(None)
    for detail in DETAILS:
        found, recording = subject.run(subject.instrumented(detail))
        assert recording is not None
        assert all(map(torch.equal, found, expected)), detail
        for track in recording.tracks():
            assert track.whole and len(track.events)
            assert all(recording.event(int(number)).task == track.task for number in track.events)


def test_every_tile_begins_once() -> None:
    for subject, tiles in ((CAUSAL, 8), (FLAT, 8)):
        for detail in DETAILS:
            _, recording = subject.run(subject.instrumented(detail, blocks=16))
            assert recording is not None
            for task in range(recording.made.layout.tasks):
                tracks = [track for track in recording.tracks() if track.task == task]
                begun = [recording.event(int(n)).begins_tile for track in tracks for n in track.events]
                assert sum(begun) == tiles, (detail, task)


def test_what_a_consumer_does_in_a_tile() -> None:
    """Seen by hand: Q, the first K, its dot, arithmetic; then at the end the last dot and the store."""
    _, recording = CAUSAL.run(CAUSAL.instrumented())
    assert recording is not None
    track = recording.track(0, 0)
    events = [recording.event(int(number)) for number in track.events]
    first = events[: next(at for at, event in enumerate(events) if at and event.begins_tile)]
    said = [(event.kind, event.name) for event in first if event.kind != "work"]
    assert said[:4] == [("tile", "q"), ("tile", "k"), ("issue", "scores"), ("dot", "scores")]
    assert [kind for kind, _ in said[-4:]] == ["store"] * 4
    waits = [name for kind, name in said if kind == "tile"]
    assert waits.count("k") == waits.count("v") >= 2, "as many tiles of V as of K"
    assert said.count(("issue", "scores")) == waits.count("k")


def test_the_table_is_bounded() -> None:
    expected, _ = CAUSAL.run(None)
    found, recording = CAUSAL.run(CAUSAL.instrumented(rows=32, blocks=2))
    assert recording is not None and all(map(torch.equal, found, expected))
    assert (recording.launched, recording.blocks) == (3, 2)
    assert not recording.track(0, 0).whole and len(recording.track(0, 0).events) == 32 - HEAD - 1
    rest = recording.table[1:, 2 * recording.made.layout.tasks :]
    assert (rest == 0).all(), "of the other blocks nothing is written"


def test_details_are_of_the_same_kinds() -> None:
    events = {detail: TURNS.instrumented(detail).events for detail in DETAILS}
    assert {event.kind for event in events["tiles"]} == {"work"}
    assert {event.kind for event in events["loops"]} == {"work", "loop"}
    assert {event.kind for event in events["all"]} == set(KINDS) - {"loop"}
    for made in events.values():
        assert [event.number for event in made] == list(range(1, len(made) + 1))


# --------------------------------------------------------------------------------------------- the binary


@functools.cache
def tokens(detail: str) -> str:
    """The binary as a string: C a clock, W a wait for a barrier, H dots, D a wait for dots, S a TMA load."""
    subject, made = CAUSAL, CAUSAL.instrumented(detail)
    done = bridge.finish(print_module(made.module), subject.source)
    assert "0 bytes spill stores, 0 bytes spill loads" in done.ptxas_log
    names = {"CS2R": "C", "SYNCS.PHASECHK": "W", "HGMMA": "H", "WARPGROUP.DEPBAR": "D", "UTMALDG": "S"}
    found = ""
    for line in bridge.sass_text(done.cubin).splitlines():
        match = re.search(r"\*/\s+(?:@!?U?P\w+\s+)?(CS2R|SYNCS\.PHASECHK|HGMMA|WARPGROUP\.DEPBAR|UTMALDG)(.*);", line)
        if match and (match[1] != "CS2R" or "CLOCK" in match[2]):
            found += names[match[1]]
    return found


def test_stamps_stand_where_they_were_put() -> None:
    """ptxas leaves a clock read in front of and behind every wait; retries stand at the end of the binary."""
    text = tokens("all").rstrip("W")
    assert text.count("C") >= len(CAUSAL.instrumented().events)
    assert re.search(r"[WSD][WSD]", text.replace("SC", "C")) is None, text
    assert all(before in "CH" for before in re.findall(r"(.)W", text)), text
    assert re.search(r"DH|WH", text) is None, "between a wait and the dots behind it there is a stamp"


@pytest.mark.slow
def test_fewer_stamps_with_less_detail() -> None:
    counts = [tokens(detail).count("C") for detail in DETAILS]
    assert counts == sorted(counts) and counts[0] < counts[1] < counts[2]


def test_events_know_their_lines() -> None:
    events: tuple[Event, ...] = CAUSAL.instrumented().events
    lines = {event.name: str(event.location) for event in events if event.kind == "tile"}
    assert set(lines) == {"q", "k", "v"} and all("attention.py" in line for line in lines.values())
