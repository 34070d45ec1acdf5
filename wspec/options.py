"""Every option of the compiler, once.

The fields of `Options` are the table: keyword arguments of `wspec.compile`, `WSPEC_*` environment variables,
command-line flags and `docs/options.md` all come from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from wspec.diagnostics import Remark, WspecError

_TRUE = ("1", "true", "on", "yes")
_FALSE = ("0", "false", "off", "no")


@dataclass(frozen=True, slots=True)
class Spec:
    """What an option accepts. `emits` says that it can change the kernel that is emitted, and so the cache key."""

    kind: type
    help: str
    choices: tuple[object, ...] = ()
    low: int = 0
    high: int = 0
    step: int = 1
    optional: bool = False  # None (in text: "auto") lets wspec decide
    emits: bool = True

    def allowed(self) -> str:
        """The allowed values in words."""
        if self.kind is bool:
            text = "0 or 1"
        elif self.choices:
            text = ", ".join(map(str, self.choices))
        elif self.kind is int:
            text = f"{self.low}..{self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")
        else:
            text = "text"
        return text + (", or auto" if self.optional and (self.kind is not str or self.choices) else "")


def _option(default: object, spec: Spec) -> Any:
    return field(default=default, metadata={"spec": spec})


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile; hashable. None means that wspec decides. Raises WspecError on a bad value."""

    enabled: bool = _option(True, Spec(bool, "0 turns the compiler off: every kernel runs as it was"))
    strict: bool = _option(False, Spec(bool, "raise WspecError when a kernel is left alone", emits=False))
    consumers: int | None = _option(
        None, Spec(int, "consumer warp groups that share a tile", low=1, high=3, optional=True)
    )
    depth: int | None = _option(None, Spec(int, "buffers in the ring of a loop channel", low=1, high=16, optional=True))
    blocks: int | None = _option(
        None, Spec(int, "thread blocks that share an SM; registers and rings shrink", low=1, high=4, optional=True)
    )
    persistent: bool | None = _option(
        None, Spec(bool, "as many blocks as fit on the GPU walk through the tiles of the grid", optional=True)
    )
    coarsening: int | None = _option(
        None,
        Spec(int, "consumer warp groups that each work on a tile and share what they stream", low=1, high=4,
             optional=True),
    )  # fmt: skip
    epilogue_overlap: bool | None = _option(
        None, Spec(bool, "where blocks walk through tiles, finish and store one beside the next one's first product",
                   optional=True),
    )  # fmt: skip
    stream_k: bool | None = _option(
        None,
        Spec(
            bool,
            "where blocks walk through tiles, the launch may divide the last ones between two blocks each, the second "
            "of which goes on with the first one's sums: equal work for all, and the same bits. auto: where the model "
            "expects that to be faster; 1: wherever it can be",
            optional=True,
        ),
    )
    raster: bool | None = _option(
        None,
        Spec(
            bool,
            "where blocks walk through tiles, the launch may have those beside each other share an operand, whatever "
            "the order of the grid. auto: the larger one, where a loop waits for what it loads, or one in groups of "
            "tiles, where the grid has none; 1: the larger one",
            optional=True,
        ),
    )
    overlap: bool = _option(True, Spec(bool, "software pipelining inside a consumer: QK of the next tile over softmax"))
    chain: str = _option(
        "auto",
        Spec(
            str,
            "further tasks between or behind loading and multiplying: where the model finds them faster, one wherever "
            "there is a place for it, as many as there are places for, or none",
            ("auto", "on", "all", "off"),
        ),
    )
    value_depth: int | None = _option(
        None, Spec(int, "buffers in the ring of a value that a third task computes", low=1, high=8, optional=True)
    )
    helper_warps: int | None = _option(
        None, Spec(int, "warps of a third task that serves all consumers", choices=(4, 8, 16), optional=True)
    )
    ping_pong: bool | None = _option(
        None, Spec(bool, "consumer warp groups issue their products one after the other", optional=True)
    )
    shared_barriers: bool | None = _option(
        None, Spec(bool, "the tiles that one product reads arrive at one barrier", optional=True)
    )
    elide_barriers: bool | None = _option(
        None,
        Spec(
            bool,
            "take barriers of a task's threads that order nothing out of the specialized kernel's PTX",
            optional=True,
        ),
    )
    hold_waits: bool | None = _option(
        None,
        Spec(
            bool,
            "keep waits for products behind the values that stand before them, which ptxas would move them across",
            optional=True,
        ),
    )
    programmatic_launch: bool | None = _option(
        None,
        Spec(
            bool,
            "blocks start while the kernel before them in the stream still runs, and wait for its end. auto: unless "
            "the model expects products to wait for their tiles, which then arrive later",
            optional=True,
        ),
    )
    interleave_rows: bool = _option(
        True, Spec(bool, "where ptxas computes the rows of a tile one after the other, it is kept from it")
    )
    turned_tiles: bool | None = _option(
        None,
        Spec(
            bool,
            "tiles that are turned or reshaped in registers before a product reads them are loaded ahead of time, too. "
            "auto: where a plan with their rings fits, and compiles to as good code",
            optional=True,
        ),
    )
    packed_dequantization: bool = _option(
        True, Spec(bool, "tiles of floats that are a few bits of a byte are computed several bytes at a time")
    )
    specialize: bool = _option(True, Spec(bool, "0 divides no kernel into tasks; pointers may become descriptors"))
    promote: bool | None = _option(
        None,
        Spec(
            bool,
            "tiles that go through pointers go through tensor descriptors where that is shown to be the same; 1: also "
            "in a kernel that is not specialized, auto: there where it should pay",
            optional=True,
        ),
    )
    operands_only: bool = _option(
        False,
        Spec(
            bool,
            "of tiles that go through pointers only those that go to products go through tensor descriptors; a launch "
            "asks for that by itself where others cannot",
        ),
    )
    staging: str | None = _option(
        None,
        Spec(
            str,
            "shared memory that descriptor stores go through: a buffer of their own, one of half the size for one half "
            "after the other, the buffer of a tile read before, or a whole ring that is done with",
            ("own", "subtiles", "buffer", "ring"),
            optional=True,
        ),
    )
    tune: int = _option(
        0,
        Spec(
            int,
            "on the first launch, time this many plans on the launch's own arguments, the planner's own and those the "
            "model ranks next, and keep the fastest; 0 measures nothing",
            low=0,
            high=16,
            emits=False,
        ),
    )
    trials: int = _option(
        5,
        Spec(
            int,
            "of each size, time so many launches specialized and as many plain ones, in turn and without "
            "waiting, and keep the faster; 0: the model's word is taken",
            low=0,
            high=16,
        ),
    )
    producer_warps: int = _option(
        1, Spec(int, "warps that issue copies; 4 where rows come by cp.async", choices=(1, 2, 4))
    )
    producer_registers: int = _option(
        24, Spec(int, "registers a thread of the producer keeps", low=24, high=256, step=8)
    )
    consumer_registers: int | None = _option(
        None, Spec(int, "registers a thread of a consumer gets", low=24, high=256, step=8, optional=True)
    )
    gate: str = _option(
        "model", Spec(str, "who decides whether specializing pays: the latency model, or nobody", ("model", "off"))
    )
    check: str = _option(
        "strict",
        Spec(
            str,
            "what keeps a specialized kernel from running: whatever the checker cannot prove, the errors it finds, "
            "or nothing: it is not asked",
            ("strict", "errors", "off"),
        ),
    )
    machine: str = _option(
        "auto",
        Spec(str, "machine description the model uses. auto: that of the card at hand, h200 where there is none of it"),
    )
    cache: bool = _option(
        True, Spec(bool, "reuse results on disk, in Triton's cache; 0 compiles afresh in every process", emits=False)
    )
    compile_jobs: int | None = _option(
        None,
        Spec(
            int,
            "processes that compile the configurations of an autotuner side by side; 0 and 1: none, each is compiled "
            "when it is launched. auto: as many as there are cores",
            low=0,
            high=256,
            optional=True,
            emits=False,
        ),
    )
    isolate: bool = _option(
        False, Spec(bool, "run the back end in another process, so that a crash of it is only a remark", emits=False)
    )
    dump: str | None = _option(
        None, Spec(str, "folder to write every stage of every kernel to", optional=True, emits=False)
    )
    remarks: str = _option(
        "once",
        Spec(
            str, "print remarks once per kernel, at every compilation, or never", ("once", "always", "off"), emits=False
        ),
    )

    def __post_init__(self) -> None:
        for name, spec in table().items():
            _check(name, spec, getattr(self, name))

    @staticmethod
    def from_env(env: Mapping[str, str] | None = None, **overrides: Any) -> Options:
        """Overrides over `WSPEC_*` variables over defaults. Unknown names and bad values raise WspecError."""
        env = os.environ if env is None else env
        specs = table()
        unknown = sorted(set(overrides) - set(specs))
        if unknown:
            raise _bad(f"unknown option {unknown[0]!r}", f"options are: {', '.join(specs)}")
        found = {
            name: parse(name, spec, env[env_name(name)]) for name, spec in specs.items() if env.get(env_name(name))
        }
        return Options(**{**found, **overrides})

    def replace(self, **changes: Any) -> Options:
        """The same options with some changed."""
        return dataclasses.replace(self, **changes)

    def digest(self) -> str:
        """A key over the options that can change the emitted kernel."""
        text = ";".join(f"{name}={getattr(self, name)!r}" for name, spec in table().items() if spec.emits)
        return hashlib.sha256(text.encode()).hexdigest()


