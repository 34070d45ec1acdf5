"""Which registers still matter at each step of a task."""

from __future__ import annotations

from collections.abc import Sequence

from wspec.check import code as c
from wspec.check.clock import timed
from wspec.check.conditions import Always


def live_registers(code: c.Code) -> list[tuple[int, ...]]:
    """Per step: the registers that it or a later step reads before they are written."""
    count = len(code.steps)
    effects = [(_bits(reads(step)), _bits(writes(step)), successors(at, step)) for at, step in enumerate(code.steps)]
    live = [0] * (count + 1)
    changed = True
    while changed:
        changed = False
        for at in timed(range(count - 1, -1, -1)):
            read, written, following = effects[at]
            after = 0
            for target in following:
                after |= live[target]
            before = read | (after & ~written)
            if before != live[at]:
                live[at], changed = before, True
    numbers = {bits: registers(bits) for bits in timed(set(live[:count]))}
    return [numbers[bits] for bits in live[:count]]


def gathered(own: Sequence[int], after: Sequence[Sequence[int]]) -> list[int]:
    """The bits of each step and of all that may come after it; `after`: what may come next."""
    bits, changed = list(own), True
    while changed:
        changed = False
        for at in timed(range(len(bits) - 1, -1, -1)):
            found = bits[at]
            for target in after[at]:
                found |= bits[target]
            if found != bits[at]:
                bits[at], changed = found, True
    return bits


def registers(bits: int) -> tuple[int, ...]:
    """Whose bits are set, ascending."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return tuple(found)


def _bits(registers: list[int]) -> int:
    found = 0
    for register in registers:
        found |= 1 << register
    return found


def successors(at: int, step: c.Step) -> tuple[int, ...]:
    """The steps that may come after one."""
    match step:
        case c.Jump(target=target) | c.Next(target=target):
            return (target,)
        case c.Branch(target=target, condition=condition):
            if isinstance(condition, Always):
                return (at + 1,) if condition.value else (target,)
            return (at + 1, target)
        case c.Head(target=target):
            return (at + 1, target)
        case c.Done():
            return ()
    return (at + 1,)


def reads(step: c.Step) -> list[int]:
    """The registers that a step reads."""
    found: list[int | None] = []
    match step:
        case c.Compute(sources=sources):
            found = list(sources)
        case c.Select(register=register, then=then, other=other):
            found = [register, then, other]
        case c.Decide(register=register):
            found = [register]
        case c.Move(pairs=pairs) | c.WaitDots(pairs=pairs):
            found = [source for _, source in pairs]
        case c.Index(source=source, index=index):
            found = [source, index]
        case c.Part(source=source):
            found = [source]
        case c.Branch(register=register):
            found = [register]
        case c.Enter(lower=lower):
            found = [lower]
        case c.Next(position=position):
            found = [position]
        case c.Access(view=view) | c.Release(view=view) | c.StoreTile(view=view) | c.CopyElements(view=view):
            found = [view]
        case c.Init(barrier=barrier) | c.Invalidate(barrier=barrier) | c.ArriveElements(barrier=barrier):
            found = [barrier]
        case c.Dot(views=views, accumulator=accumulator):
            found = [*views, accumulator]
        case c.Use(register=register):
            found = [register]
        case c.Fork(captured=captured):
            found = [here for pairs in captured for _, here in pairs]
    if isinstance(step, c.Barriered):
        found += [step.barrier, step.predicate.register if step.predicate is not None else None]
        if isinstance(step, c.Wait):
            found.append(step.phase)
        if isinstance(step, c.Copy):
            found.append(step.view)
    return [register for register in found if register is not None]


def writes(step: c.Step) -> list[int]:
    """The registers that a step writes."""
    match step:
        case c.Compute(dst=dst) | c.Constant(dst=dst) | c.Select(dst=dst) | c.Index(dst=dst) | c.Part(dst=dst):
            return [dst]
        case c.Allocate(dst=dst) | c.Decide(dst=dst) | c.Forget(dst=dst):
            return [dst]
        case c.Move(pairs=pairs) | c.WaitDots(pairs=pairs):
            return [target for target, _ in pairs]
        case c.Dot(dst=dst) if dst is not None:
            return [dst]
        case c.Enter(position=position) if position is not None:
            return [position]
    return []
