"""What a user touches: `wspec.compile` over a kernel, and `wspec.offline` for a kernel without a GPU."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from wspec import bridge, ledger
from wspec.bridge import Group, KernelSource, Result
from wspec.diagnostics import Remark, WspecError, bad_input, render
from wspec.model.estimate import is_clearly_less
from wspec.model.machine import AUTO, MachineError, description_of, load_machine
from wspec.options import OptionArguments, Options, misspelt, table
from wspec.outcome import Report
from wspec.plan.plan import Plan, PlanError
from wspec.proof import prove
from wspec.tile_scheduler import LaunchWay
from wspec.verdict import Judge

_NEVER_TUNED = ("disabled", "not-hopper", "triton-version")
GLUON = "a kernel in Gluon says itself which warp does what"
BINARY_STAGES = ("final", "llir", "ptx", "sass")  # after the compiler: Triton's back end


class Compiled:
    """What `compile` returns, as editors and type checkers see it: the kernel that it was, which can be asked too."""

    if TYPE_CHECKING:

        def outcome(self, *args: Any, **kwargs: Any) -> Report: ...
        def explain(self, *args: Any, **kwargs: Any) -> str: ...
        def plan(self, *args: Any, **kwargs: Any) -> Plan | None: ...
        def dump(self, stage: str, /, *args: Any, **kwargs: Any) -> str: ...
        def __getitem__(self, grid: Any) -> Callable[..., Any]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def __getattr__(self, name: str) -> Any: ...


@overload
def compile(kernel: Any, *, plan: Plan | str | Path | None = None, **options: Unpack[OptionArguments]) -> Compiled: ...


@overload
def compile(
    *, plan: Plan | str | Path | None = None, **options: Unpack[OptionArguments]
) -> Callable[[Any], Compiled]: ...


def compile(kernel: Any = None, *, plan: Plan | str | Path | None = None, **options: Any) -> Any:
    """Make a Triton kernel warp-specialized. Use it over `@triton.jit`, over or under `@triton.autotune`.

    `plan` is a plan, its text, or the path of a file with it; the other options are those of `wspec.Options`.
    The result launches as the kernel did, and can be asked: `.explain(...)`, `.plan(...)`, `.outcome(...)` take the
    arguments of a launch, `.dump(stage, ...)` the name of a stage before them. Where a launch takes a tensor they also
    take one without storage (`device="meta"`) or the text of a type (`"*bf16:16"`, `"i32"`).

    A kernel that cannot or should not be specialized runs as it was, and the reason is printed once. Raises WspecError
    for bad options and for what is not a kernel; with `strict=True` also, at the first launch, for a kernel left alone.
    """
    compiler = _Compiler(_checked(Options.from_env(**options)), _read_plan(plan))
    announce(tuple(replace(one.remark, severity="warning") for one in misspelt()), compiler.options)
    return compiler.wrap if kernel is None else compiler.wrap(kernel)


def offline(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any] | None = None,
    *,
    plan: Plan | str | Path | None = None,
    **options: Any,
) -> Offline:
    """One specialization of a kernel for a Hopper GPU that need not be there, down to the cubin.

    `signature` gives the type of each parameter (`"*bf16:16"`, `"i32"`, `"tensordesc<bf16[128, 64]>"`), `constexprs`
    the values of the others. `options` are launch options (`num_warps`, `num_stages`) and those of `wspec.Options`.
    Raises WspecError on bad input.
    """
    ours = {name: value for name, value in options.items() if name in table()}
    launch = {name: value for name, value in options.items() if name not in table()}
    bridge.require_jit(kernel)
    fn = bridge.innermost(kernel)
    if bridge.is_gluon(kernel):
        raise bad_input(f"{fn.__name__}: {GLUON}", "`wspec check FILE.ttgir` takes what Triton makes of it")
    filled = bridge.fill_in(kernel, (), {**signature, **(constexprs or {}), **launch})[1]
    values = {name: value for name, value in filled.items() if name not in signature}
    compiler = compiler_of(fn, ours, plan)
    return Offline(_taken(fn, lambda: bridge.from_signature(fn, signature, values)), compiler)


# ------------------------------------------------------------------------------------------- what comes back


@dataclass(frozen=True, slots=True)
class Offline:
    """A specialization made by `wspec.offline`; the methods are those of a compiled kernel, without arguments."""

    source: KernelSource
    compiler: _Compiler
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of a launch, with its grid, where there are any

    def outcome(self) -> Report:
        """What became of it. Raises what Triton's front end raises on a bad kernel."""
        result, group = self.compiler.obtain(self.source)
        launch = bridge.launch_of(self.source, result.ways, self.arguments)
        return Report(self.source, result, group, self.compiler.here.machine, launch)

    def explain(self) -> str:
        """What was done and why, in terms of the source."""
        return str(self.outcome())

    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self.outcome().plan

    def dump(self, stage: str) -> str:
        """The text of a stage. Raises WspecError for a stage that is not there, with the names of those that are."""
        return self.compiler.dump(self.source, stage)

    def stages(self) -> tuple[str, ...]:
        """The names `dump` takes, in order."""
        return (*self.compiler.early_stages(self.source), *BINARY_STAGES)


