"""Rows that two tasks store, with masks and several strides, lie apart where a launch says that they do."""

from __future__ import annotations

import ast
import itertools
import operator
import random
import re

import numpy as np
import pytest

from tests.check.script import kernel
from wspec.check import check
from wspec.host_descriptors import lie_apart
from wspec.ir.rows import Apart, Dimension, Number

SIDE = np.arange(64)  # of what write_tile and its like store
GRID = (4, 2, 1)
PLACES = (
    "t // k",
    "t % k",
    "t // 3",
    "t % 6",
    "k",
    "t % k // 2",
    "pid(0)",
    "t",
    "t // n",
    "i",
    "n - t",
    "0 - t",
    "m",
    "c",
)
SUMS = ("({0}) + ({1})", "({0}) * 2 + {1}", "smin({0}, {1})", "({0}) * ({1})", "({0}) % ({1} + 1)", "({0}) - ({1})")
WALKS = ("range(pid(0), n, 4)", "range(0, ceildiv(n - pid(0), 4), 1)", "range(0, n, k)", "range(pid(0), n, k)")
PITCHES = (0, 1, 64, 100, 256, 1024, 8192, -1, -64, -256, -1000)


def number(draw: random.Random, depth: int) -> str:
    if depth == 0:
        return draw.choice(PLACES)
    return draw.choice(SUMS).format(number(draw, depth - 1), number(draw, draw.randrange(depth)))


def stores(draw: random.Random) -> tuple[str, str]:
    """Of two tasks."""
    row = f"({number(draw, draw.randrange(2))}) * {draw.choice((64, 128, 128, 128, 'n'))}"
    column = f"({number(draw, draw.randrange(2))}) * {draw.choice((1, 4, 64, 64, 'n', 'm', '(m * 64)'))}"
    pointer = draw.choice(("p", "p", f"at(p, {number(draw, 1)})", f"at(p, ({number(draw, 0)}) * c)"))
    pitch = draw.choice(("m", "m", "m", "m * 2", "m + c", "0 - m", "m * k"))
    far = draw.choice((64, 64, 63, -64, 128))
    if draw.randrange(3) == 0:
        more = draw.choice(
            ("", f", {number(draw, 0)}, c", f", {number(draw, 0)}, m * 2", f", {number(draw, 0)}, 0 - c")
        )
        each = (f"write_rows(at({pointer}, {column}), {one}, {pitch}{more})" for one in (row, f"{row} + {far}"))
    else:
        what = f"{draw.choice(('write_tile', 'write_tile_of_rows'))}({pointer}, "
        end = draw.choice(("c", "c", "n", "k", "smin(c, m)", "c - 64 * t", "c + t"))
        ends = end, draw.choice((end, end, "m"))
        second = draw.choice((f"{row} + {far}, {column}", f"{row} + {far}, {column} + c", f"{row}, {column} + {far}"))
        places = zip((f"{row}, {column}", second), ends, strict=True)
        each = (f"{what}{one}, {pitch}, {end})" for one, end in places)
    one, other = each
    return one, other


def script(draw: random.Random) -> str:
    """Two tasks that walk through tiles, maybe with a loop inside."""
    walk, is_nested = draw.choice(WALKS), draw.random() < 0.3
    lines = ["def kernel(p: ptr, n, m, k, c):", "    with specialize():"]
    for store in stores(draw):
        lines += ["        with task(4):", f"            for t in {walk}:"]
        if is_nested:
            lines += ["                for i in range(0, k, 1):", f"                    {store}"]
        else:
            lines.append("                " + re.sub(r"\bi\b", "t", store))
    return "\n".join(lines) + "\n"


