"""`tt.elementwise_inline_asm`: straight-line PTX on every element.

Read are declarations of registers, predicates (`@p`), immediates, `mov` of packed registers and the instructions of
`ptx.py`, and the texts of `wspec.ir.assembly` by which one block waits for another. Clocks stand still: they, and the
number of the SM, are 0. Anything else, memory, barriers and other special registers (`%laneid`) above all, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wspec.execute import ptx
from wspec.execute.context import Context, Item, Prepare, Run
from wspec.execute.elements import bits_of, dtype_of, from_raw, raw, scalar, shape_of, tensor
from wspec.execute.errors import ExecutionError
from wspec.ir.assembly import AWAIT_WORD, SET_WORD
from wspec.ir.core import Operation
from wspec.ir.types import Type, unescaped
from wspec.ptx import syntax
from wspec.ptx.errors import PtxError
from wspec.ptx.inline import read_inline
from wspec.ptx.operands import Number, Operand, Register, Several, Symbol
from wspec.ptx.syntax import Label

_NUMBER = re.compile(r"-?(\d[\w.+]*|\.\d+)")
_SINK = "_"
_STILL = ("%clock", "%clock64", "%globaltimer", "%smid")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement."""

    opcode: tuple[str, ...]  # the name and its modifiers
    targets: tuple[str, ...]  # registers; several of a packed mov and of setp p|q
    sources: tuple[str, ...]
    guard: str = ""  # the predicate
    unless: bool = False


def parse(source: str) -> list[Instruction]:
    """The statements, without declarations and braces around them. Raises ExecutionError."""
    try:
        function = read_inline(source)
        if any(isinstance(one, Label) for one in function.body):
            raise ExecutionError(f"inline assembly with branches, which the executor cannot run: {source}")
        return [_statement(one) for one in function.instructions]
    except PtxError as error:
        raise ExecutionError(f"inline assembly that the executor cannot run: {error}") from None


def _statement(one: syntax.Instruction) -> Instruction:
    operands = one.operands
    if not operands:
        raise ExecutionError(f"inline assembly that the executor cannot run: {one}")
    targets, *sources = ([_text(part, one) for part in _parts(operand)] for operand in operands)
    read = tuple(text for texts in sources for text in texts)
    return Instruction(tuple(one.opcode.split(".")), tuple(targets), read, one.guard, one.unless)


def _parts(operand: Operand) -> tuple[Operand, ...]:
    """The registers of `{a, b}` and `a|b`; anything else alone."""
    return operand.items if isinstance(operand, Several) else (operand,)


def _text(operand: Operand, one: syntax.Instruction) -> str:
    match operand:
        case Register(name, negated):
            return f"!{name}" if negated else name
        case Number(text):
            return text
        case Symbol(name):
            return name
    raise ExecutionError(f"inline assembly that the executor cannot run: {one}")


# ---------------------------------------------------------------------------------------------- running


