"""What the tasks of a script do for given arguments: straight lists of events.

Reads the script's text and nothing else: neither the IR made of it nor the checker has a part in this. Knows what
`programs.py` writes; anything else is an error.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A buffer, one of a ring, or a barrier: the line of its allocation and the indices taken."""

    root: str
    path: tuple[int, ...] = ()

    def __getitem__(self, index: int) -> Part:
        return Part(self.root, (*self.path, index))

    def overlaps(self, other: Part) -> bool:
        return self.root == other.root and all(a == b for a, b in zip(self.path, other.path, strict=False))


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a task. `number` is the arrivals, bytes, parity, operations pending or tasks, whichever it has."""

    kind: str
    line: int
    part: Part | None = None
    barrier: Part | None = None
    number: int = 0
    others: tuple[Any, ...] = ()


@dataclass(slots=True)
class Run:
    """The events of all tasks; task 0 is the code around, with the default region in it."""

    tasks: list[list[Event]] = field(default_factory=lambda: [[]])
    warps: list[int] = field(default_factory=lambda: [4])


class Refused(Exception):
    """The script does something that is wrong in itself, whatever the schedule: an index outside a ring."""


def run(text: str, arguments: Mapping[str, int]) -> Run:
    """Execute a script. Raises Refused, or ValueError for what is not known here."""
    function = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(function, ast.FunctionDef)
    found = Run()
    _Interpreter(found, 0, dict(arguments), {}).statements(function.body)
    return found


class _Interpreter:
    def __init__(self, run: Run, task: int, env: dict[str, Any], depths: dict[str, int]) -> None:
        self.run, self.task, self.env, self.depths = run, task, env, depths

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for one in body:
            self.statement(one)

    def statement(self, one: ast.stmt) -> None:
        match one:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                found = [self.value(v) for v in values]
                self.env.update((ast.unparse(name), v) for name, v in zip(names, found, strict=True))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.env[name] = self.value(value)
            case ast.Expr(value=ast.Call() as call):
                self.value(call)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=body):
                for position in range(*[self.value(v) for v in bounds]):
                    self.env[name] = position
                    self.statements(body)
            case ast.If(test=test, body=then, orelse=other):
                self.statements(then if self.value(test) else other)
            case ast.With(body=body):
                self.specialize(one, body)
            case ast.Pass():
                pass
            case _:
                raise ValueError(ast.unparse(one))

    def specialize(self, node: ast.With, body: Sequence[ast.stmt]) -> None:
        tasks = [one for one in body if isinstance(one, ast.With)]
        numbers = [self.task, *range(len(self.run.tasks), len(self.run.tasks) + len(tasks) - 1)]
        self.event("fork", node, others=tuple(numbers[1:]))
        self.run.tasks += [[] for _ in numbers[1:]]
        for number, one in zip(numbers, tasks, strict=True):
            call = one.items[0].context_expr
            assert isinstance(call, ast.Call)
            if number != self.task:
                self.run.warps.append(ast.literal_eval(call.args[0]))
            _Interpreter(self.run, number, dict(self.env), self.depths).statements(one.body)
        self.event("join", node, others=tuple(numbers[1:]))

    def event(self, kind: str, node: ast.AST, *args: Any, **named: Any) -> None:
        self.run.tasks[self.task].append(Event(kind, getattr(node, "lineno", 0), *args, **named))

    # ---- expressions

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return self.call(name, node)
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.env[name]
            case ast.Subscript(value=whole, slice=index):
                return self.index(self.value(whole), self.value(index))
            case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right):
                return _divided(self.value(left), self.value(right), isinstance(op, ast.Mod))
            case ast.BinOp(left=left, op=op, right=right):
                return _evaluate(ast.BinOp(_known(self.value(left)), op, _known(self.value(right))))
            case ast.Compare(left=left, ops=ops, comparators=[right]):
                return _evaluate(ast.Compare(_known(self.value(left)), ops, [_known(self.value(right))]))
            case ast.BoolOp(op=op, values=parts):
                return _evaluate(ast.BoolOp(op, [_known(self.value(part)) for part in parts]))
            case ast.UnaryOp(op=op, operand=inner):
                return _evaluate(ast.UnaryOp(op, _known(self.value(inner))))
        raise ValueError(ast.unparse(node))

    def index(self, ring: Part, number: int) -> Part:
        if not ring.path and not 0 <= number < self.depths[ring.root]:
            raise Refused(f"{ring.root}[{number}]")
        return ring[number]

    def call(self, name: str, node: ast.Call) -> Any:
        args = [self.value(v) for v in node.args]
        named = {word.arg: self.value(word.value) for word in node.keywords}
        if not named.pop("pred", True):
            return None
        match name:
            case "buffer" | "barriers":
                root = f"{name} {node.lineno}:{node.col_offset}"
                self.depths[root] = args[0]
                for slot in range(args[0] if name == "barriers" else 0):
                    self.event("init", node, None, Part(root)[slot], args[1] if len(args) > 1 else 1)
                return Part(root)
            case "select":
                return args[1] if args[0] else args[2]
            case "smin" | "smax":
                return min(args) if name == "smin" else max(args)
            case "zeros":
                return None
            case "wait":
                self.event("wait", node, None, args[0], args[1] & 1)
            case "arrive":
                self.event("arrive", node, None, args[0], args[1] if len(args) > 1 else 1)
            case "expect":
                self.event("expect", node, None, args[0], args[1])
            case "copy":
                self.event("copy", node, args[0], args[1], 8192)
            case "load" | "store" | "tma_store":
                self.event(name, node, args[0])
            case "dot":
                self.event("dot", node, others=tuple(args[:2]))
            case "dot_wait" | "store_wait":
                self.event(name, node, number=args[0])
            case "fence":
                self.event("fence", node)
            case "bar_sync" | "bar_arrive":
                self.event(name, node, None, Part(f"named {args[0]}"), args[1])
            case _:
                raise ValueError(name)
        return None


def _divided(left: int, right: int, rest: bool) -> int:
    """Division as the machine does it: towards zero."""
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left - quotient * right if rest else quotient


def _known(value: Any) -> ast.expr:
    return ast.Constant(value)


def _evaluate(node: ast.expr) -> Any:
    return eval(compile(ast.fix_missing_locations(ast.Expression(node)), "script", "eval"))
