"""What a command works on: a kernel with a signature, or a module read from a file. Both answer the same questions."""

from __future__ import annotations

import contextlib
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from wspec import ir
from wspec.cli.child import in_child
from wspec.diagnostics import Remark, WspecError, bad_input, in_words, unknown
from wspec.host_descriptors import Promotion
from wspec.ir.disjoint import EVERY, NONE, Disjoint
from wspec.ir.loc import UNKNOWN, FileLoc
from wspec.ir.numbering import number
from wspec.ir.verify import check_valid, verify
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.plan.graph import Dataflow
from wspec.plan.plan import Plan
from wspec.show.graph import Picture, picture, tasks_of

if TYPE_CHECKING:
    from wspec.api import Offline
    from wspec.bridge import Finished, KernelSource, Proof, Resources, Verdict
    from wspec.outcome import Report

BINARY_STAGES = ("final", "llir", "ptx", "sass")
TEXT_STAGES = ("plan", "graph", "llir", "ptx", "sass")  # those that are no MLIR
SUFFIXES = {"ttir": "ttir", "plan": "toml", "graph": "json", "llir": "ll", "ptx": "ptx", "sass": "sass"}


@dataclass(frozen=True, slots=True)
class Front:
    """The compiler's part: the text of each of its stages, in order, the plan, and what it has to say."""

    stages: Mapping[str, str]
    plan: Plan | None
    remarks: tuple[Remark, ...]
    specialized: bool
    disjoint: Disjoint = NONE  # what the specialized module takes for granted of its arguments
    promotion: Promotion | None = None  # the arguments it has besides those of the kernel

    @property
    def reason(self) -> Remark | None:
        """Why the kernel is left alone; None when it was specialized."""
        return None if self.specialized or not self.remarks else self.remarks[-1]


@dataclass(frozen=True, slots=True)
class Binary:
    """Triton's part: what gives the text of each of its stages, and the cubin."""

    stages: Mapping[str, Callable[[], str]]  # machine code is disassembled where it is asked for
    cubin: bytes
    resources: Resources
    remarks: tuple[Remark, ...]
    specialized: bool = True
    proof: str = ""  # the checker's verdict, in a line
    conditions: tuple[str, ...] = ()  # in which launches the plain kernel runs, for the proof does not hold


class Subject(ABC):
    """A kernel or module under one set of options. Everything is made when it is first asked for."""

    options: Options

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that says what this is."""

    @cached_property
    @abstractmethod
    def front(self) -> Front:
        """The compiler's part."""

    @cached_property
    @abstractmethod
    def binary(self) -> Binary | None:
        """Triton's part; None for a module that is left alone: only a kernel's own source gives the plain binary."""

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """All there is to say after the last stage."""
        return self.front.remarks if self.binary is None else self.binary.remarks

    @property
    def specialized(self) -> bool:
        """Is the binary that of a specialized module?"""
        return self.binary is not None and self.binary.specialized

    @property
    def alone(self) -> Promotion | None:
        """The descriptors that a kernel has which is not specialized, in the place of pointers; None: it has none."""
        return None

    @property
    def became(self) -> str:
        """What became of it, in words."""
        if self.front.specialized and self.specialized:
            return "specialized"
        return "left as it was" if self.alone is None else "not specialized, with descriptors for its pointers"

    @property
    def proof(self) -> str:
        """The checker's verdict on the specialized module, in a line; "" where there is none."""
        return "" if self.binary is None else self.binary.proof

    @property
    def conditions(self) -> tuple[str, ...]:
        """What must not be so in a launch of the specialized kernel, in words."""
        return () if self.binary is None else self.binary.conditions

    @cached_property
    def operations(self) -> dict[int, ir.Operation]:
        """Operation number, as the plan uses it, -> operation before it is divided between tasks."""
        function = self._function()
        return dict(enumerate(function.walk())) if function is not None else {}

    def _function(self) -> ir.Operation | None:
        stages = self.front.stages
        text = stages.get("walk_tiles") or stages.get("input") or stages.get("ttgir")
        functions = [op for op in ir.read(text).walk() if op.name == "tt.func"] if text else []
        return functions[0] if len(functions) == 1 else None

    @cached_property
    def picture(self) -> Picture:
        """The dataflow graph, with the task of every operation when there are tasks. Raises WspecError."""
        function = self._function()
        if function is None:
            raise bad_input(f"{self.title}: a graph needs a module with one function")
        number(function)
        split = self.front.stages.get("split")
        tasks = tasks_of(ir.read(split)) if split is not None else {}
        return picture(Dataflow(function).graph, tasks, self.front.plan)

    def stage_names(self) -> tuple[str, ...]:
        """Every stage there is, in order; nothing of Triton's part is run to tell."""
        names = list(self.front.stages)
        planned = next((name for name in ("walk_tiles", "input") if name in names), None)
        if planned is not None:
            names.insert(names.index(planned) + 1, "graph")
        has_binary = self.front.specialized or not isinstance(self, TextSubject)
        return (*names, *(BINARY_STAGES if has_binary else ()))

    def text(self, stage: str) -> str:
        """The text of a stage. Raises WspecError for one that is not there, with the names of those that are."""
        if stage not in self.stage_names():
            alone = "" if self.front.specialized else "is left alone and "
            raise unknown("stage", stage, self.stage_names(), where=f"{self.name} {alone}has ")
        if stage == "graph":
            return self.picture.to_json()
        if stage not in BINARY_STAGES:
            return self.front.stages[stage]
        assert self.binary is not None
        return self.binary.stages[stage]()

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel's name."""

    @property
    @abstractmethod
    def location(self) -> Any:
        """Where the kernel begins."""


