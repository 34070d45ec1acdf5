"""What the checker does when its time is over, and what a block may ask of the machine."""

from __future__ import annotations

import math
import time

import pytest

from tests.check.script import kernel
from wspec.check import check
from wspec.check.clock import TimeIsOver, limited, timed
from wspec.ir.types import i32

NEST = """
def kernel(n):
    tile, full, empty = buffer(2, 64, 64), barriers(2), barriers(2)
    with specialize():
        with task(4):
            c = 0
            for i in range(0, {outer}, 1):
                for j in range(0, {inner}, 1):
                    wait(full[c % 2], c // 2 & 1)
                    load(tile[c % 2])
                    fence()
                    arrive(empty[c % 2])
                    c = c + 1
        with task(1):
            c = 0
            for i in range(0, {others_outer}, 1):
                for j in range(0, {others_inner}, 1):
                    wait(empty[c % 2], c // 2 + 1 & 1)
                    expect(full[c % 2], 8192)
                    copy(tile[c % 2], full[c % 2])
                    c = c + 1
"""


def nest(outer: int, inner: int, others_outer: int, others_inner: int) -> str:
    """Of two tasks, each with loops of its own."""
    return NEST.format(outer=outer, inner=inner, others_outer=others_outer, others_inner=others_inner)


TASKS = """
def kernel(n):
    with specialize(registers=(232, 152, 168, 168)):
        with task(4):
            pass
        with task(2):
            pass
        with task(8):
            pass
        with task(1):
            pass
        with task(1):
            pass
"""


def test_the_limit_holds_where_nothing_branches() -> None:
    """Nothing to choose: each of the loops is counted to its end, and the search never branches."""
    start = time.thread_time()
    report = check(kernel(nest(64, 64, 64, 64)), limit_s=0.05)
    assert [one.code for one in report.findings] == ["too-many-states"]
    assert time.thread_time() - start < 1.0


def test_loops_inside_each_other_are_taken_for_loops_of_any_length() -> None:
    report = check(kernel(nest(400, 400, 400, 400)), limit_s=20)
    assert report.ok, str(report)
    assert report.events < 500_000
    assert not check(kernel(nest(50, 50, 50, 51)), limit_s=20).ok


def test_loops_inside_each_other_are_counted_where_it_hangs_on_how_often_they_run() -> None:
    report = check(kernel(nest(40, 40, 20, 80)), limit_s=20)
    assert report.ok, str(report)
    assert [one.code for one in check(kernel(nest(40, 40, 20, 81)), limit_s=20).errors] == ["deadlock"]


def test_numbers_that_many_branches_change() -> None:
    """Each of forty conditions changes the number or does not: there are more ways through them than can be counted."""
    lines = "".join(f"                if x > {at}:\n                    x = x + {at}\n" for at in range(40))
    text = f"""
def kernel(n):
    done = barriers(1)
    with specialize():
        with task(4):
            x = n
            for i in range(0, n, 1):
{lines}                if x % 7 > 2:
                    wait(done[0], 0)
        with task(4):
            pass
"""
    start = time.thread_time()
    report = check(kernel(text), limit_s=5)
    assert report.undecided and not report.errors
    assert time.thread_time() - start < 2.0


def test_numbers_that_are_computed_from_each_other_for_ever() -> None:
    lines = "".join(f"    x = (x * x + {at}) ^ x\n" for at in range(2000))
    text = f"def kernel(n):\n    x = n\n{lines}    done = barriers(1)\n    if x > 3:\n        arrive(done[0])\n"
    assert [one.code for one in check(kernel(text)).findings] == ["too-many-states"]


def test_the_limit_holds_where_tasks_touch_global_memory_very_often() -> None:
    one, other = (
        "".join(f"            write(at(p, n * {2 * at + 2} + {more}), {at})\n" for at in range(400)) for more in (0, 1)
    )
    text = f"""
def kernel(p: ptr, n):
    with specialize():
        with task(4):
{one}
        with task(4):
{other}
"""
    module = kernel(text)
    start = time.thread_time()
    report = check(module, limit_s=0.5)
    assert [one.code for one in report.findings] == ["too-many-states"]
    assert time.thread_time() - start < 2.0


