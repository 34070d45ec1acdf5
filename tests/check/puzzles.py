"""Random loops and conditions around one operation that must not be reached: a wait for what never comes.

Whether it is reached for some arguments is found by running the script as the Python that it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from tests.check.programs import Pick

_CONSTANTS = (-3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 9)
_UPDATES = ("{c} + 1", "{c} - 1", "{c} + 2", "smin({c} + 1, 6)", "smax({c} - 1, 0)", "select({c} == 4, 0, {c} + 1)",
            "({c} + 1) % 3", "{c} ^ 1")  # fmt: skip
_FORMS = ("{x}", "{x}", "{x}", "{x} + {n}", "{x} + {n}", "{x} * 2", "{x} * -1", "{x} - {y}", "{x} + {y}", "{x} % 3",
          "{x} // 2")  # fmt: skip
_COMPARISONS = ("<", "<=", ">", ">=", "<", ">", "==", "!=")


class Puzzle:
    """The lines of a script."""

    def __init__(self, pick: Pick) -> None:
        self._pick = pick
        self._names = 0
        self.lines = ["def kernel(n, m):", "    never = barriers(1)"]
        self._block(1, ["n", "m"], 0)
        self._guarded(1, ["n", "m"])

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _block(self, indent: int, scope: Sequence[str], depth: int) -> None:
        for _ in range(self._pick((1, 1, 2, 2))):
            kind = self._pick(("loop", "loop", "if", "if", "wait"))
            if kind == "loop" and depth < 2:
                self._loop(indent, scope, depth)
            elif kind == "if" and depth < 3:
                self._put(indent, f"if {self._condition(scope)}:")
                self._block(indent + 1, scope, depth + 1)
            else:
                self._guarded(indent, scope)

    def _loop(self, indent: int, scope: Sequence[str], depth: int) -> None:
        pick, inner = self._pick, [*scope, self._name("i")]
        lower = pick(("0", "0", "0", "1", "2", pick(scope)))
        upper = pick(("n", "n", "m", "n - 1", "n + 2", "3", "30", self._form(scope)))
        counter = self._name("c") if pick((False, True)) else None
        if counter is not None:
            self._put(indent, f"{counter} = {pick((0, 0, 1, 5, 12))}")
        self._put(indent, f"for {inner[-1]} in range({lower}, {upper}, {pick((1, 1, 1, 2, 3))}):")
        self._block(indent + 1, [*inner, counter] if counter is not None else inner, depth + 1)
        if counter is not None:
            self._put(indent + 1, f"{counter} = {pick(_UPDATES).format(c=counter)}")

    def _guarded(self, indent: int, scope: Sequence[str]) -> None:
        self._put(indent, f"if {self._condition(scope)}:", "    wait(never[0], 0)")

    def _condition(self, scope: Sequence[str]) -> str:
        right = self._pick((str(self._pick(_CONSTANTS)), self._form(scope)))
        found = f"{self._form(scope)} {self._pick(_COMPARISONS)} {right}"
        return f"not ({found})" if self._pick((False,) * 6 + (True,)) else found

    def _form(self, scope: Sequence[str]) -> str:
        form = self._pick(_FORMS)
        return form.format(x=self._pick(scope), y=self._pick(scope), n=self._pick(_CONSTANTS))

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _put(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * indent + line for line in lines]


class _Reached(Exception):
    pass


class _Machine(ast.NodeTransformer):
    """Division as the machine does it."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        names = {ast.FloorDiv: "divide", ast.Mod: "remainder"}
        if type(node.op) not in names:
            return node
        return ast.Call(ast.Name(names[type(node.op)], ast.Load()), [node.left, node.right], [])


def reached(text: str, values: Iterable[int]) -> tuple[int, int] | None:
    """Arguments, of some values, for which the wait is reached."""
    run, values = _function(text), list(values)
    for n in values:
        for m in values:
            try:
                run(n, m)
            except _Reached:
                return n, m
    return None


def _function(text: str) -> Callable[[int, int], None]:
    def wait(*_: object) -> None:
        raise _Reached

    def divide(left: int, right: int) -> int:
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient

    env: dict[str, object] = {
        "wait": wait,
        "divide": divide,
        "remainder": lambda left, right: left - right * divide(left, right),
        "barriers": lambda _: [0],
        "smin": min,
        "smax": max,
        "select": lambda flag, yes, no: yes if flag else no,
    }
    tree = ast.fix_missing_locations(_Machine().visit(ast.parse(text)))
    exec(compile(tree, "puzzle", "exec"), env)
    found = env["kernel"]
    assert callable(found)
    return lambda n, m: found(n, m)
