"""Reading what ncu says, from an ncu that is a script."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from wspec.lab.bench.counters import Counted, CountersError, available, count, parse

TENSOR = "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
NS = "gpu__time_duration.sum"
CHOSEN = {"tensor": TENSOR, "ns": NS}
LISTING = """Device NVIDIA H200 (GH100)
-------------------------- -----------
Metric Name                Description
-------------------------- -----------
gpu__time_duration         incremental duration
sm__pipe_tensor_op_hmma_cycles_active # of cycles
sm__warps_active_other     what nobody asks for
"""
HEADER = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
REPORT = "\n".join(
    [
        "==PROF== Connected to process 1",
        HEADER,
        f'"0","1","attention_fwd","Command line profiler metrics","{NS}","ns","1,234,567"',
        f'"0","1","attention_fwd","Command line profiler metrics","{TENSOR}","%","61.5"',
        f'"1","1","void cutlass::device_kernel<A, ""b"">(P)","Command line profiler metrics","{NS}","ns","99"',
        f'"1","1","void cutlass::device_kernel<A, ""b"">(P)","Command line profiler metrics","{TENSOR}","%","n/a"',
        "==PROF== Disconnected from process 1",
        "",
    ]
)


def test_the_report_is_read_by_kernel_and_quantity() -> None:
    assert parse(REPORT, CHOSEN) == [
        Counted("attention_fwd", {"ns": 1234567.0, "tensor": 61.5}),
        Counted('void cutlass::device_kernel<A, "b">(P)', {"ns": 99.0}),
    ]


def test_a_report_without_kernels_says_what_ncu_said() -> None:
    with pytest.raises(CountersError, match="no kernel: ==WARNING== No kernels were profiled"):
        parse("==PROF== x\n==WARNING== No kernels were profiled.\n", CHOSEN)


def test_metrics_are_those_that_this_ncu_has() -> None:
    assert available(LISTING) == CHOSEN
    with pytest.raises(CountersError, match="none of the metrics"):
        available("Device\nsome__thing  else\n")


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """An `ncu` on the PATH that is a script of ours, and nothing else there."""
    script = folder / "ncu"
    script.write_text(f"#!{sys.executable}\nimport subprocess, sys\nargs = sys.argv[1:]\n{body}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


def test_a_command_is_run_and_its_counters_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "ran"
    _install(
        tmp_path,
        monkeypatch,
        f"""
if "--query-metrics" in args:
    print({LISTING!r})
    sys.exit(0)
assert args[args.index("--metrics") + 1].split(",") == {[TENSOR, NS]!r}, args
with open(args[args.index("--log-file") + 1], "w") as file:
    file.write({REPORT!r})
sys.exit(subprocess.run(args[args.index({sys.executable!r}):]).returncode)
""",
    )
    found = count([sys.executable, "-c", f"open({str(marker)!r}, 'w')"])
    assert marker.exists() and [one.values.get("tensor") for one in found] == [61.5, None]


def test_what_goes_wrong_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CountersError, match="not on the PATH"):
        count(["true"])
    _install(tmp_path, monkeypatch, "print('==ERROR== ERR_NVGPUCTRPERM: no permission')\nsys.exit(1)\n")
    with pytest.raises(CountersError, match=r"ncu failed \(1\): ==ERROR== ERR_NVGPUCTRPERM"):
        count(["true"])
