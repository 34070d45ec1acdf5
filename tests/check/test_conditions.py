"""Terms of scalars, and conditions on them: equal where the values are, true where the comparison is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.check.script import kernel
from wspec.check import code as c
from wspec.check import conditions
from wspec.check.conditions import Condition, Extents
from wspec.check.linear import Linear, Terms
from wspec.check.translate import translate
from wspec.ir import read
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.disjoint import NONE

# ------------------------------------------------------------------------------------------------------- terms


def _pair(text: str) -> tuple[Linear, Linear]:
    """The terms of what the first two operations `pair` of a script look at: two operands, or one of each."""
    module = kernel(text)
    terms = Terms()
    for op in module.walk():
        if op.name == ws.NAME:
            for block in ws.partition_blocks(op):
                terms.capture(block, op.operands)
    found = [terms.of(value) for op in module.walk() if op.name == "pair" for value in op.operands]
    assert len(found) == 2
    return found[0], found[1]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("n + 1 + m", "m + n + 1"),
        ("2 * n - n", "n"),
        ("n - n", "0"),
        ("(n + m) * 3", "3 * m + 3 * n"),
        ("n << 3", "8 * n"),
        ("n * m", "n * m"),
        ("n // 64", "n // 64"),
        ("read(p)", "read(p)"),
        ("pid(0) * 128", "128 * pid(0)"),
        ("select(n < m, n, m)", "select(n < m, n, m)"),
        ("(n + 63) // 64 * 64", "64 * ((63 + n) // 64)"),
    ],
)
def test_equal_values_have_equal_terms(left: str, right: str) -> None:
    one, other = _pair(f'def kernel(n, m, p: ptr):\n    op("pair", {left}, {right})\n')
    assert one == other


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("n", "m"),
        ("n + 1", "n"),
        ("n // 64", "n // 32"),
        ("n % 2", "n // 2"),
        ("read(p)", "read(q)"),
        ("pid(0)", "pid(1)"),
        ("select(n < m, n, m)", "select(n < m, m, n)"),
        ("extsi(f)", "extui(f)"),
        ("n * m", "n + m"),
    ],
)
def test_what_may_differ_has_other_terms(left: str, right: str) -> None:
    one, other = _pair(f'def kernel(n, m, p: ptr, q: ptr, f: i1):\n    op("pair", {left}, {right})\n')
    assert one != other


def _in_two_tasks(first: str, second: str) -> str:
    """Each of two tasks runs its lines, which end with a `pair`."""
    tasks = [f"        with task(4):\n{_indented(lines)}" for lines in (first, second)]
    return "def kernel(n, m, p: ptr):\n    with specialize():\n" + "".join(tasks)


def _indented(lines: str) -> str:
    return "".join(f"            {line}\n" for line in lines.split("\n"))


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ('op("pair", n * 2)', 'op("pair", n + n)', True),
        ('for i in range(0, n, 1):\n    op("pair", i)', 'for i in range(0, n, 1):\n    op("pair", i)', True),
        ('for i in range(0, n, 1):\n    op("pair", i)', 'for i in range(1, n, 1):\n    op("pair", i)', False),
        ('for i in range(0, n, 1):\n    op("pair", i)', 'for i in range(0, n, 2):\n    op("pair", i)', False),
        ('for i in range(0, n, 1):\n    op("pair", i)', 'for i in range(0, m, 1):\n    op("pair", i)', True),
        (
            'x = n\nfor i in range(0, n, 1):\n    op("pair", x)\n    x = x * m',
            'y = n\nfor i in range(0, n, 1):\n    op("pair", y)\n    y = y * m',
            True,
        ),
        (
            'x = n\nfor i in range(0, n, 1):\n    op("pair", x)\n    x = x * m',
            'y = m\nfor i in range(0, n, 1):\n    op("pair", y)\n    y = y * m',
            False,
        ),
        (
            'x = n\nfor i in range(0, n, 1):\n    op("pair", x)\n    x = x * m',
            'y = n\nfor i in range(0, n, 1):\n    op("pair", y)\n    y = m * n',
            False,
        ),
        (
            'x = n\nfor i in range(0, n, 1):\n    x = x * m\nop("pair", x)',
            'x = n\nfor i in range(0, n, 1):\n    x = x * m\nop("pair", x)',
            True,
        ),
        (
            'x = n\nfor i in range(0, n, 1):\n    x = x * m\nop("pair", x)',
            'x = n\nfor i in range(0, m, 1):\n    x = x * m\nop("pair", x)',
            False,
        ),
    ],
)
def test_terms_across_tasks(first: str, second: str, equal: bool) -> None:
    one, other = _pair(_in_two_tasks(first, second))
    assert (one == other) == equal


def _nested(body: str) -> str:
    return f'x = n\nfor i in range(0, n, 1):\n    op("pair", x)\n{_indented(body).replace("            ", "    ")}'


INNER = "for j in range(0, x, 1):\n    x = x + m"
CHOICE = "if read(p) + i < m:\n    x = x + 1\nelse:\n    x = x * m"


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (INNER, INNER, True),
        (INNER, INNER.replace("range(0, x", "range(0, m"), False),
        (INNER, INNER.replace("range(0, x", "range(1, x"), False),
        (INNER, INNER.replace("+ m", "+ j"), False),
        (INNER.replace("+ m", "+ j"), INNER.replace("+ m", "+ i"), False),
        (CHOICE, CHOICE, True),
        (CHOICE, CHOICE.replace("< m", "< n"), False),
        (CHOICE, CHOICE.replace("+ 1", "+ 2"), False),
        (CHOICE, CHOICE.replace("+ i", "- i"), False),
        (f"{CHOICE}\n{INNER}", f"{CHOICE}\n{INNER}", True),
        (f"{CHOICE}\n{INNER}", f"{INNER}\n{CHOICE}", False),
    ],
)
def test_terms_of_what_goes_through_inner_loops_and_branches(first: str, second: str, equal: bool) -> None:
    one, other = _pair(_in_two_tasks(_nested(first), _nested(second)))
    assert (one == other) == equal


def test_what_nobody_knows_differs_from_itself_elsewhere() -> None:
    """The results of two operations without a row are two values."""
    text = 'def kernel(n):\n    while n < 3:\n        pass\n    op("pair", warp_id(), warp_id() + 0)\n'
    one, other = _pair(text)
    assert one == other  # the same thread asks
    assert one.terms


# -------------------------------------------------------------------------------------------------- conditions


def _branches(text: str) -> tuple[list[tuple[Condition, Operation]], Extents]:
    module = kernel(text)
    function = next(op for op in module.walk() if op.name == "tt.func")
    program, extents = translate(module, function, NONE)
    steps = [step for code in program.codes for step in code.steps]
    return [(step.condition, step.op) for step in steps if isinstance(step, c.Branch)], extents


def _holds(condition: Condition, extents: Extents, n: int, k: int) -> bool:
    """A condition in iteration k of the only loop of a kernel with the one argument n."""
    match condition:
        case conditions.Always(value=value):
            return value
        case conditions.Not(inner=inner):
            return not _holds(inner, extents, n, k)
        case conditions.Both(left=left, right=right):
            return _holds(left, extents, n, k) and _holds(right, extents, n, k)
        case conditions.Either(left=left, right=right):
            return _holds(left, extents, n, k) or _holds(right, extents, n, k)
        case conditions.Reached(above=above):
            return k > above
        case conditions.Threshold(extent=number, above=above, space=space):
            extent = extents.extents[number]
            assert extent.step is not None
            length = sum(factor for _, factor in extent.terms) * n + extent.rest
            return -(-length // extent.step) - (k if space is not None else 0) > above
    raise AssertionError(f"not decided by n and the iteration: {condition}")


def _comparisons() -> Iterator[str]:
    forms = ("i < {c}", "i <= {c}", "i > {c}", "i >= {c}", "{c} < i", "i * 2 < {c}", "-1 * i > {c}", "3 - i > {c}",
             "i == {c}", "i != {c}", "not (i < {c})", "i > 1 and i < {c}", "i < 1 or i > {c}")  # fmt: skip
    for form, number in itertools.product(forms, (-3, -1, 0, 1, 4)):
        yield form.format(c=number)


@pytest.mark.parametrize("comparison", _comparisons())
def test_conditions_on_the_iteration_hold_when_the_comparison_does(comparison: str) -> None:
    branches, extents = _branches(_loop("0, n, 1", comparison))
    for k in range(8):
        assert _holds(branches[0][0], extents, 100, k) == eval(comparison, {"i": k}), k


@pytest.mark.parametrize("bounds", ["0, n, 1", "0, n, 2", "1, n, 3", "0, n - 1, 1", "2, n + 5, 2"])
@pytest.mark.parametrize("comparison", ["i + {s} < n", "i + 2 * {s} < n", "n > i", "n - {s} <= i", "i >= n - {s}"])
def test_conditions_on_what_is_left_hold_when_the_comparison_does(bounds: str, comparison: str) -> None:
    lower, _, step = (eval(part, {"n": 0}) for part in bounds.split(","))
    comparison = comparison.format(s=step)
    branches, extents = _branches(_loop(bounds, comparison))
    for n, k in itertools.product(range(12), range(8)):
        position = lower + step * k
        try:
            found = _holds(branches[0][0], extents, n, k)
        except AssertionError:  # the bounds differ by no whole number of steps: a free choice, which is allowed
            return
        assert found == eval(comparison, {"i": position, "n": n}), (n, k)


@pytest.mark.parametrize("comparison", ["n > 0", "n > 2", "n >= 2", "0 < n", "n < 3", "not (n <= 1)"])
def test_conditions_on_the_length_hold_when_the_comparison_does(comparison: str) -> None:
    text = f"def kernel(n):\n    tile = buffer(64, 64)\n    if {comparison}:\n        store(tile)\n"
    branches, extents = _branches(text + "    for i in range(0, n, 1):\n        store(tile)\n")
    for n in range(-3, 8):
        assert _holds(branches[0][0], extents, n, 0) == eval(comparison, {"n": n}), n


@pytest.mark.parametrize(
    "comparison", ["n * n > 3", "n % 3 == 1", "i % 2 == 0", "read(p) > i", "ult(i, n)", "n == 2 * i"]
)
def test_other_conditions_are_choices(comparison: str) -> None:
    """What nothing decides is free; the same question is the same choice."""
    lines = _loop("0, n, 1", comparison, comparison, arguments="n, p: ptr")
    branches, _ = _branches(lines)
    first, second = (condition for condition, _ in branches)
    assert isinstance(first, conditions.Choice)
    assert first == second


def test_a_choice_depends_on_the_loops_its_terms_change_with() -> None:
    text = _loop("0, n, 1", "m % 3 == 1", "(m + i) % 3 == 1", arguments="n, m")
    (outside, _), (inside, _) = _branches(text)[0]
    assert isinstance(outside, conditions.Choice) and isinstance(inside, conditions.Choice)
    assert outside.chain == ()
    assert len(inside.chain) == 1


def _loop(bounds: str, *comparisons: str, arguments: str = "n") -> str:
    lines = [f"def kernel({arguments}):", "    tile = buffer(64, 64)", f"    for i in range({bounds}):"]
    for one in comparisons:
        lines += [f"        if {one}:", "            store(tile)"]
    return "\n".join(lines) + "\n"


# -------------------------------------------------------------------------------------------------- reductions

LAYOUT = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [WARPS], order = [0]}>"
REDUCED = """
"builtin.module"() ({
"tt.func"() <{function_type = (i32, i32) -> (), sym_name = "sums"}> ({
^bb0(%n: i32, %m: i32):
  %r0 = "tt.make_range"() <{end = END : i32, start = 0 : i32}> : () -> tensor<SIZExTYPE, LAYOUT>
  %s0 = "tt.splat"(%ARG) : (i32) -> tensor<SIZExTYPE, LAYOUT>
  %v0 = "arith.WITH"(%r0, %s0) : (tensor<SIZExTYPE, LAYOUT>, tensor<SIZExTYPE, LAYOUT>) -> tensor<SIZExTYPE, LAYOUT>
  %out = "tt.reduce"(%v0) <{axis = 0 : i32}> ({
  ^bb0(%a: TYPE, %b: TYPE):
    %c = "arith.BODY"(%a, %b) : (TYPE, TYPE) -> TYPE
    "tt.reduce.return"(%c) : (TYPE) -> ()
  }) : (tensor<SIZExTYPE, LAYOUT>) -> TYPE
  "tt.return"() : () -> ()
}) : () -> ()
}) {"ttg.num-warps" = 4 : i32} : () -> ()
"""
USUAL = {"ARG": "n", "BODY": "maxsi", "WITH": "andi", "SIZE": "128", "END": "128", "WARPS": "4", "TYPE": "i32"}


def _reduced(terms: Terms, **changes: str) -> Linear:
    text = REDUCED.replace("LAYOUT", LAYOUT)
    for name, word in {**USUAL, **changes}.items():
        text = text.replace(name, word)
    op = next(op for op in read(text).walk() if op.name == "tt.reduce")
    return terms.of(op.result)


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({}, True),
        ({"WARPS": "1"}, True),
        ({"ARG": "m"}, False),
        ({"BODY": "minsi"}, False),
        ({"WITH": "ori"}, False),
        ({"SIZE": "64", "END": "64"}, False),
    ],
)
def test_terms_of_reductions(changes: dict[str, str], equal: bool) -> None:
    terms = Terms()
    assert (_reduced(terms) == _reduced(terms, **changes)) == equal