def judge(text: str, options: Options, plan: Plan | None) -> Verdict:
    """TTGIR text through the compiler, every stage verified and kept."""
    from wspec.verdict import Judge

    return Judge(options, plan, keep_stages=True, verify=check_valid)(text)


def front_of(before: Mapping[str, str], verdict: Verdict) -> Front:
    """What both parts say, in one value. Raises WspecError when the plan given is for another kernel."""
    stages = {**before, **verdict.stages}
    if verdict.text is not None:
        stages["specialized"] = verdict.text
    mismatch = next((remark for remark in verdict.remarks if remark.code == "plan-mismatch"), None)
    if mismatch is not None:
        raise WspecError(replace(mismatch, severity="error"))
    plan = Plan.from_text(verdict.plan) if verdict.plan else None
    return Front(stages, plan, verdict.remarks, verdict.text is not None, verdict.disjoint, verdict.promotion)


# ----------------------------------------------------------------------------------------------- a kernel


class KernelSubject(Subject):
    """A kernel for one signature."""

    def __init__(self, offline: Offline) -> None:
        self.offline = offline
        self.options = offline.compiler.here

    @property
    def name(self) -> str:
        return self.offline.source.name

    @property
    def title(self) -> str:
        return self.offline.source.describe()

    @property
    def location(self) -> Any:
        from wspec import bridge

        return bridge.kernel_location(self.offline.source)

    @property
    def front(self) -> Front:
        """What was planned; once it is compiled, what came of it: the plan may be an alternative to the first one."""
        report: Report | None = self.__dict__.get("_report")
        if report is None or not report.specialized or report.plan == self._planned.plan:
            return self._planned
        return self._compiled_front

    @cached_property
    def _planned(self) -> Front:
        return self._front_of(self.offline.compiler.given_plan)

    @cached_property
    def _compiled_front(self) -> Front:
        return self._front_of(self._report.plan)

    def _front_of(self, plan: Plan | None) -> Front:
        from wspec import bridge

        source = self.offline.source
        ttir, ttgir = self._lowered(source)
        before = {"ttir": ttir, "ttgir": ttgir}
        if not self.options.enabled:
            return Front(before, None, (Remark("disabled", "wspec is turned off (enabled=0)", self.location),), False)
        verdict = bridge.judge(source, ttgir, lambda text: judge(text, self.options, plan), self.options)
        return front_of(before, verdict)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        return self._report.remarks if self.front.specialized else self.front.remarks

    @property
    def specialized(self) -> bool:
        return self.front.specialized and self._report.specialized

    @property
    def proof(self) -> str:
        return self._report.proof if self.front.specialized else ""

    @property
    def conditions(self) -> tuple[str, ...]:
        return self._report.conditions if self.front.specialized else ()

    @property
    def alone(self) -> Promotion | None:
        from wspec.bridge.text import generic_text, reparse
        from wspec.verdict import Judge

        if "_report" in self.__dict__:
            return None if self._report.specialized else self._report.result.promotion
        if self.front.specialized or not self.options.enabled:
            return None
        ttir, ttgir = (self.front.stages[stage] for stage in ("ttir", "ttgir"))
        made = Judge(self.options, self.offline.compiler.given_plan).undivided(
            lambda: generic_text(reparse(ttir)), ttgir
        )
        return None if made is None else made.promotion

    @cached_property
    def _report(self) -> Report:
        """What a launch would run. To learn of a kernel that is left alone compiles nothing."""
        self._planned  # noqa: B018  # a kernel that Triton refuses is reported from here
        report = self.offline.outcome()
        if report.reason is not None and report.reason.code == "cache-unusable":
            raise WspecError(report.reason)
        return report

    @cached_property
    def binary(self) -> Binary:
        from wspec import bridge

        report = self._report
        kernel = self._compiled(report)
        names = {stage: "ttgir" if stage == "final" else stage for stage in BINARY_STAGES}
        stages = {stage: partial(bridge.stage_text, kernel, theirs) for stage, theirs in names.items()}
        cubin: bytes = kernel.asm["cubin"]
        return Binary(
            stages, cubin, report.resources, report.remarks, report.specialized, report.proof, report.conditions
        )

    def _compiled(self, report: Report) -> Any:
        """The CompiledKernel. What is left alone may be a kernel that Triton's own passes fail on."""
        from wspec.bridge.reproducer import first_line
        from wspec.bridge.text import BridgeError, captured

        if report.specialized:
            return report.kernel
        printed = io.StringIO()  # Triton prints the whole PTX that ptxas refuses
        try:
            with contextlib.redirect_stdout(printed):
                return captured("its passes fail", lambda: report.kernel)
        except OSError:
            raise
        except Exception as error:
            why = first_line(error) if isinstance(error, BridgeError) else _complaint(f"{error}\n{printed.getvalue()}")
            message = f"Triton does not compile {self.name} as it is: {why}"
            raise WspecError(Remark("bad-input", message, self.location, note=_tools(), severity="error")) from None

    def _lowered(self, source: KernelSource) -> tuple[str, str]:
        """What Triton raises over a kernel it does not understand becomes one error."""
        from wspec import bridge

        try:
            return bridge.lower(source)
        except WspecError:
            raise
        except Exception as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> WspecError:
        """In the words of what Triton raised last, at the line of the kernel (its lines count from the `def`)."""
        innermost: BaseException = error
        while innermost.__cause__ is not None:
            innermost = innermost.__cause__
        said = str(innermost).strip() or type(innermost).__name__
        last = said.splitlines()[-1]
        if isinstance(innermost, RecursionError) or (last.startswith("KeyError") and f".{self.name}__" in last):
            said = "it calls itself, with no end that is known when it is compiled"
        place, node = self.location, getattr(error, "node", None)
        if node is not None:
            place = FileLoc(place.file, place.line + node.lineno - 1, node.col_offset)
        message = f"Triton does not compile {self.name}: {said.splitlines()[-1]}"
        return WspecError(Remark("bad-input", message, place, severity="error"))


