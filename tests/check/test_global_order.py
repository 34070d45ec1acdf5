"""What is known of coordinates, against all numbers; and stores of two tasks, as kernels compute their places."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from tests.check.script import kernel
from wspec.check import check
from wspec.check.congruence import Congruence
from wspec.host_descriptors import lie_apart
from wspec.ir.core import Operation
from wspec.ir.disjoint import Disjoint
from wspec.ir.types import ArrayAttr, DictAttr, i32

NUMBERS = range(-60, 61)


def those(one: Congruence) -> set[int]:
    return {n for n in NUMBERS if (n - one.rest) % one.modulus == 0} if one.modulus else {one.rest}


def drawn(draw: random.Random) -> Congruence:
    modulus = draw.choice((0, 1, 2, 3, 4, 6, 8, 12))
    return Congruence(modulus, draw.randrange(modulus) if modulus else draw.randrange(-9, 9))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_holds_for_every_number(seed: int) -> None:
    draw = random.Random(seed)
    one, other = drawn(draw), drawn(draw)
    few = list(itertools.product(sorted(those(one))[:6], sorted(those(other))[:6]))
    for made, compute in (
        (one.plus(other), lambda a, b: a + b),
        (one.plus(other, -1), lambda a, b: a - b),
        (one.times(other), lambda a, b: a * b),
    ):
        assert all(_holds(made, compute(a, b)) for a, b in few)
    assert all(_holds(one | other, a) and _holds(one | other, b) for a, b in few)


def _holds(one: Congruence, number: int) -> bool:
    return number == one.rest if one.modulus == 0 else (number - one.rest) % one.modulus == 0


@pytest.mark.parametrize("seed", range(60))
def test_apart_is_apart(seed: int) -> None:
    draw = random.Random(seed)
    one, other = drawn(draw), drawn(draw)
    for size, others in ((1, 1), (2, 3), (4, 4)):
        meets = any(a < b + others and b < a + size for a in those(one) for b in those(other))
        assert one.keeps_apart(size, other, others) == (not meets)


STORES = """
def kernel(p: ptr, n):
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                write(at(p, {0}), 1)
        with task(4):
            for i in range(0, n, 1):
                write(at(p, {1}), 1)
"""


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("i * 2", "i * 2 + 1", True),
        ("i * 2", "i * 4 + 2", False),
        ("i * 6 + 1", "n * 4", True),
        ("i", "i", False),
        ("0", "1", True),
        ("n", "n + 1", True),
        ("i % 8 * 2", "i * 2 - 1", True),
        ("i", "i + 1", False),  # the one task's next iteration
        ("i * 3", "i * 3 - 1", True),
    ],
)
def test_places_of_two_tasks(one: str, other: str, apart: bool) -> None:
    report = check(kernel(STORES.format(one, other)))
    assert {finding.code for finding in report.findings} == (set() if apart else {"global-order"}), str(report)


BOXES = """
def kernel(n, m):
    one, other = buffer(64, 64), buffer(64, 64)
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                store(one)
                fence()
                tma_store_back(one, {0})
                store_wait(0)
        with task(4):
            for i in range(0, n, 1):
                store(other)
                fence()
                tma_store_back(other, {1})
                store_wait(0)
