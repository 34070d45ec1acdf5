"""The runner of other people's kernels, without a card: how it compares, changes sizes, fills and takes turns."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from torch import Tensor

from tests.bridge.fake_driver import FakeDriver
from tests.outside.cases import CASES
from tests.outside.on_card import __main__ as runner
from tests.outside.on_card import compare, inputs, launches, recipes, report
from tests.outside.on_card.entries import Sizes, resized
from tests.outside.on_card.turns import Turns


def outcome(
    plain: list[float], ours: list[float], again: list[float] | None = None, dtype: torch.dtype = torch.float32
) -> compare.Agreement:
    """Of a kernel that writes these numbers over zeros."""
    memory = compare.memory_of([torch.zeros(len(plain), dtype=dtype)])
    (flat,) = memory.values()
    runs = iter([plain, again or plain])
    (found,) = compare.compared(
        memory, lambda: flat.copy_(torch.tensor(next(runs))), [lambda: flat.copy_(torch.tensor(ours))]
    )
    assert torch.equal(flat.float(), torch.tensor(plain, dtype=dtype).float()) or any(map(is_nan, plain))
    return found


def is_nan(value: float) -> bool:
    return value != value


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("plain", "ours", "verdict"),
    [
        ([1.0, 2.0], [1.0, 2.0], "equal"),
        ([1.0, NAN], [1.0, NAN], "equal"),
        ([NAN, INF], [NAN, INF], "no information"),
        ([0.0, 0.0], [0.0, 0.0], "no information"),
        ([1.0, 2.0], [1.0, 2.0 + 2**-20], "rounding"),
        ([1.0, 2.0], [1.0, 2.005], "close"),
        ([1.0, 2.0], [1.0, 2.5], "different"),
        ([1.0, 2.0], [1.0, NAN], "different"),
        ([1.0, NAN], [1.0, 2.0], "different"),
        ([1.0, INF], [1.0, -INF], "different"),
        ([1.0, 2.0], [1.0, 0.0], "different"),  # not written
    ],
)
def test_verdicts(plain: list[float], ours: list[float], verdict: str) -> None:
    assert outcome(plain, ours).verdict == verdict


def test_what_the_plain_kernel_does_not_know_itself() -> None:
    assert outcome([1.0, 2.0], [1.0, 2.2], again=[1.0, 2.3]).verdict == "races"
    assert outcome([1.0, 2.0], [1.0, 4.2], again=[1.0, 2.3]).verdict == "different"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_rounding_is_of_the_type(dtype: torch.dtype) -> None:
    ulp = torch.finfo(dtype).eps
    assert outcome([1.0, 2.0], [1.0, 2.0 + 2 * ulp], dtype=dtype).verdict == "rounding"
    assert outcome([1.0, 2.0], [1.0, 4.0 + 16 * ulp], dtype=dtype).verdict == "different"


def test_integers_are_equal_or_not() -> None:
    memory = compare.memory_of([torch.zeros(3, dtype=torch.int32)])
    (flat,) = memory.values()
    wrong, right = (lambda: flat.add_(torch.tensor([1, 2, 4])), lambda: flat.add_(torch.tensor([1, 2, 3])))
    found = compare.compared(memory, right, [right, wrong])
    assert [one.verdict for one in found] == ["equal", "different"] and found[1].unequal == 1
    assert flat.tolist() == [1, 2, 3]


def test_each_run_starts_from_the_same_memory() -> None:
    """Also of tensors that share memory, and of what lies beside a tensor."""
    whole = torch.arange(8.0)
    memory = compare.memory_of([whole[2:4], whole[::2]])
    seen: list[list[float]] = []

    def run() -> None:
        seen.append(whole.tolist())
        whole.mul_(2)

    def beside() -> None:
        run()
        whole[7] = 0

    assert [one.verdict for one in compare.compared(memory, run, [run, beside])] == ["equal", "different"]
    assert seen == [list(range(8))] * 4
    assert whole.tolist() == [2.0 * at for at in range(8)]


def test_a_run_that_raises_leaves_memory_as_it_was() -> None:
    tensor = torch.ones(4)

    def fails() -> None:
        tensor.zero_()
        raise ValueError

    with pytest.raises(ValueError):
        compare.compared(compare.memory_of([tensor]), lambda: tensor.mul_(3), [fails])
    assert tensor.tolist() == [1.0] * 4


SOURCE = """
def f(T, B=4):
    o.T, o.D = 2048, 128
    m.routing = fake
    return g(2048, 4, M=16)