class Inspectable:
    """The methods that `wspec.compile` adds to a kernel, an Autotuner or a Heuristics.

    With a `grid` among the arguments, `outcome` and `explain` say what that launch chooses where it has a choice.
    """

    wspec: _Compiler

    def outcome(self, *args: Any, **kwargs: Any) -> Report:
        """What a launch with these arguments would run, and why."""
        return self._offline(args, kwargs).outcome()

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What was done and why, in terms of the source."""
        return self._offline(args, kwargs).explain()

    def plan(self, *args: Any, **kwargs: Any) -> Plan | None:
        """The plan, if there is one."""
        return self._offline(args, kwargs).plan()

    def dump(self, stage: str, /, *args: Any, **kwargs: Any) -> str:
        """The text of a stage. Raises WspecError for a stage that is not there, with the names of those that are."""
        return self._offline(args, kwargs).dump(stage)

    def _offline(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Offline:
        fn, target = bridge.innermost(self), bridge.current_target()
        args, filled = bridge.fill_in(self, args, kwargs)
        named = {**dict(zip(fn.arg_names, args, strict=False)), **filled}
        return Offline(_taken(fn, lambda: bridge.from_arguments(fn, args, filled, target)), fn.wspec, named)


class CompiledFunction(Inspectable, bridge.WspecFunction):
    """A JITFunction under `wspec.compile`."""


bridge.answer(
    CompiledFunction,
    {name: getattr(Inspectable, name) for name in ("outcome", "explain", "plan", "dump", "_offline")},
)  # what `@triton.autotune` over `@wspec.compile` makes has them too


# ---------------------------------------------------------------------------------------------- the compiler


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Options and plan of one `wspec.compile`, applied to whatever it stands over."""

    options: Options
    given_plan: Plan | None = None

    @property
    def plan_text(self) -> str:
        return self.given_plan.to_text() if self.given_plan is not None else ""

    @property
    def here(self) -> Options:
        """The options, with the description of the card at hand where they name no machine."""
        return options_here(self.options)

    def wrap(self, kernel: Any) -> Any:
        """The kernel, or a copy of the Autotuner or Heuristics around it, that compiles through wspec."""
        if bridge.is_interpreted(kernel):
            announce((Remark("interpreter", "TRITON_INTERPRET=1: wspec leaves every kernel alone"),), self.options)
            return kernel
        unknown = bridge.unknown_version()
        if unknown is not None:
            return self._left_alone(kernel, unknown)
        bridge.require_jit(kernel)
        if bridge.is_gluon(kernel):
            why = Remark("already-specialized", GLUON, bridge.place_of(kernel))
            ledger.left_alone(bridge.innermost(kernel).fn, why)
            self._tell(why)
            return kernel
        return bridge.replace_innermost(kernel, self._function, self._wrapper)

    def _left_alone(self, kernel: Any, why: Remark) -> Any:
        """The kernel under a Triton that is not known: Triton's own in all it does, with our methods if they fit."""
        self._tell(why)
        try:
            bridge.require_jit(kernel)
            return bridge.replace_innermost(kernel, self._function, self._wrapper)
        except Exception:  # whatever of Triton has changed
            return kernel

    def _function(self, plain: Any) -> CompiledFunction:
        function = CompiledFunction(plain, self.options, self.plan_text, self.launch, self._load)
        function.wspec = self
        function.wspec_say = self._tell
        function.wspec_checker = prove if self.options.check != "off" else None
        return function

    def _wrapper(self, wrapper: Any) -> Any:
        """A copy of an Autotuner or Heuristics with the methods of `Inspectable`."""
        cls: Any = type(wrapper)
        if not issubclass(cls, Inspectable):
            ahead = (bridge.CompilesAhead,) if bridge.is_autotuner(wrapper) else ()
            cls = type(cls.__name__, (Inspectable, *ahead, cls), {"__module__": cls.__module__})
        new = cls.__new__(cls)
        new.__dict__.update(wrapper.__dict__)
        new.wspec = self
        return new

    def launch(self, source: KernelSource) -> tuple[Result, Group]:
        """What a launch runs. Prints the remarks; with strict=True raises when the kernel is left alone."""
        began = time.perf_counter()
        result, group = self.obtain(source)
        ledger.compiled(source, result, time.perf_counter() - began)
        if self.options.strict and result.reason is not None and not result.is_ours:
            raise WspecError(replace(result.reason, severity="error"))
        announce(result.remarks, self.options)
        return result, group

    def obtain(self, source: KernelSource) -> tuple[Result, Group]:
        return bridge.obtain(source, self.here, self.judge, prove, self.plan_text)

    def compile_ahead(self, sources: Sequence[KernelSource]) -> int:
        """Have the kernels compiled by other processes, as the option `compile_jobs` says; how many will be."""
        return bridge.compile_ahead(sources, self.here, self.judge, prove, self.plan_text)

    @property
    def judge(self) -> Judge:
        """TTGIR text through the pipeline, stages kept when the user wants them dumped."""
        return Judge(self.here, self.given_plan, self.options.dump is not None)

    def _load(self, source: KernelSource, result: Result, group: Group) -> Any:
        """The compiled kernel; with tune=N one that measures at its first launch."""
        kernel = self._chosen(source, result, group)
        return bridge.decided_once(kernel, source.ast.fn, source.ast.signature) if result.is_ours else kernel

    def _chosen(self, source: KernelSource, result: Result, group: Group) -> Any:
        kernel = bridge.load_kernel(source, result, group, self._tell, self._fewer)
        if result.ways:
            kernel = bridge.choosing(kernel, source.ast.signature, result.ways, lambda way: self._way(source, way))
            return self._on_trial(kernel, source, result)
        reason = result.reason.code if result.reason is not None else ""
        if not self.options.tune or self.given_plan is not None or reason in _NEVER_TUNED:
            return self._on_trial(kernel, source, result)
        from wspec.tune.candidates import tuning

        return bridge.tuned(kernel, tuning(source, result, self.here, self._with_plan, announce))

    def _on_trial(self, kernel: Any, source: KernelSource, result: Result) -> Any:
        """The kernel, which proves itself at its first launches where the model alone has let it through."""
        options = self.options
        if not result.is_ours or options.gate == "off" or options.strict or self.given_plan is not None:
            return kernel

        def begins() -> bool:
            if not result.specialized:
                return True
            expected = Plan.from_text(result.plan).prediction
            return is_clearly_less(expected.iteration_cycles, expected.plain_iteration_cycles)

        how = "specialized" if result.specialized else "with descriptors"
        return bridge.on_trial(kernel, source, options.trials, begins, self._tell, how)

    def _way(self, source: KernelSource, way: LaunchWay) -> Any | None:
        """The kernel of another way to launch it; None, with a remark, where it cannot be had."""
        result, group = replace(self, options=self.options.replace(**way.change)).obtain(source)
        if result.specialized:
            return bridge.load_kernel(source, result, group, self._tell, self._fewer)
        why = result.reason.message if result.reason is not None else "no reason given"
        place = bridge.kernel_location(source)
        announce((Remark("specialized", f"no launch has {way.name}: {why}", place),), self.options)
        return None

    def _fewer(self, source: KernelSource, why: str) -> Any | None:
        """The kernel for launches in which only tiles that go to products can be boxes; None where it is left alone."""
        if self.given_plan is not None:
            return None
        result, group = replace(self, options=self.options.replace(operands_only=True)).obtain(source)
        if not result.is_ours:
            return None
        message = f"tiles of {source.name} that go to no product keep their pointers in this launch: {why}"
        announce((Remark("not-promoted", message, bridge.kernel_location(source)),), self.options)
        return bridge.load_kernel(source, result, group, self._tell)

    def _tell(self, remark: Remark) -> None:
        """Of a launch that runs the plain kernel. With strict=True raises."""
        if self.options.strict:
            raise WspecError(replace(remark, severity="error"))
        announce((remark,), self.options)

    def _with_plan(self, source: KernelSource, plan: Plan) -> tuple[Result, Group]:
        """What becomes of the kernel under another plan."""
        return replace(self, given_plan=plan).obtain(source)

    # ---- stages

    def dump(self, source: KernelSource, stage: str) -> str:
        """The text of a stage; those of `BINARY_STAGES` are of the kernel that runs, specialized or not."""
        if stage in BINARY_STAGES:
            kernel = bridge.load_kernel(source, *self.obtain(source))
            return bridge.stage_text(kernel, "ttgir" if stage == "final" else stage)
        texts = self.early_stages(source)
        if stage not in texts:
            raise _no_stage(source, stage, (*texts, *BINARY_STAGES))
        return texts[stage]

    def early_stages(self, source: KernelSource) -> dict[str, str]:
        """The text of every stage up to specialized TTGIR; a kernel that is left alone has fewer."""
        ttir, ttgir = bridge.lower(source)
        verdict = bridge.judge(source, ttgir, replace(self.judge, keep_stages=True), self.here)
        texts = {"ttir": ttir, "ttgir": ttgir, **verdict.stages}
        if verdict.plan:
            texts.setdefault("plan", verdict.plan)
        if verdict.text is not None:
            texts["specialized"] = verdict.text
        return texts


