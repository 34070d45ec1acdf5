"""Small kernels of tasks, buffers and barriers as scripts, for tests: from a Python-like text to TTGIR.

    def kernel(n):
        tile, full, empty = buffer(2, 64, 64), barriers(2), barriers(2)
        with specialize():
            with task(4):                                       # the default region
                for i in range(0, n, 1):
                    wait(full[i % 2], i // 2 & 1)
                    load(tile[i % 2])
                    arrive(empty[i % 2])
            with task(1):                                       # a partition of one warp
                for i in range(0, n, 1):
                    wait(empty[i % 2], i // 2 + 1 & 1)
                    expect(full[i % 2], 8192)
                    copy(tile[i % 2], full[i % 2])

Numbers and arguments are i32 unless annotated (`flag: i1`, `p: ptr`). Assignments inside loops and conditionals become
carried values and results. Every operation has the line and column of its call as its location. What can be called is
in `calls.py`.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Sequence

from tests.check.calls import ARGUMENTS, CALLS, Calls
from wspec.ir import Builder
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import FileLoc, NameLoc, file_loc
from wspec.ir.types import I1, I32, DenseArrayAttr, FunctionType, StringAttr, TypeAttr, i32
from wspec.ir.verify import check_valid

_BINARY = {
    ast.Add: "arith.addi",
    ast.Sub: "arith.subi",
    ast.Mult: "arith.muli",
    ast.FloorDiv: "arith.divsi",
    ast.Mod: "arith.remsi",
    ast.BitAnd: "arith.andi",
    ast.BitOr: "arith.ori",
    ast.BitXor: "arith.xori",
    ast.LShift: "arith.shli",
    ast.RShift: "arith.shrsi",
}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}


def kernel(text: str, name: str = "script", warps: int = 4, line: int = 1) -> Operation:
    """The module of a script, which begins at a line of the file `name`; it is valid.

    Raises SyntaxError where the script says something unknown.
    """
    tree = ast.parse(textwrap.dedent(text))
    function = tree.body[0]
    if len(tree.body) != 1 or not isinstance(function, ast.FunctionDef):
        raise SyntaxError("a script is one function")
    module = _Compiler(name, line - 1).module(function, warps)
    check_valid(module)
    return module


class _Compiler:
    def __init__(self, name: str, before: int) -> None:
        self.name, self.before = name, before
        self.env: dict[str, Value] = {}

    def module(self, function: ast.FunctionDef, warps: int) -> Operation:
        body, outer = Region(), Region()
        self.entry = body.add_block()
        for argument in function.args.args:
            kind = ast.unparse(argument.annotation) if argument.annotation is not None else "i32"
            self.env[argument.arg] = self.entry.add_arg(ARGUMENTS[kind])
        self.at(self.entry)
        self.statements(function.body)
        self.builder.create("tt.return")
        type = FunctionType(tuple(arg.type for arg in self.entry.args), ())
        properties = {"function_type": TypeAttr(type), "sym_name": StringAttr(function.name)}
        outer.add_block().append(Operation.create("tt.func", properties=properties, regions=[body]))
        return Operation.create("builtin.module", attributes={"ttg.num-warps": i32(warps)}, regions=[outer])

    def at(self, block: Block) -> None:
        self.builder = Builder(block)
        self.calls = Calls(self.builder, self.entry)

    def locate(self, node: ast.expr | ast.stmt) -> None:
        self.builder.location = FileLoc(self.name, node.lineno + self.before, node.col_offset + 1)

    # ---- statements

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for one in body:
            self.locate(one)
            self.statement(one)

    def statement(self, one: ast.stmt) -> None:
        match one:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                values = [self.value(v) for v in value.elts] if isinstance(value, ast.Tuple) else self.call(value)
                self.bind([name.id for name in names if isinstance(name, ast.Name)], values)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.bind([name], [self.value(value)])
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self.env[name] = self.builder.binary(_BINARY[type(op)], self.env[name], self.value(value))
            case ast.Expr(value=ast.Call() as value):
                self.call(value)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=body):
                self.loop(name, [self.value(v) for v in bounds], body)
            case ast.While(test=test, body=body):
                self.endless(test, body)
            case ast.If(test=test, body=then, orelse=other):
                self.conditional(self.value(test), then, other)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=body):
                self.specialize(call, body)
            case ast.Pass():
                pass
            case _:
                raise SyntaxError(f"{self.name}:{one.lineno}: {ast.unparse(one)}")

    def bind(self, names: Sequence[str], values: Sequence[Value]) -> None:
        for name, value in zip(names, values, strict=True):
            self.env[name] = value
            if value.op is not None and value.op.name == "ttg.local_alloc":  # what messages call it
                shown = names[0] if name in ("full", "empty") else name.removesuffix("_full").removesuffix("_empty")
                value.op.location = NameLoc(shown, file_loc(value.op.location))

    def inside(self, block: Block, body: Callable[[], Sequence[Value]], end: str) -> list[Value]:
        """Fill a block with what `body` does, ended by an operation that takes the values it returns."""
        before, env, location = self.builder, self.env, self.builder.location
        self.env = dict(env)
        self.at(block)
        self.builder.location = location
        results = list(body())
        self.builder.location = location
        self.builder.create(end, results)
        self.env = env
        self.builder = before
        self.calls = Calls(before, self.entry)
        self.builder.location = location
        return results

    def loop(self, name: str, bounds: list[Value], body: list[ast.stmt]) -> None:
        carried = [one for one in _assigned(body) if one in self.env]
        first = [self.env[one] for one in carried]
        region = Region()
        block = region.add_block()
        position, *taken = [block.add_arg(v.type) for v in (bounds[0], *first)]

        def filled() -> list[Value]:
            self.bind([name, *carried], [position, *taken])
            self.statements(body)
            return [self.env[one] for one in carried]

        self.inside(block, filled, "scf.yield")
        loop = self.builder.create("scf.for", [*bounds, *first], [v.type for v in first], regions=[region])
        self.bind(carried, loop.results)

    def endless(self, test: ast.expr, body: list[ast.stmt]) -> None:
        """A `while` that carries nothing."""
        regions = [Region(), Region()]
        blocks = [region.add_block() for region in regions]
        self.inside(blocks[0], lambda: [self.value(test)], "scf.condition")
        self.arm(blocks[1], [], body)
        self.builder.create("scf.while", regions=regions)

    def conditional(self, condition: Value, then: list[ast.stmt], other: list[ast.stmt]) -> None:
        names = [one for one in _assigned([*then, *other]) if one in self.env]
        regions = [Region(), Region()]
        arms = zip(regions, (then, other), strict=True)
        results = [self.arm(region.add_block(), names, body) for region, body in arms]
        if not names and not other:
            regions[1].blocks.clear()
        op = self.builder.create("scf.if", [condition], [v.type for v in results[0]], regions=regions)
        self.bind(names, op.results)

    def arm(self, block: Block, names: list[str], body: list[ast.stmt], end: str = "scf.yield") -> list[Value]:
        """Fill a block with statements; it hands on what some names then mean."""

        def filled() -> list[Value]:
            self.statements(body)
            return [self.env[one] for one in names]

        return self.inside(block, filled, end)

    def specialize(self, call: ast.Call, body: list[ast.stmt]) -> None:
        options = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        warps, regions = [], []
        for one in body:
            if not isinstance(one, ast.With) or not isinstance(task := one.items[0].context_expr, ast.Call):
                raise SyntaxError(f"{self.name}:{one.lineno}: a specialize holds tasks")
            warps.append(ast.literal_eval(task.args[0]))
            regions.append(Region())
            end = "ttg.warp_return" if len(regions) > 1 else "ttg.warp_yield"
            self.arm(regions[-1].add_block(), [], one.body, end)
        op = ws.create(regions[0], regions[1:], warps[1:], self.builder.location)
        if "registers" in options:
            op.properties["requestedRegisters"] = DenseArrayAttr(I32, tuple(options["registers"]))
        ws.capture_free_values(op)
        self.builder.add(op)

    # ---- expressions

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool(number)):
                return self.builder.constant(int(number), I1)
            case ast.Constant(value=int(number)):
                return self.builder.constant(number)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
                return self.builder.constant(-number)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.builder.binary("arith.xori", self.value(inner), self.builder.constant(1, I1))
            case ast.Name(id=name):
                if name not in self.env:
                    raise SyntaxError(f"{self.name}:{node.lineno}: nothing is called {name}")
                return self.env[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self.builder.binary(_BINARY[type(op)], self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.builder.compare(_COMPARE[type(op)], self.value(left), self.value(right))
            case ast.BoolOp(op=kind, values=parts):
                found = self.value(parts[0])
                for part in parts[1:]:
                    name = "arith.andi" if isinstance(kind, ast.And) else "arith.ori"
                    found = self.builder.binary(name, found, self.value(part))
                return found
            case ast.Subscript(value=whole, slice=index):
                return self.calls.index(self.value(whole), self.value(index))
            case ast.Call():
                (found,) = self.call(node)
                return found
        raise SyntaxError(f"{self.name}:{node.lineno}: {ast.unparse(node)}")

    def call(self, node: ast.expr) -> list[Value]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in CALLS:
            raise SyntaxError(f"{self.name}:{node.lineno}: {ast.unparse(node)}")
        name, taken = node.func.id, CALLS[node.func.id]
        arguments = [self.argument(v, number in taken) for number, v in enumerate(node.args)]
        named = {w.arg: self.argument(w.value, w.arg in taken) for w in node.keywords if w.arg is not None}
        self.locate(node)
        found = getattr(self.calls, name)(*arguments, **named)
        return [] if found is None else [found] if isinstance(found, Value) else list(found)

    def argument(self, node: ast.expr, literal: bool) -> object:
        """A value; where the call wants a literal, the literal."""
        return ast.literal_eval(node) if literal else self.value(node)


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    """The names assigned anywhere in some statements, in order."""
    found: dict[str, None] = {}
    for one in body:
        for node in ast.walk(one):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
    return list(found)
