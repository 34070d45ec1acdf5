"""What the tasks may still do: which allocations they may use from a step on, and which choices they may ask for."""

from __future__ import annotations

from collections.abc import Mapping

from wspec.check import code as c
from wspec.check.conditions import Both, Choice, Condition, Either, Not
from wspec.check.liveness import gathered, successors
from wspec.check.memory import Memory
from wspec.check.names import ROLES, Names, Role
from wspec.check.state import State, Task


class Reach:
    """Of one program. `again`: tasks that are done may be started once more."""

    def __init__(
        self,
        program: c.Program,
        names: Names,
        memory: Memory,
        again: bool,
        chains: list[tuple[int, ...]],
        same: Mapping[int, int],
    ) -> None:
        """`chains`: of each choice, the spaces of the loops around it; `same`: what others it stands for."""
        self.again, self._names, self._memory = again, names, memory
        self._roots = len(program.roots)
        self._ahead: dict[tuple[int, ...], Ahead] = {}  # tasks often stand at the same places
        self._roles = {role: at * self._roots for at, role in enumerate(ROLES)}
        first = len(ROLES) * self._roots
        self._choices, self._same = first, same
        own = [[self._of(step) for step in code.steps] for code in program.codes]
        self._bits = [_behind(code, bits) for code, bits in zip(program.codes, own, strict=True)]
        self._soon: dict[tuple[int, ...], list[list[int]]] = {(): self._bits}
        for chain in set(chains):
            if chain:
                inside = zip(program.codes, own, strict=True)
                self._soon[chain] = [_behind(code, bits, frozenset(chain)) for code, bits in inside]

    def _of(self, step: c.Step) -> int:
        """What a step does, as bits."""
        found = 0
        for role, roots in self._names.of_step(step):
            for root in roots:
                found |= 1 << self._roles[role] + root | 1 << self._roles["uses"] + root
                sets_up = isinstance(step, c.Init | c.Invalidate) and root in self._memory.mixed
                if role == "writes" or sets_up:
                    for other in (root, *self._memory.beside[root]):  # their bytes are written too
                        found |= 1 << self._roles["writes"] + other | 1 << self._roles["uses"] + other
        for condition in _asked(step):
            for number in _choices(condition):
                found |= 1 << self._choices + number | 1 << self._choices + self._same.get(number, number)
        return found

    def of(self, state: State) -> Ahead:
        """From where the tasks stand."""
        bits = []
        for task, ahead in zip(state.tasks, self._bits, strict=True):
            bits.append(0 if task.done and not self.again else ahead[task.pc if task.active and not task.done else 0])
        key = tuple(bits)
        found = self._ahead.get(key)
        if found is None:
            found = self._ahead[key] = Ahead(self, bits)
        return found

    def soon(self, index: int, task: Task, choice: int, chain: tuple[int, ...]) -> bool:
        """May a task at work ask for a choice at the iterations of `chain` that it is in?"""
        return self._soon[chain][index][task.pc] >> self._choices + choice & 1 == 1


class Ahead:
    """What the tasks may still do in one state."""

    def __init__(self, reach: Reach, bits: list[int]) -> None:
        self._reach, self._bits, self._all = reach, bits, 0
        for one in bits:
            self._all |= one
        self._memo: dict[tuple[Role, int], tuple[int, ...]] = {}

    def tasks(self, role: Role, root: int) -> tuple[int, ...]:
        """The tasks that may still have a role for an allocation."""
        found = self._memo.get((role, root))
        if found is None:
            bit = 1 << self._reach._roles[role] + root
            found = self._memo[role, root] = tuple(at for at, bits in enumerate(self._bits) if bits & bit)
        return found

    def uses(self, root: int) -> bool:
        """May any task still use an allocation?"""
        return self._all >> self._reach._roles["uses"] + root & 1 == 1

    def askers(self, choice: int) -> list[int]:
        """The tasks that may still ask for a choice."""
        return [at for at, bits in enumerate(self._bits) if bits >> self._reach._choices + choice & 1]


def _behind(code: c.Code, own: list[int], spaces: frozenset[int] = frozenset()) -> list[int]:
    """The bits of each step and of those that may come after it, in no later iteration of a loop over `spaces`.

    Behind such a loop there may be another one over the same space, which goes through its iterations once more.
    """
    after = [_leaving(code, step) if isinstance(step, c.Next) and step.space in spaces else successors(at, step)
             for at, step in enumerate(code.steps)]  # fmt: skip
    return gathered(own, after)


def _leaving(code: c.Code, step: c.Next) -> tuple[int, ...]:
    head = code.steps[step.target]
    assert isinstance(head, c.Head)
    return (head.target,)


def _asked(step: c.Step) -> list[Condition]:
    match step:
        case c.Branch(condition=condition) | c.Select(condition=condition) | c.Decide(condition=condition):
            return [condition]
        case c.Barriered(predicate=c.Predicate(condition=condition)):
            return [condition]
    return []


def _choices(condition: Condition) -> list[int]:
    match condition:
        case Choice(number=number):
            return [number]
        case Not(inner=inner):
            return _choices(inner)
        case Both(left=left, right=right) | Either(left=left, right=right):
            return _choices(left) + _choices(right)
    return []