class OptionArguments(TypedDict, total=False):
    """The options as keyword arguments, for editors and type checkers; a test compares them with `Options`."""

    enabled: bool
    strict: bool
    consumers: int | None
    depth: int | None
    blocks: int | None
    persistent: bool | None
    coarsening: int | None
    epilogue_overlap: bool | None
    stream_k: bool | None
    raster: bool | None
    overlap: bool
    chain: str
    value_depth: int | None
    helper_warps: int | None
    ping_pong: bool | None
    shared_barriers: bool | None
    elide_barriers: bool | None
    hold_waits: bool | None
    programmatic_launch: bool | None
    interleave_rows: bool
    turned_tiles: bool | None
    packed_dequantization: bool
    specialize: bool
    promote: bool | None
    operands_only: bool
    staging: str | None
    tune: int
    trials: int
    producer_warps: int
    producer_registers: int
    consumer_registers: int | None
    gate: str
    check: str
    machine: str
    cache: bool
    compile_jobs: int | None
    isolate: bool
    dump: str | None
    remarks: str


def table() -> dict[str, Spec]:
    """Option name -> what it accepts, in the order of declaration."""
    return {f.name: f.metadata["spec"] for f in dataclasses.fields(Options)}


def env_name(option: str) -> str:
    """The environment variable of an option: depth -> WSPEC_DEPTH."""
    return f"WSPEC_{option.upper()}"