def _taken(fn: Any, make: Callable[[], KernelSource]) -> KernelSource:
    """The source; what Triton does not take of its launch options or arguments becomes one error."""
    try:
        return make()
    except WspecError:
        raise
    except Exception as error:
        said = str(error).strip().split("\n")[0] or type(error).__name__
        raise bad_input(f"Triton does not take this of {fn.__name__}: {said}") from error


def compiler_of(kernel: Any, changes: Mapping[str, Any], plan: Plan | str | Path | None = None) -> _Compiler:
    """The compiler of a kernel already under `wspec.compile`, with changes; a new one for a plain kernel."""
    if not isinstance(kernel, Inspectable):
        return _Compiler(_checked(Options.from_env(**changes)), _read_plan(plan))
    given = kernel.wspec.given_plan if plan is None else _read_plan(plan)
    return _Compiler(_checked(kernel.wspec.options.replace(**changes)), given)


def options_here(options: Options) -> Options:
    """With the description of the card at hand where none is named; in a process of its own the same as in others."""
    return options if options.machine != AUTO else options.replace(machine=machine_here())


def machine_here() -> str:
    """The name of the description of the card at hand."""
    return description_of(bridge.card_name())


def _checked(options: Options) -> Options:
    """The options, once the machine they name is known to be there."""
    try:
        load_machine(options.machine)
    except MachineError as error:
        raise WspecError(Remark("bad-option", f"option 'machine': {error}", severity="error")) from None
    return options


