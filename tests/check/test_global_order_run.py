"""Two tasks that touch one argument's memory: what the checker proves is run, and nothing may be a race there.

Kernels are drawn: loops in loops, places that are computed from their positions, from what they carry and from
arguments, under conditions and their opposites, loads, stores and atomic additions.
"""

from __future__ import annotations

import random

import torch

from tests.check.script import kernel
from wspec.check import check
from wspec.execute import Kernel, ProgramError
from wspec.ir.disjoint import EVERY

SIZES = ((1, 1), (2, 3), (5, 2), (4, 4))
MEMORY = 40_000


def place(draw: random.Random, depth: int, names: tuple[str, ...]) -> str:
    """A number that is not negative."""
    if depth == 0:
        return draw.choice((*names, "n", "m", "2", "4", "1"))
    left, right = place(draw, depth - 1, names), place(draw, draw.randrange(depth), names)
    ways = ("{0} + {1}", "{0} + {1}", "({0}) * ({1})", "({0}) * 4", "smin({0}, {1})", "select({0} < {1}, {1}, {0})")
    return draw.choice(ways).format(left, right)


def condition(draw: random.Random, names: tuple[str, ...]) -> str:
    left, right = draw.choice(("n", "m", *names)), draw.choice(("1", "2", "n", "m", *names))
    return draw.choice(("{0} < {1}", "{0} > {1}", "{0} == {1}", "read(q) < {1}")).format(left, right)


def task(draw: random.Random, shape: random.Random, offset: int) -> str:
    """`shape` is drawn from where both tasks are alike."""
    lines, deep, names = [f"x = {shape.choice(('0', '1', 'n', '2'))}"], "", tuple[str, ...]()
    for name in ("i", "j")[: shape.randrange(3)]:
        begin, end, step = (shape.choice(ways) for ways in (("0", "0", "1"), ("n", "m", "read(q)", "4"), (1, 1, 2, 4)))
        lines.append(f"{deep}for {name} in range({begin}, {end}, {step}):")
        deep, names = deep + "    ", (*names, name)
    names = (*names, "x") if names else ()

    def access(where: str) -> str:
        at = f"at(p, {where} + {offset})"
        return draw.choice((f"write({at}, 1)", f"write({at}, 1)", f"read({at})", f"add({at}, 1)"))

    where = f"({place(shape, shape.randrange(3), names)})"
    if shape.random() < 0.5:
        lines.append(f"{deep}if {condition(shape, names)}:")
        opposite = draw.random() < 0.5
        lines += [f"{deep}    pass", f"{deep}else:"] if opposite else []
        lines.append(f"{deep}    {access(where)}")
    else:
        lines.append(f"{deep}{access(where)}")
    if names:
        lines.append(f"{deep}x = {shape.choice(('x + 4', 'x + n', 'i * 4', 'smin(x + 2, i)'))}")
        lines += [access("x")] if shape.random() < 0.4 else []
    lines += [f"write(at(q, {draw.choice('01')}), 1)"] if draw.random() < 0.1 else []
    return "\n".join(f"            {line}" for line in lines)


def drawn(seed: int) -> str:
    draw = random.Random(seed)
    shapes = (seed, seed) if draw.random() < 0.8 else (seed, -seed)
    tasks = (f"        with task(4):\n{task(draw, random.Random(one), draw.randrange(6))}" for one in shapes)
    return "\n".join(["def kernel(p: ptr, q: ptr, n, m):", "    with specialize():", *tasks]) + "\n"


def race(text: str) -> str:
    """What is wrong with a kernel, run with several sizes; nothing if that is so."""
    runs = Kernel(kernel(text))
    for n, m in SIZES:
        for count in (0, 3):
            memory, counts = torch.zeros(MEMORY, dtype=torch.int32), torch.tensor([count, 2], dtype=torch.int32)
            try:
                runs.run(1, [memory, counts, n, m])
            except ProgramError as error:
                return str(error)
    return ""


def test_what_is_proved_runs_without_a_race() -> None:
    proved = wrong = 0
    for seed in range(250):
        text = drawn(seed)
        if check(kernel(text), limit_s=5, disjoint=EVERY).ok:
            proved += 1
            assert not race(text), f"{seed}: {text}"
        elif seed % 10 == 0:
            wrong += race(text) != ""
    assert proved > 60 and wrong > 3, (proved, wrong)