class Truncated(ast.NodeTransformer):
    """Division as machines do it."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = {ast.FloorDiv: "quotient", ast.Mod: "rest"}.get(type(node.op))
        return node if name is None else ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


def quotient(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def meet(text: str, numbers: tuple[int, ...]) -> bool:
    """Do the two tasks of a block store to one place?"""
    tasks: list[set[int]] = []
    block = [0]

    class Task:
        def __enter__(self) -> None:
            tasks.append(set())

        def __exit__(self, *_: object) -> None: ...

    def write_rows(place: int, row: int, pitch: int, *more: int) -> None:
        tasks[-1].update(place + (row + SIDE) * pitch + sum(a * b for a, b in zip(more[::2], more[1::2], strict=True)))

    def write(axis: int, place: int, begin: tuple[int, int], pitch: int, end: int) -> None:
        rows, columns = begin[0] + SIDE[:, None], begin[1] + SIDE[None, :]
        inside = np.broadcast_to((rows, columns)[axis] < end, (64, 64))
        tasks[-1].update((place + rows * pitch + columns)[inside])

    known = {
        "specialize": Task, "task": lambda _: Task(), "ptr": None, "at": lambda place, by: place + by, "smin": min,
        "pid": lambda axis: (block[0], 1)[axis], "ceildiv": lambda left, right: -(-left // right), "quotient": quotient,
        "rest": lambda left, right: left - quotient(left, right) * right, "write_rows": write_rows,
        "write_tile": lambda place, row, column, *rest: write(1, place, (row, column), *rest),
        "write_tile_of_rows": lambda place, row, column, *rest: write(0, place, (row, column), *rest),
    }  # fmt: skip
    exec(compile(ast.fix_missing_locations(Truncated().visit(ast.parse(text))), "script", "exec"), known)
    for block[0] in range(GRID[0]):
        tasks.clear()
        known["kernel"](0, *numbers)  # type: ignore[operator]
        if tasks[1] & tasks[2]:
            return True
    return False


@pytest.mark.parametrize("first", [0, 200, *(pytest.param(one, marks=pytest.mark.slow) for one in (400, 600))])
def test_what_a_launch_says_lies_apart_does(first: int) -> None:
    """Pitches of nothing, of less than nothing, of two kinds of rows; and masks of rows, of columns, of one task."""
    held, met = 0, 0
    for seed in range(first, first + 200):
        draw = random.Random(seed)
        text = script(draw)
        report = check(kernel(text))
        if not report.ok:
            continue
        for _ in range(8):
            numbers = (draw.choice((5, 12, 23)), draw.choice(PITCHES), draw.choice((1, 2, 3, 7)),
                       draw.choice((0, 1, 64, 200, -200, 4096, 1000)))  # fmt: skip
            apart = all(lie_apart(one.apart, GRID, dict(enumerate((0, *numbers)))) for one in report.conditions)
            try:
                together = meet(text, numbers)
            except ZeroDivisionError:
                continue
            assert not (apart and together), f"{seed}: {numbers} {text}"
            held, met = held + apart, met + together
    assert held > 100 and met > 20


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_steps_between_two_numbers(first: int) -> None:
    """Whatever steps are between them, of whichever sign: no difference of coordinates makes up for one of rows."""
    held = 0
    for seed in range(first, first + 500):
        draw = random.Random(seed)
        lows = [draw.randrange(-9, 10) for _ in range(draw.choice((1, 2, 2, 3)))]
        known = [(low, low + draw.randrange(4)) for low in lows]
        reach = [draw.randrange(5) for _ in known]
        numbers = tuple(Number("argument", 64, (), at) for at in range(len(known)))
        dims = [Dimension(at, far) for at, far in enumerate(reach)]
        if not Apart(numbers, dims[0], tuple(dims[1:])).holds(known):
            continue
        held += 1
        ways = itertools.product(*(range(-far, far + 1) for far in reach))
        for by in filter(lambda one: one[0], ways):
            for steps in itertools.product(*(range(low, high + 1) for low, high in known)):
                assert sum(map(operator.mul, by, steps)), (seed, by, steps)
    assert held > 50
