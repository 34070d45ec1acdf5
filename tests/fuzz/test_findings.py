"""Which findings count as one."""

from __future__ import annotations

import pytest

from tests.fuzz.findings import STAGES, Finding

SAME = [
    (
        "InvalidIR at verify.py:68: fuzz_16aaf9b923d0.py:18:31: error: tt.descriptor_load: moves tensor<128x32xi8, #a>",
        "InvalidIR at verify.py:68: fuzz_0233543937f6.py:8:22: error: tt.descriptor_load: moves tensor<64x128xi8, #b>",
    ),
    (
        "out4: 28 of 16384 elements are wrong, the first at [9, 25]: -0.449999988, expected -0.45 +- 2.2e-08",
        "out: 1 of 64 elements are wrong, the first at [0]: 3e-09, expected -0.25 +- 0\nunder the schedule",
    ),
    (
        "race: /tmp/wspec-fuzz-1/fuzz_31.py:14:27: error: task 'mma 0' reads s2 while 'load' writes it",
        "race: fuzz_42ab.py:4:2: error: task 'mma 1' reads acc while 'load' writes it",
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_fault(one: str, other: str) -> None:
    assert Finding("checker", one).signature == Finding("checker", other).signature


def test_other_faults() -> None:
    found = [
        Finding("run", "deadlock: no task can go on"),
        Finding("checker", "deadlock: no task can go on"),
        Finding("run", "a buffer is overwritten while it is read"),
        Finding("compiler", "AssertionError at stage_stores.py:68: the tile fits"),
        Finding("compiler", "AssertionError at split.py:68: the tile fits"),
        Finding("checker", "x waits", "deadlock"),
        Finding("checker", "x waits", "race"),
    ]
    assert len({finding.signature for finding in found}) == len(found)


def test_whose_they_are() -> None:
    assert {stage for stage in STAGES if not Finding(stage, "x").ours} == {"program", "front end", "plain back end"}
    with pytest.raises(ValueError, match="no stage"):
        Finding("nowhere", "x")