def _read_plan(plan: Plan | str | Path | None) -> Plan | None:
    if plan is None or isinstance(plan, Plan):
        return plan
    try:
        return Plan.from_text(plan.read_text() if isinstance(plan, Path) else plan)
    except (PlanError, OSError) as error:
        raise WspecError(Remark("bad-input", str(error), severity="error")) from None


def _no_stage(source: KernelSource, stage: str, known: tuple[str, ...]) -> WspecError:
    message = f"{source.name} has no stage {stage!r}"
    return WspecError(Remark("bad-input", message, note=f"its stages are: {', '.join(known)}", severity="error"))


# --------------------------------------------------------------------------------------------------- remarks


class _StderrHandler(logging.Handler):
    """Writes to whatever sys.stderr is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


logger = logging.getLogger("wspec")
logger.addHandler(_StderrHandler())
logger.setLevel(logging.INFO)
logger.propagate = False
_LEVELS = {"remark": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_announced: set[str] = set()


def announce(remarks: tuple[Remark, ...], options: Options) -> None:
    """Print remarks as the option `remarks` says; "once" is once in the life of the process for equal remarks."""
    for remark in remarks:
        text = render(remark, context=remark.code != "specialized")
        if options.remarks == "off" or (options.remarks == "once" and text in _announced):
            continue
        _announced.add(text)
        logger.log(_LEVELS[remark.severity], "%s", text)