"""


def test_sizes_change_numbers_and_names() -> None:
    found = resized(SOURCE, {2048: 100, "B": 7, "D": 64, "M": 3}, frozenset({"routing"}))
    assert "B=7" in found and "(100, 64)" in found and "g(100, 4, M=3)" in found and "routing" not in found
    assert resized(SOURCE, {}).strip() == SOURCE.strip().replace("2048, 128", "(2048, 128)")


def test_constructors_of_the_entries_are_filled(tmp_path: Path) -> None:
    """Others are not."""
    path = tmp_path / "entry.py"
    code = compile("made = [torch.zeros(4, device=d), torch.zeros(3, dtype=torch.int32, device=d)]", str(path), "exec")
    filler = inputs.Filler({0: inputs.counting()})
    space: dict[str, Any] = {"torch": torch, "d": "cpu"}
    with inputs.filled(filler, tmp_path):
        exec(code, space)
        assert not torch.zeros(4).any()
    floats, integers = space["made"]
    assert floats.all() and integers.tolist() == [0, 1, 2]
    exec(code, space)
    assert not space["made"][0].any()


def test_parts_fit_their_offsets() -> None:
    draw = torch.Generator()
    for ragged in (False, True):
        sizes = inputs.parts(1000, ragged)(torch.empty(8), draw)
        ends = inputs.offsets(1000, ragged)(torch.empty(9), draw)
        assert ends.diff().tolist() == sizes.tolist() and 0 < int(ends[-1]) <= 1000
        assert inputs.begins(1000, ragged)(torch.empty(8), draw).tolist() == ends[:-1].tolist()
        assert (len(set(sizes.tolist())) > 1) is ragged


def test_routing_has_every_token_once() -> None:
    routing = inputs.Routing(pairs=100, experts=5, block=16, ragged=True)
    rows = routing.rows.view(-1, 16)
    assert sorted(row for row in routing.rows.tolist() if row < 100) == list(range(100))
    for expert, block in zip(routing.owners.tolist(), rows.tolist(), strict=True):
        assert all(row == 100 or int(routing.chosen[row]) == expert for row in block)
    short: Tensor = routing.padded(blocks=2, rows=1000)(torch.empty(1), torch.Generator())
    assert short.item() == 32


def test_every_recipe_has_three_different_sizes() -> None:
    assert recipes.recipe("fla_gla") is not None and recipes.recipe("unheard of") is None
    for pattern, recipe in recipes.RECIPES:
        assert recipe.sizes[0] == Sizes() and len({one.name for one in recipe.sizes}) == 3, pattern


def _beside(path: Path, began: Any, seconds: float) -> None:
    with Turns(path).beside_others():
        began.put(time.monotonic())
        time.sleep(seconds)


def test_who_times_is_alone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    began = context.Queue()
    others = [context.Process(target=_beside, args=(tmp_path / "turns", began, 0.4)) for _ in range(2)]
    for one in others:
        one.start()
    first, second = began.get(timeout=30), began.get(timeout=30)
    turns = Turns(tmp_path / "turns")
    with turns.beside_others(), turns.alone():
        assert time.monotonic() >= max(first, second) + 0.35
    assert abs(first - second) < 0.4  # those two were there together
    for one in others:
        one.join()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path, tmp_path: Path) -> Any:
    driver = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    for kind in (launches.JITFunction, launches.Autotuner, launches.Heuristics):
        monkeypatch.setattr(kind, "run", kind.run)
    monkeypatch.setattr(launches.overlap_guard.Plain, "launch", launches.overlap_guard.Plain.launch)
    monkeypatch.setattr(launches, "synchronize", lambda: None)
    told: list[dict[str, Any]] = []
    made = launches.Watch(Turns(tmp_path / "turns"), told.append, timed=False)
    yield made, told, driver
    made.default.disable()
    made.off.disable()


def fresh(name: str) -> Any:
    """A case whose kernel no driver knows yet."""
    launch = CASES[name].make("cpu")
    launch.kernel.device_caches.clear()
    return launch


def test_a_launch_is_made_by_both(watch: Any) -> None:
    """Three times by a driver that does nothing: twice plain, and once ours, which has more threads."""
    made, told, driver = watch
    launch = fresh("triton-gemm-w8")
    made.begin("entry", "as written", [launch.kernel.fn.__name__], None)
    launch.run()
    launch.run()  # the same again: not looked at
    rows = [one for one in told if one["event"] == "row"]
    assert [one["phase"] for one in told if one["event"] == "phase"] == ["plain", "plain", "ours", "off"]
    assert len(rows) == 1 and rows[0]["error"] == "" and rows[0]["product"] == "loop"
    assert rows[0]["default"]["kind"] == "specialized" and rows[0]["default"]["verdict"] == "no information"
    assert rows[0]["default"]["warps"] > rows[0]["warps"] == 8
    assert [one.packed_metadata[0] for one in driver.launches] == [8, 8, *[rows[0]["default"]["warps"]] * 2, 8]


def test_others_are_left_to_triton(watch: Any) -> None:
    made, told, driver = watch
    made.begin("entry", "as written", ["another"], None)
    fresh("triton-gemm-w8").run()
    assert not told and len(driver.launches) == 1


def test_figures() -> None:
    def row(kernel: str, verdict: str = "equal", error: str = "", **ours: Any) -> dict[str, Any]:
        made = asdict(launches.Row("e", "s", kernel, product="loop", error=error))
        made["default"].update(verdict=verdict, **ours)
        return made

    rows = [
        row("a", kind="specialized", ratio=1.21), row("b", kind="specialized", ratio=1.0 / 1.21),
        row("c", code="gate-slower"), row("d", "different", kind="specialized", ratio=4.0, guard=True),
        row("e", error="hang, ours"),
    ]  # fmt: skip
    found = report.figures(rows)
    assert found["geometric mean, specialized launches"] == pytest.approx(1.0)
    assert found["specialized below 0.98"] == 1 and found["errors"] == 1 and found["plain behind a guard"] == 1
    assert [bool(report.wrong(one)) for one in rows] == [False, False, False, True, True]
    assert report.figures([])["launches"] == 0


class Pretended:
    """Children that say what they are told to and end so."""

    def __init__(self, lives: list[tuple[list[dict[str, Any]], int]]) -> None:
        self.lives, self.asked = iter(lives), list[dict[str, str]]()

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        named = dict(itertools.pairwise(command))
        self.asked.append(named)
        events, code = next(self.lives)
        Path(named["--events"]).write_text("".join(json.dumps(one) + "\n" for one in events))
        with Path(named["--rows"]).open("a") as rows:
            rows.writelines(json.dumps(one) + "\n" for one in events if one["event"] == "row")
        return subprocess.CompletedProcess(command, code)


def said(kernel: str, number: int, *others: dict[str, Any]) -> list[dict[str, Any]]:
    begin = {"event": "begin", "entry": "e", "sizes": f"size {number}", "kernel": kernel, "number": number}
    return [begin, {"event": "phase", "phase": "plain"}, *others]


def done(kernel: str, error: str = "") -> dict[str, Any]:
    return {"event": "row", **asdict(launches.Row("e", "s", kernel, error=error))}


def test_an_entry_goes_on_behind_what_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = [
        (said("a", 0, done("a")) + said("b", 1, {"event": "phase", "phase": "ours"}), -14),
        (said("c", 1, done("c", "ours: RuntimeError: CUDA error: an illegal access")), 1),
        (said("d", 2, done("d")), 0),
    ]
    children = Pretended(lives)
    monkeypatch.setattr(runner.subprocess, "run", children)
    given = runner._parser().parse_args(["--packages", "p", "--entries", "e"])
    given.rows, given.scratch = tmp_path / "rows.jsonl", tmp_path
    given.rows.write_text("")
    runner._entry(given, "e", (0, 1, 2), time.monotonic())
    assert [one["--sizes"] for one in children.asked] == ["0,1,2", "1,2", "1,2"]
    assert [one["--skip"] for one in children.asked] == ["", "b", "b,c"]
    rows = {row["kernel"]: row["error"] for row in runner._rows(given.rows)}
    assert rows == {"a": "", "b": "ours: hang", "c": "ours: RuntimeError: CUDA error: an illegal access", "d": ""}


def test_an_entry_that_never_launches_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children = Pretended([([], 1)])
    monkeypatch.setattr(runner.subprocess, "run", children)
    given = runner._parser().parse_args(["--packages", "p", "--entries", "e"])
    given.rows, given.scratch = tmp_path / "rows.jsonl", tmp_path
    given.rows.write_text("")
    runner._entry(given, "e", (0,), time.monotonic())
    (row,) = runner._rows(given.rows)
    assert row["error"] == "exit 1 before any launch"