"""
OUTSIDE = "2147418112"  # where the kernel's own copies go that a condition leaves out


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("i * n", "i * n + 64", False),  # an iteration with n of 64
        ("n", "n + 64", True),
        ("i * (n * 128)", "i * (n * 128) + 64", True),
        ("i * (n * 64)", "i * (n * 64) + 64", False),
        ("smin(i * 128, n * 256)", "smin(i * 128, n * 256) + 64", True),
        ("select(i < m, i * 128, n * 256 + 64)", "select(i < m, i * 128, n * 256 + 64) + 64", False),
        ("i * 128", "i * 128 + 64", True),
        ("i * 64", "i * 64 + 64", False),  # the next iteration's
        (f"select(i < m, i * 128, {OUTSIDE})", f"select(i < m, i * 128, {OUTSIDE}) + 64", True),
        (f"select(i < m, i * 128, {OUTSIDE})", f"select(i < m, i * 128, {OUTSIDE}) + 32", False),
        (f"select(i < m, i * 128, {OUTSIDE})", f"select(i < n, i * 128, {OUTSIDE}) + 64", True),
        ("select(i < m, i * n, 64)", "select(i < m, i * n, 0) + 64", False),
    ],
)
def test_boxes_of_two_tasks(one: str, other: str, apart: bool) -> None:
    report = check(kernel(BOXES.format(one, other)))
    assert {finding.code for finding in report.findings} == (set() if apart else {"global-order"}), str(report)


def divisible(module: Operation, argument: int, by: int) -> Operation:
    """The module, made for a multiple of a number."""
    function = next(op for op in module.walk() if op.name == "tt.func")
    attributes = [DictAttr(()) for _ in function.regions[0].block.args]
    attributes[argument] = DictAttr((("tt.divisibility", i32(by)),))
    function.properties["arg_attrs"] = ArrayAttr(tuple(attributes))
    return module


@pytest.mark.parametrize(("by", "apart"), [(128, True), (64, False), (96, False), (192, True)])
def test_boxes_of_a_size_that_is_known_to_be_divisible(by: int, apart: bool) -> None:
    report = check(divisible(kernel(BOXES.format("i * n", "i * n + 64")), 0, by))
    assert report.ok == apart, str(report)


TEAM = """
def kernel(n, m: f16, k: f16):
    one, other = buffer(64, 64), buffer(64, 64)
    with specialize():
        with task(4):
            store(one, all_of({0}))
            fence()
            tma_store_back(one, {2})
            store_wait(0)
        with task(4):
            store(other, all_of({1}))
            fence()
            tma_store_back(other, {3})
            store_wait(0)
"""


@pytest.mark.parametrize(
    ("one", "other", "first", "second", "apart"),
    [
        ("m", "m", "pid(0)", "smin(pid(0) + 1, n)", True),
        ("m", "k", "pid(0)", "smin(pid(0) + 1, n)", False),  # what the tile is filled with
        ("real(1)", "real(1)", "pid(0)", "smin(pid(0) + 1, n)", True),
        ("real(1)", "real(2)", "pid(0)", "smin(pid(0) + 1, n)", False),
        ("m", "m", "pid(0)", "smin(pid(0) * 2, n)", False),
        ("m", "m", "pid(0)", "pid(0)", False),
    ],
)
def test_a_tile_of_a_team_that_is_stored_twice(one: str, other: str, first: str, second: str, apart: bool) -> None:
    report = check(kernel(TEAM.format(one, other, first, second)))
    assert report.ok == apart, str(report)


@pytest.mark.parametrize(
    ("first", "second"), [("i", "smin(i + 1, n)"), ("i * 2", "smin(i * 2 + 1, n)"), ("i", "smin(i + 2, n)")]
)
def test_tiles_of_a_team_that_walks(first: str, second: str) -> None:
    """What one member leads to another one leads to in the next iteration."""
    assert not check(kernel(BOXES.format(first, second))).ok


ROWS = """
def kernel(p: ptr, n, m):
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                write_rows(at(p, {2}), {0}, {3})
        with task(4):
            for i in range(0, n, 1):
                write_rows(at(p, {2}), {1}, {3})
