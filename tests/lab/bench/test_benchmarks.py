"""The benchmarks' own arithmetic and bookkeeping, on a card that is made of the references."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wspec.kernels import attention as kernel
from wspec.kernels import matmul as product
from wspec.lab.bench import (
    accuracy,
    attention,
    attention_cases,
    calls,
    launch,
    loads,
    matmul,
    recorded,
    session,
    timing,
    tuning,
)
from wspec.lab.bench.attention_cases import Case, Kind, main_cases
from wspec.lab.bench.environment import environment
from wspec.lab.bench.peers import Peer
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.report import Table, geometric_mean, number, write_json
from wspec.lab.bench.timing import Timing, Variant, input_sets, measure
from wspec.version import VERSION

# ----------------------------------------------------------------------------------------------- accuracy, report


def test_error_of_equal_infinities_is_none() -> None:
    reference = torch.tensor([1.0, -math.inf, 2.0])
    assert accuracy.Error.of(reference.clone(), reference) == accuracy.Error(0.0, 0.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_error_of_a_stray_infinity_is_nan_and_never_accurate(wrong: float) -> None:
    reference = torch.ones(3)
    error = accuracy.Error.of(torch.tensor([1.0, wrong, 1.0]), reference)
    assert math.isnan(error.largest) and math.isnan(error.relative)
    assert not accuracy.as_accurate(error.ratio_to(accuracy.Error(1.0, 1.0)))


def test_error_ratio() -> None:
    plain = accuracy.Error(1e-2, 1e-3)
    assert accuracy.Error(1e-2, 1.2e-3).ratio_to(plain) == pytest.approx(1.2)
    assert accuracy.Error(1e-7, 1e-8).ratio_to(accuracy.Error(0.0, 0.0)) == 1.0
    assert not accuracy.as_accurate(accuracy.Error(1e-2, 1e-2).ratio_to(accuracy.Error(0.0, 0.0)))


def test_all_identical_sees_a_bit() -> None:
    steps = itertools.count()
    same = torch.tensor([0.0, math.nan], dtype=torch.float16)
    assert accuracy.all_identical(lambda: (same,), 5)
    assert not accuracy.all_identical(lambda: (torch.tensor([1.0 + (next(steps) == 4)]),), 5)
    assert not accuracy.all_identical(lambda: (torch.tensor([-0.0 if next(steps) % 2 else 0.0]),), 2)


def test_means_and_numbers() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))
    assert (number(None), number(math.nan), number(1.25, 1)) == ("-", "-", "1.2")


def test_table_in_markdown() -> None:
    text = Table("Speed", ("S", "x"), (("512", "1.1"),)).markdown()
    assert text == "### Speed\n\n| S | x |\n| ---: | ---: |\n| 512 | 1.1 |\n"


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "x.json", {"a": math.nan, "b": [math.inf, 1.0], 3: (1,)})
    assert json.loads((tmp_path / "new" / "x.json").read_text()) == {"a": None, "b": [None, 1.0], "3": [1]}


def test_environment_without_a_gpu() -> None:
    found = environment()
    assert found["triton"].startswith("3.") and found["ptxas"] != "unknown"


# --------------------------------------------------------------------------------------------------------- timing


class FakeEvent:
    """Time that passes only in `FakeEvent.now_ms`."""

    now_ms = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = FakeEvent.now_ms

    def elapsed_time(self, later: FakeEvent) -> float:
        return later.at - self.at


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


def passing(milliseconds: float, seen: list[str] | None = None, name: str = "") -> Any:
    def run() -> None:
        FakeEvent.now_ms += milliseconds
        if seen is not None:
            seen.append(name)

    return run


@pytest.mark.usefixtures("fake_time")
def test_measure() -> None:
    variants = [Variant("fast", (passing(0.5),)), Variant("slow", (passing(1.0), passing(3.0)))]
    timings = measure(variants, rounds=6, window_ms=4.0)
    assert timings["fast"].median_us == pytest.approx(500)
    assert timings["slow"].median_us == pytest.approx(2000)
    assert timings["fast"].spread == pytest.approx(0, abs=1e-9)
    assert timings["fast"].speedup_over(timings["slow"]) == pytest.approx(4.0)
    assert timing.fastest(timings, 1) == ["fast"]


@pytest.mark.usefixtures("fake_time")
def test_every_input_set_runs_equally_often() -> None:
    seen: list[str] = []
    runs = tuple(passing(0.01, seen, name) for name in "abc")
    measure([Variant("v", runs)], rounds=3, window_ms=1.0)
    assert seen.count("a") == seen.count("b") == seen.count("c") > 30


def test_two_variants_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="share a name"):
        measure([Variant("v", ()), Variant("v", ())])


def test_ratio_is_taken_within_rounds() -> None:
    """Both get slower together by half; the ratio does not move."""
    ours, theirs = Timing((1.0, 1.5, 1.0)), Timing((1.2, 1.8, 1.2))
    assert ours.speedup_over(theirs) == pytest.approx(1.2)


def test_input_sets() -> None:
    assert input_sets(300 << 20, 60 << 20) == 1
    assert input_sets(60 << 20, 60 << 20) == 3
    assert input_sets(1, 60 << 20) == 8


# ------------------------------------------------------------------------------------------------------- the cases


def test_main_cases_hold_the_tokens_and_the_width() -> None:
    cases = main_cases([Kind(128, True, "bf16"), Kind(256, False, "fp16")])
    assert len(cases) == 12
    for case in cases:
        assert case.batch * case.seqlen_q == 16384 and case.heads * case.kind.head_dim == 2048
    longest = cases[5]
    assert longest.flops == 2 * 16 * 16384**2 * 128
    assert str(longest) == "D=128 causal bf16 B=1 H=16 S=16384"


def test_inputs_have_the_case_s_shapes() -> None:
    case = Case(Kind(64, False, "fp16"), 2, 4, 2, 5, 7, "bshd")
    q, k, v = attention_cases.make_inputs(case, torch.device("cpu"), 0)
    assert q.shape == (2, 4, 5, 64) and k.shape == v.shape == (2, 2, 7, 64)
    assert q.stride(1) == 64 and not torch.equal(k, v)


def test_precompile_reports_what_fails() -> None:
    kind = Kind(64, False, "bf16")
    entries = [attention.Entry("plain", kernel.Config(64, 32, 4, 2)), attention.Entry("plain", kernel.Config(64, 24))]
    done = precompile([functools.partial(attention.launch_on_cpu, entry, kind) for entry in entries], jobs=1)
    assert done[0] is None
    assert done[1] is not None and "power of 2" in done[1]


# ------------------------------------------------------------------------------------------------- whole benchmarks


@pytest.fixture
def fake_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Benchmarks run small cases on the CPU: kernels are their references, and time passes as they say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(L2_cache_size=1))
    monkeypatch.setattr(session, "require_hopper", lambda: torch.device("cpu"))
    monkeypatch.setattr(session, "card_state", dict)
    monkeypatch.setattr(tuning, "precompile", lambda makes, jobs: [None] * len(makes))
    monkeypatch.setattr(attention_cases, "TOKENS", 128)
    monkeypatch.setattr(attention_cases, "HIDDEN", 128)
    monkeypatch.setattr(attention, "SWEEP_SEQLEN", 32)
    monkeypatch.setattr(attention, "attention_fwd_ws", lambda team: "specialized")
    monkeypatch.setattr(attention, "plain_configs", lambda _: [kernel.Config(64, 64, 4, 2), kernel.Config()])
    monkeypatch.setattr(attention, "peers", lambda: [Peer("cuDNN", lambda q, k, v, causal: passing(3.0))])
    monkeypatch.setattr(attention, "what_became_of", lambda kind: {"kind": str(kind), "specialized": True})
    monkeypatch.setattr(kernel.Launch, "run", fake_attention)
    yield tmp_path


def fake_attention(launch: kernel.Launch, function: Any) -> None:
    q, k, v, out = (descriptor.base for descriptor in launch.args[:4])
    result, lse = kernel.attention_reference(q, k, v, causal=launch.meta["CAUSAL"])
    out.copy_(result)
    launch.args[4].copy_(lse)
    FakeEvent.now_ms += 1.0 if function == "specialized" else 128 / launch.meta["BLOCK_M"] * 1.5


SMALL = ["--head-dims", "64", "--dtypes", "bf16", "--seqlens", "32", "64", "--no-odd", "--repeats", "2"]


def test_attention_benchmark(fake_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert attention.main(SMALL) == 0
    results = json.loads((fake_card / "attention.json").read_text())
    assert len(results["cases"]) == 4 and not results["not_run"]
    for record in results["cases"]:
        times = record["times"]
        assert times["plain"]["name"] == "plain 128x128 w8 s2"
        assert times["plain"]["ratio"] == pytest.approx(1.5)
        assert times["cuDNN"]["ratio"] == pytest.approx(3.0)
        assert times["specialized"]["tflops"] == pytest.approx(record["case"]["flops"] / 1e9)
        assert record["check"]["accurate"] and record["check"]["identical"]
    text = (fake_card / "attention.md").read_text()
    assert "| 64 | causal | bf16 | 32 |" in text
    assert "worst: 1.500 x plain" in text and "4 cases checked: 0 less accurate" in text
    assert "1.500" in capsys.readouterr().out


def test_attention_benchmark_is_recorded(fake_card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "current_uuid", lambda: "GPU-0")
    for _ in range(2):
        assert attention.main([*SMALL, "--record", "runs.jsonl"]) == 0
    runs = [line.run for line in recorded.read(fake_card / "runs.jsonl")]
    assert len(runs) == 2 and runs[0] is not None and runs[0].bench == "attention"
    results = json.loads((fake_card / "attention.json").read_text())
    assert list(runs[0].cases) == [record["name"] for record in results["cases"]]
    for case in runs[0].cases.values():
        assert case.us == pytest.approx(1000) and case.spread == pytest.approx(0, abs=1e-9)
        assert {name: at.value for name, at in case.ratios.items()} == pytest.approx({"plain": 1.5, "cuDNN": 3.0})
    assert runs[0].versions["wspec"] == VERSION and runs[0].timing["window_ms"] == 2.0


def test_a_run_that_cannot_be_recorded_does_not_begin(fake_card: Path) -> None:
    with pytest.raises(FileNotFoundError):
        attention.main([*SMALL, "--record", "none/runs.jsonl"])
    assert not (fake_card / "attention.json").exists()


def test_attention_benchmark_says_what_it_had_no_time_for(fake_card: Path) -> None:
    assert attention.main([*SMALL, "--time-budget", "0"]) == 1
    results = json.loads((fake_card / "attention.json").read_text())
    assert not results["cases"] and len(results["not_run"]) == 4
    assert "time was up" in (fake_card / "attention.md").read_text()


@pytest.mark.slow
def test_attention_benchmark_survives_a_case_that_fails(fake_card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_when_long(launch: kernel.Launch, function: Any) -> None:
        if launch.args[6] == 64:
            raise RuntimeError("too long")
        fake_attention(launch, function)

    monkeypatch.setattr(kernel.Launch, "run", fail_when_long)
    assert attention.main(SMALL) == 1
    text = (fake_card / "attention.md").read_text()
    assert "failed: D=64 full bf16 B=2 H=2 S=64: RuntimeError: too long" in text and "2 failed" in text


def test_attention_benchmark_sees_a_wrong_kernel(fake_card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(launch: kernel.Launch, function: Any) -> None:
        fake_attention(launch, function)
        if function == "specialized":
            launch.args[3].base[0, 0, 0, 0] += 1

    monkeypatch.setattr(kernel.Launch, "run", wrong)
    assert attention.main([*SMALL, "--no-timing"]) == 1
    text = (fake_card / "attention.md").read_text()
    assert "less accurate: D=64 full bf16" in text and "Cases checked, not timed, that are wrong" in text


def test_matmul_benchmark(fake_card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_product(launch: product.Launch, function: Any) -> None:
        a, b, out = (arg.base if hasattr(arg, "base") else arg for arg in launch.args[:3])
        b = b.T if launch.meta.get("B_TRANSPOSED") else b
        out.copy_(product.matmul_reference(a, b))
        FakeEvent.now_ms += 1.0 if function == "specialized" else 1.25

    monkeypatch.setattr(product.Launch, "run", fake_product)
    monkeypatch.setattr(matmul, "specialized_kernel", lambda _: "specialized")
    monkeypatch.setattr(matmul, "SIZES", ((32, 16, 64),))
    monkeypatch.setattr(matmul, "SWEEP_SIZE", (32, 32, 32))
    assert matmul.main(["--repeats", "2", "--no-peers"]) == 0
    results = json.loads((fake_card / "matmul.json").read_text())
    timed = [record for record in results["cases"] if "times" in record]
    assert len(timed) == 4 and len(results["cases"]) == 20
    assert all(record["times"]["plain"]["ratio"] == pytest.approx(1.25) for record in timed)


@pytest.mark.parametrize("module", [attention, matmul, launch, calls, loads])
def test_without_a_gpu_there_is_one_clear_error(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert module.main([]) == 2
    assert capsys.readouterr().err.startswith("error: no CUDA GPU is visible")


def test_a_hang_ends_the_process_and_keeps_the_results(tmp_path: Path) -> None:
    script = (
        "import time; from wspec.lab.bench.watchdog import Watchdog\n"
        "dog = Watchdog(0.2, lambda what: open('saved', 'w').write(what))\n"
        "with dog('quick'): pass\n"
        "with dog('the case'): time.sleep(30)\n"
    )
    path = ":".join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 3
    assert b"the case has not returned" in done.stderr
    assert (tmp_path / "saved").read_text() == "the case"


def test_around_is_entered_for_each_window(fake_time: None) -> None:
    entered: list[int] = []

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        entered.append(1)
        yield

    measure([Variant("v", (passing(1.0),), around)], rounds=3, window_ms=1.0)
    assert len(entered) == 2 + 3 * 2
