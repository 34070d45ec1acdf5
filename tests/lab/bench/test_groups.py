"""The comparison of warp groups: what is compared, which kernel a counter belongs to, the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from wspec.kernels.attention import Config
from wspec.lab.bench import groups
from wspec.lab.bench.attention_cases import Kind, main_case
from wspec.lab.bench.counters import Counted, CountersError
from wspec.lab.bench.groups_cases import FA3, Arrangement, arrangements
from wspec.lab.bench.groups_report import Results, tables
from wspec.options import Options

CASE = main_case(Kind(64, True, "bf16"), 4096)
ONE, THREE = Arrangement(1, Config(64, 128, 4)), Arrangement(3, Config(64, 128, 4, coarsening=3))


def results() -> Results:
    """One group in 1000 us, three in 800 without turns and 900 with; everything else in 1200."""
    ours = arrangements(64)
    times = {str(one): 1200.0 for one in ours} | {
        str(ONE): 1000.0, str(THREE): 800.0, str(replace(THREE, ping_pong=True)): 900.0, FA3: 500.0
    }  # fmt: skip
    binary = {"registers": 160, "registers_used": 158, "spills": 0, "shared_bytes": 181224, "blocks": 1}
    share = {"us": 1000.0, "mhz": 1700.0, "tensor": 0.5, "mufu": 0.6, "issue": 0.4}
    return Results(
        binaries={str(CASE.kind): {str(one): dict(binary) for one in ours}},
        predicted={str(CASE): {str(one): dict(share) for one in ours}},
        measured={str(CASE): {name: [us, us, us] for name, us in times.items()}},
        counters={
            str(CASE): {
                str(THREE): {"tensor": 55.4, "exponential": 61.0, "read_bytes": 3e9, "cycles": 1.2e6, "ns": 8e5},
                FA3: {"tensor": 70.0},
            }
        },
    )


def test_every_number_of_groups_is_there_and_no_two_have_one_name() -> None:
    for head_dim in (64, 128):
        found = arrangements(head_dim)
        assert {one.groups for one in found} == ({1, 2, 3, 4} if head_dim == 64 else {1, 2, 3})
        assert len({str(one) for one in found}) == len(found)
        assert not any(one.ping_pong for one in found if one.groups == one.blocks)
        for one in found:
            Options.from_env({}, **one.options)
            assert one.groups == one.blocks * one.config.coarsening * one.config.block_m // 64


def test_turns_are_chosen_by_the_measured_time_or_else_the_predicted_one() -> None:
    found = results()
    assert found.better(CASE, replace(THREE, ping_pong=True)) == THREE
    found.measured.clear()
    found.predicted[str(CASE)][str(replace(THREE, ping_pong=True))]["us"] = 999.0
    assert found.better(CASE, THREE).ping_pong


def test_the_tables_compare_with_one_group_and_with_flash_attention() -> None:
    taken, speed, units = tables([CASE], results())
    (of_three,) = [dict(zip(taken.columns, row, strict=True)) for row in taken.rows if row[2] == str(THREE)]
    assert [of_three[name] for name in ("registers a thread", "used", "blocks an SM")] == ["160", "158", "1"]
    rows = {row[2]: dict(zip(speed.columns, row, strict=True)) for row in speed.rows}
    three = rows[str(THREE)]
    assert (three["x 1 group"], three["x FA3"], three["groups"]) == ("1.250", "0.625", "3")
    assert three["x 1 group, predicted"] == "1.000" and rows[FA3]["predicted"] == "-"
    assert rows[FA3]["x 1 group"] == "2.000" and str(replace(THREE, ping_pong=True)) not in rows
    busy = {row[2]: dict(zip(units.columns, row, strict=True)) for row in units.rows}
    assert busy[str(THREE)]["tensor core %"] == "50 / 55" and busy[str(THREE)]["GB from L2"] == "3.00"
    assert busy[str(THREE)]["MHz"] == "1700 / 1500" and busy[FA3]["tensor core %"] == "- / 70"
    assert busy[str(ONE)]["tensor core %"] == "50 / -"


def test_what_was_found_survives_a_file() -> None:
    found = results()
    again = json.loads(json.dumps(found.as_json()))
    assert Results.merged([Results().as_json(), again]) == found


def test_a_kernel_is_matched_with_its_launch() -> None:
    ours = [Counted("attention_fwd", {"ns": float(at)}) for at in range(2)]
    zeros, main = Counted("fill", {"ns": 2.0}), Counted("device_kernel", {"ns": 500.0})
    assert groups.matched(["a", FA3, "b"], [ours[0], zeros, main, ours[1]]) == [ours[0], main, ours[1]]
    with pytest.raises(CountersError, match="3 launches, but ncu saw 1 of our kernels"):
        groups.matched(["a", FA3, "b"], [ours[0], main])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert groups.main(["--head-dim", "64", "--seqlen", "4096"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: no CUDA GPU is visible") and said.endswith("--predict needs none\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_all_that_was_found_before_is_shown_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, table = tmp_path / "found.json", tmp_path / "found.md"
    full = replace(CASE, kind=Kind(64, False, "bf16"))
    found = results()
    for rows in (found.binaries, found.predicted, found.measured, found.counters):
        for key in list(rows):
            rows[key.replace("causal", "full")] = rows[key]  # type: ignore[index]
    path.write_text(json.dumps(found.as_json()))
    assert str(full) in found.measured
    flags = ["--head-dim", "64", "--seqlen", "4096", "--load", str(path), "--markdown", str(table)]
    assert groups.main(flags) == 0
    assert "How busy" in capsys.readouterr().out and "| D=64 causal S=4096 | 3 | team" in table.read_text()