"""
NEVER, ALWAYS = None, ()


def holds(text: str, *numbers: int, grid: tuple[int, int, int] = (8, 2, 1)) -> bool:
    """Is a script proved for a launch with these numbers behind its pointer?"""
    report = check(kernel(text))
    codes = {finding.code for finding in report.findings}
    assert codes <= {"global-order"}, str(report)
    values = dict(enumerate((0, *numbers)))
    return not codes and all(lie_apart(one.apart, grid, values) for one in report.conditions)


@pytest.mark.parametrize(
    ("one", "other", "begin", "stride", "at_least"),
    [
        ("i * 128", "i * 128 + 64", "0", "m", 1),  # one column
        ("i * 128", "i * 128 + 64", "n", "m", 1),
        ("i * 64", "i * 64 + 64", "0", "m", NEVER),
        ("i * 128", "i * 128 + 63", "0", "m", NEVER),
        ("0", "64", "0", "m", 1),
        ("0", "64", "i * m", "m", NEVER),  # rows of other iterations
        ("0", "64", "i * 64", "m", 7 * 64 + 1),
        ("0", "64", "0", "m + i", NEVER),  # rows that lie elsewhere in other iterations
        ("0", "64", "read(at(p, i))", "m", NEVER),
        ("0", "64", "0", "read(p)", NEVER),  # a launch does not know how far rows lie apart
        ("i * n", "i * n + 64", "0", "m", NEVER),
        ("i * 128", "i * 128 + 64", "0", "3", ALWAYS),
        ("0", "64", "i * 384", "3", ALWAYS),
        ("0", "64", "i * 192", "3", NEVER),
    ],
)
def test_rows_of_two_tasks(one: str, other: str, begin: str, stride: str, at_least: int | tuple[()] | None) -> None:
    """`at_least`: what m must be, in a launch of eight iterations."""
    text = ROWS.format(one, other, begin, stride)
    if not isinstance(at_least, int):
        report = check(kernel(text))
        assert report.ok == (at_least is ALWAYS) and not report.conditions, str(report)
        return
    assert holds(text, 8, at_least) and not holds(text, 8, at_least - 1)
    assert holds(text, 8, -at_least) and not holds(text, 8, 1 - at_least), "rows that go backwards"


@pytest.mark.parametrize(
    ("one", "other", "more", "right", "wrong"),
    [
        ("i * 128", "i * 128 + 64", "n, k", [(64, 64)], [(0, 64)]),
        ("i * 128", "i * 128 + 64", "n, m", [(64, 0)], [(0, 0)]),
        ("i * 128", "i * 128 + 64", "i * 128, m", [(1, 0)], [(0, 0)]),
        ("i * 128", "i * 128 + 64", "i * 64, m", [(1, 0)], [(0, 0)]),
        ("i * 128", "i * 128 + 64", "(n - i) * 64, m", [], [(64, 0), (1, 0)]),  # rows of the same stride are added
        ("0", "64", "i, k", [(8, 1), (1, 128), (100, 3)], [(7, 1), (1, 127), (8, 8), (0, 5)]),  # k may be m
        ("0", "64", "i, m * 2", [], [(1, 0)]),
    ],
)
def test_rows_of_two_strides(
    one: str, other: str, more: str, right: list[tuple[int, int]], wrong: list[tuple[int, int]]
) -> None:
    """For pairs of m and k, in a launch of eight iterations."""
    text = ROWS.replace("{3})", "{3}, {4})").replace("n, m", "n, m, k").format(one, other, "0", "m", more)
    assert all(holds(text, 8, m, k) for m, k in right)
    assert not any(holds(text, 8, m, k) for m, k in wrong)


WALKED = """
def kernel(p: ptr, n, m, k):
    with specialize():
        with task(4):
            for t in {walk}:
                write_rows(at(p, {begin}), {row}, m)
        with task(4):
            for t in {walk}:
                write_rows(at(p, {begin}), {row} + 64, m)