class _Run:
    """One run: registers by name, each with `count` elements."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.registers: dict[str, torch.Tensor] = {}

    def step(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode[0] == "mov" and (len(instruction.targets) > 1 or len(instruction.sources) > 1):
            results = self._repack(instruction)
        else:
            sources = [
                self.source(name, ptx.source_type(opcode, index)) for index, name in enumerate(instruction.sources)
            ]
            results = ptx.execute(opcode, sources)
        for name, value in zip(instruction.targets, results, strict=False):
            if name != _SINK:
                self.registers[name] = self._guarded(instruction, name, value)

    def source(self, name: str, type: str) -> torch.Tensor:
        """A register, a negated predicate or a number."""
        if name.startswith("!"):
            return ~self.source(name[1:], type)
        if name in self.registers:
            return self.registers[name]
        if name in _STILL:
            return ptx.immediate("0", type, self.count)
        if _NUMBER.fullmatch(name) is None:
            raise ExecutionError(f"inline assembly reads {name}, which nothing has written")
        return ptx.immediate(name, type, self.count)

    def _guarded(self, instruction: Instruction, name: str, value: torch.Tensor) -> torch.Tensor:
        if not instruction.guard:
            return value
        where = self.source(instruction.guard, "pred")
        before = self.registers.get(name, torch.zeros_like(value))
        return torch.where(~where if instruction.unless else where, value, before)

    def _repack(self, instruction: Instruction) -> Sequence[torch.Tensor]:
        """`mov.b32 {a, b}, c` and `mov.b32 c, {a, b}`: the first of the parts is the lowest."""
        type, parts = instruction.opcode[-1], max(len(instruction.targets), len(instruction.sources))
        small = f"b{8 * ptx.size_of(type) // parts}"
        if len(instruction.targets) > 1:
            whole = self.source(instruction.sources[0], type)
            return [part.contiguous() for part in whole.view(ptx.dtype_of(small)).reshape(-1, parts).unbind(1)]
        pieces = [self.source(name, small) for name in instruction.sources]
        return [torch.stack(pieces, 1).reshape(-1).view(ptx.dtype_of(type))]


# ------------------------------------------------------------------------------------- from and to tensors


def _registers(item: Item, type: Type, pack: int, wide: bool) -> list[torch.Tensor]:
    """The registers of an operand: `pack` elements of each run, several small ones to a register of 32 bits."""
    values = raw(tensor(item, dtype_of(type))).reshape(-1, pack)
    together = _together(type, pack, wide)
    if together > 1:
        short = -pack % together
        if short:
            values = torch.cat((values, values.new_zeros(values.shape[0], short)), 1)
        values = values.contiguous().view(_WORDS[together * values.element_size()])
    return [part.contiguous() for part in values.unbind(1)]


def _elements(registers: list[torch.Tensor], type: Type, pack: int) -> Item:
    """The inverse of `_registers`."""
    dtype = dtype_of(type)
    word = raw(torch.zeros(1, dtype=dtype)).dtype
    columns = torch.stack([register.view(word).reshape(register.shape[0], -1) for register in registers], 1)
    values = columns.reshape(columns.shape[0], -1)[:, :pack].contiguous()
    found = from_raw(values, dtype).reshape(shape_of(type))
    return found if shape_of(type) else scalar(found)


_WORDS = {2: torch.int16, 4: torch.int32}


def _together(type: Type, pack: int, wide: bool) -> int:
    """Elements of a register: as many as 32 bits hold. Without `wide`, which says that all registers have 32 bits, no
    more than there are."""
    most = max(1, 32 // max(8, bits_of(type)))
    return most if wide else min(most, pack)


def _per_operand(type: Type, pack: int, wide: bool) -> int:
    return -(-pack // _together(type, pack, wide))


def _await_word(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
    """Programs run one after the other: a word that is not set is one that no program before sets."""
    words = context.memory.load(operands[0], torch.int32)
    if not bool((words != 0).all()):
        raise ExecutionError("it waits for a word that no program before it has set")
    context.memory.store(operands[0], torch.zeros_like(words))
    return (torch.zeros_like(words),)


def _set_word(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
    ones = torch.ones(operands[0].shape, dtype=torch.int32)
    context.memory.store(operands[0], ones)
    return (ones,)


_WORDS_OF_MEMORY: dict[str, Run] = {AWAIT_WORD: _await_word, SET_WORD: _set_word}


def _inline_asm(op: Operation) -> Run:
    source = unescaped(op.str_attr("asm_string") or "")
    if source in _WORDS_OF_MEMORY:
        return _WORDS_OF_MEMORY[source]
    program, pack = parse(source), op.int_attr("packed_element") or 1
    unknown = [".".join(one.opcode) for one in program if not ptx.knows(one.opcode[0])]
    if unknown:
        raise ExecutionError(f"inline assembly with {unknown[0]}")
    constraints = [part.strip() for part in unescaped(op.str_attr("constraints") or "").split(",") if part.strip()]
    outputs = [c for c in constraints if c.startswith("=")]
    inputs = [c for c in constraints if not c.startswith(("=", "~"))]
    types = [value.type for value in op.results]
    wide = not any(c.strip("=&") in ("h", "c") for c in (*outputs, *inputs))  # 16-bit registers: `pack` at most
    counts = [_per_operand(type, pack, wide) for type in types]
    if sum(counts) != len(outputs):
        raise ExecutionError(f"inline assembly with {len(outputs)} outputs for {sum(counts)} registers of results")

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        given = [
            register
            for item, value in zip(operands, op.operands, strict=True)
            for register in _registers(item, value.type, pack, wide)
        ]
        if len(given) != len(inputs):
            raise ExecutionError(f"inline assembly with {len(inputs)} inputs for {len(given)} registers of operands")
        state = _Run(given[0].shape[0] if given else 1)
        for index, (constraint, register) in enumerate(zip(inputs, given, strict=True)):
            state.registers[f"${len(outputs) + index}"] = register
            if constraint.isdigit():  # starts out in an output's register
                state.registers[f"${constraint}"] = register
        for instruction in program:
            state.step(instruction)
        made = [state.source(f"${index}", "b32") for index in range(len(outputs))]
        results, start = [], 0
        for type, count in zip(types, counts, strict=True):
            results.append(_elements(made[start : start + count], type, pack))
            start += count
        return tuple(results)

    return run


HANDLERS: dict[str, Prepare] = {"tt.elementwise_inline_asm": _inline_asm}