def _complaint(said: str) -> str:
    """The first line of what ptxas said that names an error, without the file that nobody has any more."""
    lines = [line.strip() for line in said.splitlines()]
    found = next((line for line in lines if line.startswith("ptxas") and re.search(r"\b(error|fatal)\b", line)), "")
    return re.sub(r"^ptxas \S+, (line \d+); ", r"ptxas, \1 of the PTX: ", found) or next(filter(None, lines), "")


def _tools() -> str:
    """The variables that change what ptxas is asked, where they are set."""
    names = ("PTXAS_OPTIONS", "TRITON_PTXAS_PATH", "DISABLE_PTXAS_OPT")
    return ", ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))


# ----------------------------------------------------------------------------------------------- a module


class TextSubject(Subject):
    """A module as text: TTGIR right before Triton's pipeliner, or a module that was specialized already."""

    def __init__(self, text: str, file: str, options: Options, plan: Plan | None) -> None:
        from wspec.bridge.text import for_back_end
        from wspec.cli.modules import invalid, read_module

        load_machine(options.machine)
        self.file, self.options, self.plan = file, options, plan
        self.module = for_back_end(read_module(text, file))
        if problems := verify(self.module):
            raise invalid(problems, file)
        if all(op.name != "tt.func" for op in self.module.walk()):
            raise bad_input(f"{file} has no function", "a module with a kernel is what `wspec dump` prints")
        self.ttgir = ir.print_module(self.module)

    @property
    def name(self) -> str:
        functions = [op for op in self.module.walk() if op.name == "tt.func"]
        return (functions[0].str_attr("sym_name") if functions else None) or self.file

    @property
    def title(self) -> str:
        return f"{self.name} of {self.file}"

    @property
    def location(self) -> Any:
        return next((op.location for op in self.module.walk() if op.name == "tt.func"), UNKNOWN)

    @cached_property
    def front(self) -> Front:
        return front_of({"ttgir": self.ttgir}, judge(self.ttgir, self.options, self.plan))

    @cached_property
    def binary(self) -> Binary | None:
        from wspec import bridge

        if self._finished is None or (self._proof is not None and self._proof.stops(self.options)):
            return None
        finished = self._finished
        shared, total = int(finished.metadata["shared"]), int(finished.metadata["num_warps"])
        resources = bridge.resources(finished.cubin, finished.ptxas_log, shared_bytes=shared, warps=total)
        texts: tuple[Callable[[], str], ...] = (
            lambda: finished.final, lambda: finished.llir, lambda: finished.ptx,
            partial(bridge.sass_text, finished.cubin),
        )  # fmt: skip
        stages = dict(zip(BINARY_STAGES, texts, strict=True))
        conditions = () if self._proof is None else in_words(remark for _, remark in self._proof.rows)
        return Binary(stages, finished.cubin, resources, self.remarks, proof=self.proof, conditions=conditions)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        if self._proof is None:
            return self.front.remarks
        ours = self.front.remarks
        if self._proof.stops(self.options):
            ours = tuple(remark for remark in ours if remark.code != "specialized")
        return (*ours, *self._proof.undecided, *self._proof.errors)

    @property
    def proof(self) -> str:
        from wspec.bridge.proof import NOT_CHECKED

        if self._finished is None:
            return ""
        if self._proof is None:
            return NOT_CHECKED
        return self._proof.line if self.front.specialized else f"{self._proof.line}, if no two arguments overlap"

    @cached_property
    def _finished(self) -> Finished | None:
        """Down to the binary; None when the module is left alone."""
        from wspec import bridge

        reason = self.front.reason
        if reason is not None and reason.code != "already-specialized":
            return None
        text = self.ttgir if reason is not None else self.front.stages["specialized"]
        source = source_of(text)
        return in_child(lambda: bridge.finish(text, source), self.file)

    @cached_property
    def _proof(self) -> Proof | None:
        from wspec.proof import prove

        if self._finished is None or self.options.check == "off":
            return None
        return prove(self._finished.final, self.front.disjoint if self.front.specialized else EVERY)


def source_of(text: str) -> KernelSource:
    """All that the back end asks of a kernel when its module is there already: options and target."""
    from wspec import bridge

    warps = ir.read(text).int_attr("ttg.num-warps") or 4
    blank = bridge.KernelSource(None, None, bridge.HOPPER)
    return bridge.KernelSource(None, blank.backend.parse_options({"num_warps": warps}), bridge.HOPPER)