"""
WALK = "range(pid(0), n, 132)"


@pytest.mark.parametrize(
    ("walk", "row", "begin", "columns"),
    [
        (WALK, "t // k * 128", "t % k * 64", 6 * 64 + 1),  # from there on
        (WALK, "t % k * 128", "t // k * 64", 71 * 64 + 1),
        ("range(pid(0), n, k)", "t // m * 128", "t % 8 * 64", 7 * 64 + 1),
        (
            "range(0, ceildiv(n - pid(0), 132), 1)",
            "(pid(0) + t * 132) // k * 128",
            "(pid(0) + t * 132) // k * 64",
            71 * 64 + 1,
        ),
        ("range(0, ceildiv(n, 132), 1)", "t * 128", "t * 64", 3 * 64 + 1),
        (WALK, "t // k * 64", "t % k * 64", NEVER),
        (WALK, "t // k * 128 + t % k", "t % k * 64", NEVER),
        (WALK, "t // k * 128", "t % k * m", NEVER),  # counted in rows
        (WALK, "t // k * 128", "t % k * (m * 64)", NEVER),
        (WALK, "t // k * 128", "t * 64", 499 * 64 + 1),
        (WALK, "t % 132 * 128", "t // 132 * 64", 3 * 64 + 1),
        (WALK, "t // k * 128", "t % k * 64 + pid(0) * 4096", 6 * 64 + 1),
        (WALK, "t // k * 128", "read(at(p, t % k))", NEVER),
        (WALK, "pid(0) * 64", "t % k * 64", 6 * 64 + 1),
        (WALK, "pid(0) * 64", "0", 1),
    ],
)
def test_tiles_that_a_block_walks_through(walk: str, row: str, begin: str, columns: int | None) -> None:
    """500 tiles, 7 beside each other: `columns` is how far rows must lie apart."""
    text = WALKED.format(walk=walk, row=row, begin=begin)
    if columns is None:
        report = check(kernel(text))
        assert {finding.code for finding in report.findings} == {"global-order"}, str(report)
    else:
        assert holds(text, 500, columns, 7) and not holds(text, 500, columns - 1, 7)


MASKED = """
def kernel(p: ptr, n, m, k):
    with specialize():
        with task(4):
            for t in range(pid(0), n, 132):
                write_tile(p, t // 4 * 128, t % 4 * 64, m, k)
        with task(4):
            for t in range(pid(0), n, 132):
                write_tile(p, t // 4 * 128 + 64, t % 4 * 64, m, k)
"""


def test_columns_end_where_a_mask_does() -> None:
    """A matrix of 200 columns in tiles of 64: its rows lie 200 apart, the tiles reach to 256."""
    assert holds(MASKED, 100, 200, 200) and not holds(MASKED, 100, 199, 200)
    assert holds(MASKED, 100, 256, 1 << 20) and not holds(MASKED, 100, 255, 1 << 20)
    assert holds(MASKED, 100, 1 << 20, 1 << 20)
    other = MASKED.replace(", m, k)", ", m, n)", 2).replace("p: ptr, n, m, n", "p: ptr, n, m, k")  # in one of the tasks
    assert not holds(other, 250, 200, 200) and holds(other, 250, 250, 200)
    none = MASKED.replace("write_tile(p, t // 4 * 128 + 64", "write_tile_of_rows(p, t // 4 * 128 + 64")
    assert not holds(none, 100, 255, 200) and holds(none, 100, 256, 200), "none in one of the tasks"


def test_a_mask_looks_at_a_part_of_the_place() -> None:
    """What never changes stands beside it."""
    text = MASKED.replace("write_tile(p,", "write_tile(at(p, k * 8 + pid(1) * n),")
    assert holds(text, 100, 200, 200) and not holds(text, 100, 199, 200)
    text = MASKED.replace("write_tile(p,", "write_tile(at(p, t * 1000),")
    assert not holds(text, 100, 200, 200)
    assert not holds(text, 100, 99 * 1000 + 255, 200) and holds(text, 100, 99 * 1000 + 256, 200), "no mask ends that"


def test_ends_that_are_counted_from_different_places() -> None:
    text = MASKED.replace("k):", "k, c):").replace("write_tile(p, t // 4 * 128,", "write_tile(at(p, c), t // 4 * 128,")
    text = text.replace("128 + 64, t % 4 * 64,", "128 + 64, t % 4 * 64 + c,")
    assert not holds(text, 100, 255, 200, -1000) and holds(text, 100, 256, 200, -1000)


@pytest.mark.parametrize(
    ("group", "tiles"), [("1", [(1, 1), (3, 5), (16, 33), (40, 64)]), ("8", [(1, 1), (3, 8), (16, 32), (40, 64)])]
)
def test_tiles_of_a_product_in_groups(group: str, tiles: list[tuple[int, int]]) -> None:
    """Rows as far apart as there are columns do; without a mask where all groups are of one size."""
    first = f"t // (k * {group}) * {group}"
    row = f"({first} + t % smin(n // k - {first}, {group})) * 128"
    begin = f"t % (k * {group}) // smin(n // k - {first}, {group}) * 64"
    text = WALKED.format(walk=WALK, row=row, begin=begin)
    for across, down in tiles:
        assert holds(text, across * down, across * 64, across)
        assert not holds(text, across * down, across * 64 - 64, across)
    masked = MASKED.replace("t // 4 * 128", row).replace("t % 4 * 64", begin).replace("m, k)", "m, k, c)", 1)
    masked = masked.replace(", m, k)", ", m, c)")
    for across, down in ((1, 1), (3, 5), (16, 33), (40, 63)):
        assert holds(masked, across * down, across * 64 - 8, across, across * 64 - 8)
        assert not holds(masked, across * down, across * 64 - 9, across, across * 64 - 8)


def test_a_mask_of_rows_says_nothing_of_columns() -> None:
    text = MASKED.replace("write_tile(", "write_tile_of_rows(")
    assert not holds(text, 100, 255, 100) and holds(text, 100, 256, 100)
    text = text.replace("t // 4 * 128", "0").replace("t % 4 * 64", "0")  # of which both begin at one number
    assert not holds(text, 100, 8, 8) and holds(text, 100, 64, 8)


@pytest.mark.parametrize(("begin", "stride"), [("0", "read(q)"), ("read(at(q, t % k))", "m"), ("t * 64", "read(q)")])
def test_what_a_launch_does_not_know_is_undecided(begin: str, stride: str) -> None:
    """What is loaded, though nothing writes it."""
    text = WALKED.replace("p: ptr,", "p: ptr, q: ptr,").replace(", m)", ", {stride})")
    text = text.format(walk=WALK, begin=begin, row="t // k * 128", stride=stride)
    report = check(kernel(text), disjoint=Disjoint(every=True))
    assert {finding.code for finding in report.findings} == {"global-order"} and not report.conditions, str(report)


_OF_TILES = ("t // k", "t % k", "t // 3", "t % 6", "k", "t % k // 2", "pid(0)", "t", "pid(1)", "t // n", "t // k // 2")


def _number(draw: random.Random, depth: int) -> str:
    if depth == 0:
        return draw.choice(_OF_TILES)
    kinds = ("({0}) + ({1})", "({0}) * 2 + {1}", "smin({0}, {1})", "({0}) * ({1})", "({0}) % ({1} + 1)")
    return draw.choice(kinds).format(_number(draw, depth - 1), _number(draw, draw.randrange(depth)))


def _meet(row: str, begin: str, n: int, m: int, k: int) -> bool:
    """Do the two tasks of one of four blocks store to one place?"""
    for block in range(4):
        tasks = set[int](), set[int]()
        for t in range(block, n, 4):
            known = {"t": t, "n": n, "m": m, "k": k, "pid": (block, 1).__getitem__, "smin": min}
            first, column = eval(row, known), eval(begin, known)
            for task, places in enumerate(tasks):
                places.update(column + (first + task * 64 + one) * m for one in range(64))
        if tasks[0] & tasks[1]:
            return True
    return False


def test_rows_that_are_proved_apart_in_a_launch_never_meet() -> None:
    """And most of those that do not meet are proved to."""
    held, missed, met = 0, 0, 0
    for seed in range(400):
        draw = random.Random(seed)
        row = f"({_number(draw, draw.randrange(2))}) * {draw.choice((64, 128, 128, 128))}"
        begin = f"({_number(draw, draw.randrange(2))}) * {draw.choice((1, 4, 64, 'n', 64))}"
        report = check(kernel(WALKED.format(walk="range(pid(0), n, 4)", row=row, begin=begin)))
        if not report.ok:
            continue
        for n, m, k in itertools.product((12, 23), (1, 64, 256, 1024), (2, 3, 7)):
            values = dict(enumerate((0, n, m, k)))
            apart = all(lie_apart(one.apart, (4, 2, 1), values) for one in report.conditions)
            meet = _meet(row, begin, n, m, k)
            assert not (apart and meet), f"{seed}: rows {row} of {m}, columns {begin}, n {n}, k {k}"
            held, missed, met = held + apart, missed + (not apart and not meet), met + meet
    assert held > 4000 and met > 1000 and missed < held / 4, (held, missed, met)


def test_a_scalar_of_a_team_is_no_tile() -> None:
    text = STORES.format("pid(0)", "smin(pid(0) + 1, n)")
    assert [one.code for one in check(kernel(text)).findings] == ["global-order"]


MOVED = """
def kernel(p: ptr, n):
    with specialize():
        with task(4):
            q = p
            for i in range(0, n, 1):
                write(q, 1)
                q = at(q, {0})
        with task(4):
            q = p
            for i in range(0, n, 1):
                write(at(q, 64), 1)
                q = at(q, {0})
"""


@pytest.mark.parametrize(("step", "apart"), [("128", True), ("64", False), ("n", False), ("n * 128", True)])
def test_pointers_that_loops_move(step: str, apart: bool) -> None:
    assert check(kernel(MOVED.format(step))).ok == apart


TILES = """
def kernel(p: ptr, t, table: ptr):
    with specialize():
        with task(4):
            entry = at(table, pid(0) * 4)
            y = read(entry)
            last = {first}
            for i in range(0, read(at(entry, 3)), 1):
                if {condition}:
                    write(at(p, {place}), 1)
                last = y % 32
                entry = at(entry, 4)
                y = read(entry)
            if read(at(at(table, pid(0) * 4), 3)) > 0:
                write(at(p, {behind}), 1)
        with task(4):
            entry = at(table, pid(0) * 4)
            y = read(entry)
            last = {first}
            for i in range(0, read(at(entry, 3)), 1):
                if {condition}:
                    write(at(p, {place} + 64), 1)
                last = y % 32
                entry = at(entry, 4)
                y = read(entry)
            if read(at(at(table, pid(0) * 4), 3)) > 0:
                write(at(p, {behind} + 64), 1)
"""


@pytest.mark.parametrize(
    ("place", "first", "condition", "apart"),
    [
        ("y * t", "0", "i < t", True),
        ("last + t * y", "y", "i < t", True),
        ("last", "0", "i > 0", True),
        ("last", "0", "i < t", False),  # in the first iteration what stands for no tile
        ("last", "0", "i >= 0", False),
        ("last", "0", "read(at(at(table, pid(0) * 4), 3)) > 0", False),  # so it is in the first iteration too
        ("y * t + i", "0", "i < t", False),
        ("y * t + i * 128", "0", "i < t", True),
        ("smin(y, i)", "0", "i < t", False),
    ],
)
def test_tiles_of_the_launchers_table_are_blocks_of_their_own(
    place: str, first: str, condition: str, apart: bool
) -> None:
    """Their order is not asked for; that of what else differs from one iteration to another is."""
    behind = re.sub(r"\bi\b", "0", place)
    module = TILES.format(place=place, first=first, condition=condition, behind=behind)
    report = check(kernel(module), disjoint=Disjoint(own=2))
    assert report.ok == apart, str(report)
    assert not check(kernel(module), disjoint=Disjoint(every=True)).ok  # anybody's table
    others = module.replace("t, table: ptr", "t, table: ptr, own: ptr")
    assert not check(kernel(others), disjoint=Disjoint(own=3, every=True)).ok


@pytest.mark.parametrize(
    ("place", "first", "condition", "apart"),
    [
        ("read(at(u, y)) * t", "0", "i < t", True),  # where a sequence begins, of those that are packed
        ("read(at(u, read(at(u, y)))) + y * t", "0", "i < t", True),
        ("last", "0", "i > 0", True),
        ("last", "read(at(u, y))", "i < t", True),
        ("last", "0", "i < t", False),
        ("last", "read(u)", "i < t", False),  # leads to no tile
        ("read(at(u, i))", "0", "i < t", False),
        ("read(at(u, y + i))", "0", "i < t", False),
        ("read(at(u, y)) + i", "0", "i < t", False),
    ],
)
def test_what_is_loaded_where_the_table_leads(place: str, first: str, condition: str, apart: bool) -> None:
    """It is the tile's as long as nothing writes there."""
    behind = re.sub(r"\bi\b", "0", place)
    text = TILES.format(place=place, first=first, condition=condition, behind=behind)
    text = text.replace("y % 32", "read(at(u, y))").replace("p: ptr, t", "p: ptr, u: ptr, t")
    assert check(kernel(text), disjoint=Disjoint(frozenset({(0, 1)}), own=3)).ok == apart
    assert not check(kernel(text), disjoint=Disjoint(own=3)).ok
    assert not check(kernel(text), disjoint=Disjoint(every=True)).ok


WALKS = """
def kernel(p: ptr, n, m):
    with specialize():
        with task(4):
            x = {start}
            for i in range(0, m, {step}):
                for j in range({begin}, n, {stride}):
                    write(at(p, {one}), 1)
                    x = {next}
        with task(4):
            x = {start}
            for i in range(0, m, {step}):
                for j in range({begin}, n, {stride}):
                    write(at(p, {other}), 1)
                    x = {next}
"""


def _expression(draw: random.Random, depth: int) -> str:
    if depth == 0:
        return draw.choice(("i", "j", "x", "n", "m", "2", "3", "4", "8"))
    left, right = _expression(draw, depth - 1), _expression(draw, draw.randrange(depth))
    kinds = (
        "({0}) + ({1})",
        "({0}) * ({1})",
        "({0}) * 4",
        "smin({0}, {1})",
        "select({0} < {1}, {1}, {0})",
        "({0}) - ({1})",
    )
    return draw.choice(kinds).format(left, right)


def _touched(text: str, n: int, m: int) -> tuple[set[int], set[int]]:
    """The places that the two tasks of a script store to."""
    found: list[set[int]] = []

    class Task:
        def __enter__(self) -> None:
            found.append(set())

        def __exit__(self, *_: object) -> None: ...

    known = {
        "specialize": Task, "task": lambda _: Task(), "ptr": None, "at": lambda _, offset: offset, "smin": min,
        "write": lambda place, _: found[-1].add(place), "select": lambda which, yes, no: yes if which else no,
    }  # fmt: skip
    exec(text, known)
    known["kernel"](None, n, m)  # type: ignore[operator]
    return found[1], found[2]


def test_what_is_proved_apart_never_meets() -> None:
    proved = 0
    for seed in range(600):
        draw = random.Random(seed)
        place = _expression(draw, draw.randrange(3))
        constants = draw.sample(range(8), 2)
        text = WALKS.format(
            start=draw.choice(("0", "n", "2", "4")), step=draw.choice((1, 2, "n")), begin=draw.choice((0, "i", "x")),
            stride=draw.choice((1, 4, "n")), next=draw.choice(("x + 4", "x + n", "i * 8", "j + 2", "smin(x + 2, i)")),
            one=f"({place}) + {constants[0]}", other=f"({place}) + {constants[1]}",
        )  # fmt: skip
        if not check(divisible(kernel(text), 1, 4)).ok:
            continue
        proved += 1
        for n, m in itertools.product((4, 8, 12), (1, 2, 5)):
            one, other = _touched(text, n, m)
            assert not one & other, f"{seed}: {text}"
    assert proved > 50
