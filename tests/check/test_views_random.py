"""Two tasks that touch one buffer through views of it, without an order: the checker against the elements themselves.

Views are drawn: slots, parts of rings and of tiles, turned ones, ones seen in another shape, and these of each other.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np

from tests.check.script import kernel
from wspec.check import check

DEPTH, SIZE = 3, 64
SHAPE = """
def kernel(n):
    b = buffer({depth}, {size}, {size})
    for k in range(0, {depth}, 1):
        store(b[k])
    with specialize():
        with task(4):
            {loop}
                {one}
        with task(4):
            {loop}
                {other}
"""


def view(draw: random.Random) -> tuple[str, Any]:
    """A view as a script, and the numbers of its elements."""
    text, elements = "b", np.arange(DEPTH * SIZE * SIZE).reshape(DEPTH, SIZE, SIZE)
    if draw.random() < 0.3:
        first = draw.randrange(DEPTH)
        count = draw.randrange(1, DEPTH - first + 1)
        text, elements = f"part(b, ({first}, 0, 0), ({count}, {SIZE}, {SIZE}))", elements[first : first + count]
    slot = draw.randrange(len(elements))
    text, elements = f"{text}[{slot}]", elements[slot]
    for _ in range(draw.randrange(4)):
        rows, columns = elements.shape
        kind = draw.choice(("part", "part", "turned", "shape"))
        if kind == "part" and min(rows, columns) >= 32:
            size = draw.choice((rows, rows // 2)), draw.choice((columns, columns // 2))
            at = tuple(
                draw.randrange(0, whole - part + 1, 16) for whole, part in zip(elements.shape, size, strict=True)
            )
            text = f"part({text}, {at}, {size})"
            elements = elements[at[0] : at[0] + size[0], at[1] : at[1] + size[1]]
        elif kind == "turned":
            text, elements = f"trans({text})", elements.T
        elif kind == "shape" and elements.size >= 1024:
            height = draw.choice((16, 32, 64))
            text = f"reinterpret({text}, {height}, {elements.size // height})"
            elements = elements.reshape(height, -1)
    return text, elements


def test_views_that_meet_are_seen_to() -> None:
    """And those that do not are no error: at most which bytes it is about is not known."""
    counts: Counter[tuple[bool, str]] = Counter()
    for seed in range(400):
        draw = random.Random(seed)
        (one, first), (other, second) = view(draw), view(draw)
        kinds = draw.choice((("store", "load"), ("load", "store"), ("store", "store")))
        loop = draw.choice(("for i in range(0, n, 1):", "if n > 0:"))
        text = SHAPE.format(depth=DEPTH, size=SIZE, loop=loop, one=f"{kinds[0]}({one})", other=f"{kinds[1]}({other})")
        report = check(kernel(text), limit_s=5)
        meet = bool(np.intersect1d(first, second).size)
        counts[meet, "ok" if report.ok else "error" if report.errors else "undecided"] += 1
        assert not (meet and report.ok), f"{seed}: {text}"
        assert meet or not report.errors, f"{seed}: {text}\n{report}"
    assert min(counts[True, "error"], counts[False, "ok"]) > 50, counts
    assert counts[True, "undecided"] + counts[False, "undecided"] < 100, counts