OTHER_VARIABLES = ("WSPEC_SUMMARY", "WSPEC_TEST_JOBS")  # that are no options


def misspelt(env: Mapping[str, str] | None = None) -> list[WspecError]:
    """An error for each `WSPEC_*` variable that is no option's, with the names that are close to it."""
    env = os.environ if env is None else env
    known = [env_name(name) for name in table()]
    found = []
    for name in sorted(name for name in env if name.startswith("WSPEC_") and name not in (*known, *OTHER_VARIABLES)):
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        guess = f"; did you mean {close[0]}?" if close else ""
        found.append(_bad(f"no option has the variable {name}{guess}", "docs/options.md lists them"))
    return found


def flag_name(option: str) -> str:
    """The command-line flag of an option: producer_warps -> --producer-warps."""
    return "--" + option.replace("_", "-")


def default_text(name: str, spec: Spec) -> str:
    """The default, for a person."""
    value = {f.name: f.default for f in dataclasses.fields(Options)}[name]
    if value is None:
        return "none" if spec.kind is str and not spec.choices else "auto"
    return str(int(value)) if isinstance(value, bool) else str(value)


# ------------------------------------------------------------------------------------------------ checking


def parse(name: str, spec: Spec, text: str) -> object:
    """A value from the text of a variable or flag."""
    word = text.strip().lower()
    if spec.optional and word in ("auto", "none", ""):
        return None
    if spec.kind is bool:
        if word not in _TRUE + _FALSE:
            raise _bad_value(name, spec, text)
        return word in _TRUE
    if spec.kind is int:
        try:
            return int(word)
        except ValueError:
            raise _bad_value(name, spec, text) from None
    return text.strip()


def _check(name: str, spec: Spec, value: object) -> None:
    if value is None and spec.optional:
        return
    right_kind = type(value) is spec.kind  # a bool is not an int here
    if not right_kind or (spec.choices and value not in spec.choices) or not _in_range(spec, value):
        raise _bad_value(name, spec, value)


def _in_range(spec: Spec, value: object) -> bool:
    if not isinstance(value, int) or spec.high == 0:
        return True
    return spec.low <= value <= spec.high and (value - spec.low) % spec.step == 0


def _bad_value(name: str, spec: Spec, value: object) -> WspecError:
    return _bad(
        f"option {name!r} ({env_name(name)}, {flag_name(name)}): {value!r} is not allowed", f"allowed: {spec.allowed()}"
    )


def _bad(message: str, note: str) -> WspecError:
    return WspecError(Remark("bad-option", message, note=note, severity="error"))