@pytest.mark.parametrize(("limit", "right"), [(168, False), (136, False), (128, True), (121, True)])
def test_a_block_has_no_more_registers_than_an_sm(limit: int, right: bool) -> None:
    """16 warps; a thread gets a multiple of eight."""
    module = kernel(TASKS)
    module.attributes["ttg.maxnreg"] = i32(limit)
    errors = [one for one in check(module).errors if "threads with" in one.message]
    assert (errors == []) == right


def test_registers_of_a_kernel_without_tasks() -> None:
    module = kernel("def kernel(n):\n    pass", warps=16)
    module.attributes["ttg.maxnreg"] = i32(255)
    assert [one.code for one in check(module).errors] == ["registers"]


LONG = "x = (x * x + {}) ^ x"  # what one line needs twice: 2 to the 40 ways
PLACES = """
def kernel(p: ptr, n):
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                x = i
                {lines}
                write(at(p, x * 2), 1)
        with task(4):
            for i in range(0, n, 1):
                x = i
                {lines}
                write(at(p, x * 2 + 1), 1)
"""
LATER = """
def kernel(p: ptr, n):
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                if i > 0:
                    x = (i ^ n) * 2
                    {lines}
                    write(at(p, x * 2), 1)
        with task(4):
            pass
"""
SLOTS = """
def kernel(p: ptr, n):
    tile = buffer(2, 64, 64)
    x = 1
    for i in range(0, n, 1):
        {lines}
        store(tile[x & 1])
"""
CONDITIONS = """
def kernel(n, x: i1):
    done = barriers(1)
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                {lines}
                if x:
                    arrive(done[0])
        with task(4):
            wait(done[0], 0)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [(PLACES, LONG), (LATER, LONG), (SLOTS, LONG), (CONDITIONS, "x = x and (i + {} < n) or x")],
    ids=["places", "later", "slots", "conditions"],
)
def test_what_is_computed_in_very_many_ways_is_looked_at_once(text: str, line: str) -> None:
    spot = next(one for one in text.splitlines() if "{lines}" in one)
    deep = " " * (len(spot) - len(spot.lstrip()))
    lines = f"\n{deep}".join(line.format(at) for at in range(40))
    module = kernel(text.replace("{lines}", lines))
    start = time.thread_time()
    check(module, limit_s=5)
    assert time.thread_time() - start < 4.0


TWO = """
def kernel(p: ptr, q: ptr, n, m):
    with specialize():
        with task(4):
            {one}
        with task(4):
            {other}
"""
MANY = 1500
BIG = {
    "sums of many terms": (
        ["x = n", *(f"x = x + n % {at + 2}" for at in range(2000)), "write(at(p, x), x)"],
        ["write(p, 1)"],
    ),
    "products": (["x = n", *(f"x = x * m + {at}" for at in range(400)), "write(at(p, x), x)"], ["write(p, 1)"]),
    "stores": (
        [f"write(at(p, {2 * at}), 1)" for at in range(MANY)],
        [f"write(at(p, {2 * at + 1}), 1)" for at in range(MANY)],
    ),
    "loads and stores": (
        [f"write(at(p, read(at(q, {2 * at}))), 1)" for at in range(MANY)],
        [f"write(at(q, {2 * at + 1}), 1)" for at in range(MANY)],
    ),
    "parts of a buffer": (
        ["b = buffer(64, 64)", "store(b)", *(f"load(part(b, ({16 * (at % 4)}, 0), (16, 64)))" for at in range(3000))],
        ["write(q, 1)"],
    ),
    "buffers": (
        [line for at in range(600) for line in (f"b{at} = buffer(16, 16)", f"store(b{at})", f"load(b{at})")],
        ["write(q, 1)"],
    ),
    "branches": (
        [line for at in range(600) for line in (f"if read(at(q, {at})) < 3:", f"    write(p, {at})")], ["write(p, 1)"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BIG)
def test_the_limit_holds_wherever_the_time_goes(what: str) -> None:
    one, other = ("\n            ".join(lines) for lines in BIG[what])
    module = kernel(TWO.format(one=one, other=other))
    start = time.thread_time()
    check(module, limit_s=0.2)
    assert time.thread_time() - start < 0.6


def test_a_limit_around_another_one_holds() -> None:
    with pytest.raises(TimeIsOver), limited(time.thread_time() - 1), limited(math.inf):
        list(timed(range(1000)))
    list(timed(range(1000)))  # and is over then
