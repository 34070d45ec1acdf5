"""What became of one specialization of a kernel, as values and as a text for a person."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.console import Console

from wspec import bridge, ir
from wspec.bridge import Group, KernelSource, Result
from wspec.diagnostics import Remark, in_words, render
from wspec.ir.core import Operation
from wspec.model.machine import Machine, load_machine
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.tile_scheduler import fastest

if TYPE_CHECKING:
    from wspec.bridge import Resources

TEXT_WIDTH = 150
Launch = tuple[tuple[int, int, int], Mapping[int, int]]


class Report:
    """One specialization: whether it was specialized, why or why not, the plan, the binary."""

    def __init__(
        self, source: KernelSource, result: Result, group: Group, machine: str, launch: Launch | None = None
    ) -> None:
        """`launch`: the grid and the numbers among the arguments that decide, where they are known."""
        self.source, self.result, self.machine, self._group = source, result, machine, group
        self._launch = launch

    @property
    def specialized(self) -> bool:
        return self.result.specialized

    @property
    def promoted(self) -> bool:
        """Do tiles that the kernel finds through pointers go through descriptors, which a launch makes?"""
        return self.result.promotion is not None

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What was done or why not; the codes are those of `wspec.REASONS`."""
        return self.result.remarks

    @property
    def reason(self) -> Remark | None:
        """Why the kernel was not specialized; None when it was."""
        return self.result.reason

    @property
    def proof(self) -> str:
        """What the checker said of the specialized kernel, in a line; "" when there is none."""
        return self.result.proof

    @property
    def guarded(self) -> tuple[tuple[str, str], ...]:
        """Arguments, by name, that must not share memory: a launch compares them, and else runs the plain kernel."""
        return tuple(bridge.names_of(self.result.disjoint, self.source.ast.signature))

    @property
    def conditions(self) -> tuple[str, ...]:
        """What must not be so in a launch, in words: it looks at its numbers, and else runs the plain kernel."""
        return in_words(remark for _, remark in self.result.rows)

    @property
    def choice(self) -> list[tuple[str, float]]:
        """What a launch may choose between, the chosen one first, with the cycles that the model expects.

        Empty where there is no choice, or where the launch's grid and sizes are not known.
        """
        ways = self.result.ways
        if not ways or self._launch is None:
            return []
        ranked = fastest(ways, *self._launch, load_machine(self.machine).sm_count)
        return [(ways[at].name, cycles) for cycles, at in ranked]

    @cached_property
    def plan(self) -> Plan | None:
        """The plan; None when the compiler made none."""
        return Plan.from_text(self.result.plan) if self.result.plan else None

    @cached_property
    def kernel(self) -> Any:
        """Triton's CompiledKernel: `.asm` has the text of each stage, `.metadata` what the launcher uses."""
        return bridge.load_kernel(self.source, self.result, self._group)

    @cached_property
    def resources(self) -> Resources:
        """Registers, spills, shared memory and instruction counts of the binary, specialized or not."""
        return bridge.kernel_resources(self.source, self.kernel, self.result.ptxas_log)

    def __str__(self) -> str:
        alone = "not specialized, with descriptors for its pointers" if self.promoted else "left as it was"
        done = "specialized" if self.specialized else alone
        parts = [f"{self.source.describe()}: {done}", *(render(remark) for remark in self.remarks)]
        if self.proof:
            parts.append(self.proof)
        if self.guarded:
            pairs = ", ".join(f"{one} and {other}" for one, other in self.guarded)
            parts.append(f"a launch runs the plain kernel where two of these share memory: {pairs}")
        parts += [f"a launch runs the plain kernel where {words}" for words in self.conditions]
        if self.result.promotion is not None:
            parts.append("\n".join(self.result.promotion.in_words()))
        if self.choice:
            (name, cycles), *others = self.choice
            beside = ", ".join(f"{other} {took / cycles:.2f} times as long" for other, took in others)
            parts.append(f"this launch has {name}, expected to take {cycles:,.0f} cycles; {beside}")
        elif self.result.ways:
            names = " or ".join(way.name for way in self.result.ways)
            parts.append(f"a launch chooses by its sizes: {names}; explain(..., grid=...) says which")
        if self.plan is not None:
            found = operations(self.source, self.plan, self.result.promotion is not None)
            parts.append(plan_text(self.plan, found, load_machine(self.machine)))
        binary = str(self.resources) if self.result.is_ours else "what Triton makes of the kernel, not looked at here"
        return "\n\n".join([*parts, f"binary: {binary}"])


def operations(source: KernelSource, plan: Plan | None = None, promoted: bool = False) -> dict[int, Operation]:
    """Operation number, as the plan uses it, -> the operation.

    Numbers count the walk of the kernel's function, with descriptors in the place of pointers where it is `promoted`,
    and with the loop over tiles and the team where the plan has them.
    """
    from wspec.pipeline import prepare
    from wspec.planner.tile_loops import walk_tiles

    module = ir.read(bridge.ttgir(source))
    prepare(module, Options(promote=promoted))
    if plan is not None:
        module = walk_tiles(module, plan.tile_loop)
    function = next(op for op in module.walk() if op.name == "tt.func")
    return dict(enumerate(function.walk()))


def plan_text(plan: Plan, found: Mapping[int, Operation], machine: Machine) -> str:
    """The plan's tables, as the command line shows them, without colours."""
    from wspec.show.tables import plan_view

    screen = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None)
    with screen.capture() as caught:
        screen.print(plan_view(plan, found, machine))
    return "\n".join(line.rstrip() for line in caught.get().rstrip().split("\n"))
