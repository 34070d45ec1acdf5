"""The clock that takes a first compilation apart; what it shows is for people."""

from __future__ import annotations

import time

from wspec.lab.bench.compile_time import BESIDE, STEPS, Probe, table_of


def test_a_step_does_not_count_what_another_inside_it_takes() -> None:
    probe = Probe()
    inner = probe.around("inner", lambda: time.sleep(0.05))
    probe.around("outer", inner)()
    assert probe.seconds["inner"][0] >= 0.05 > 0.04 > probe.seconds["outer"][0]
    assert probe.seconds["inner"][1] < 0.04, "sleeping is no CPU time"


def test_every_step_is_a_function_that_can_be_timed() -> None:
    """Names move; a step that is nowhere raises."""
    before = STEPS[0]
    probe = Probe()
    import wspec.bridge.cache as cache

    real = cache.triton_key
    try:
        probe.put_around([before])
        assert cache.triton_key is not real and cache.triton_key() == real() and probe.seconds[before.name][0] >= 0
    finally:
        cache.triton_key = real
    for step in STEPS:
        holder: object = __import__(step.module, fromlist=["_"])
        for part in step.function.split("."):
            holder = getattr(holder, part)
        assert callable(holder)


def test_what_is_beside_is_no_part_of_what_a_launch_waits_for() -> None:
    seconds = {"ptxas": [1.0, 0.9], "plan": [0.2, 0.2], "proof": [0.5, 0.1], "all": [1.3, 1.25]}
    assert {step.name for step in STEPS if step.whose == BESIDE} == {"digests of libtriton and our sources", "proof"}
    rows = {row[0]: row[2:] for row in table_of("k", seconds).rows}
    assert rows["Triton's part"] == ("1000", "900")
    assert rows["our part: all else that a launch waits for"] == ("300", "350")
