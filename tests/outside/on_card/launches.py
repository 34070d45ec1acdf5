"""Every launch of a kernel twice: as Triton launches it, and as `wspec.enable()` has it launched.

An entry runs on, whatever comes of that, with what the plain kernel wrote.
"""

from __future__ import annotations

import gc
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from tests.outside.on_card import compare
from tests.outside.on_card.turns import Turns
from wspec import ir
from wspec.bridge import Result, WspecFunction, generic_text, overlap_guard, reparse
from wspec.everywhere import Enabled
from wspec.lab.bench.timing import Variant, measure
from wspec.plan.plan import Plan

MOST = 2
"""Different launches of one kernel that are looked at in one run of an entry."""

SECONDS = 45
"""A launch that takes longer hangs; its process ends."""

BLOCK_SHARED_BYTES = 232448
CONFIGURATIONS = 4  # of an autotuner that are compiled to find one that fits
OTHERS_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint", "num_buffers_warp_spec",
                  "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer")  # fmt: skip
"""Launch options of other vendors' Tritons, which libraries pass to all."""

BY_THE_GATE = ("gate-slower", "short-loop", "serialized-wgmma", "registers")
"""Reasons for which a kernel that could be specialized is not; `gate="off"` specializes it."""

LOOPS = ("scf.for", "scf.while")

Tell = Callable[[dict[str, Any]], None]


@dataclass
class Ours:
    """What became of a launch under wspec."""

    kind: str = "left alone"  # "specialized", "promoted", "left alone" or "failed"
    code: str = ""  # of the reason
    why: str = ""
    guard: bool = False  # this launch ran the plain kernel
    verdict: str = "not run"
    unequal: int = 0
    largest: float = 0.0
    noise: float = 0.0
    informative: int = 0
    spills: int = 0
    registers: int = 0
    warps: int = 0
    predicted: float | None = None  # time of the plain loop over ours, by the model
    microseconds: float | None = None
    plain_microseconds: float | None = None  # in the same rounds
    ratio: float | None = None  # plain time over ours, where the binaries differ
    spread: float | None = None  # distance between the quartiles of the rounds' ratios
    compile_seconds: float = 0.0


@dataclass
class Row:
    """A launch of a kernel."""

    entry: str
    sizes: str
    kernel: str
    arguments: str = ""
    grid: tuple[int, ...] = ()
    product: str = "none"  # on the tensor cores: "loop", "no loop", "none"
    spills: int = 0
    registers: int = 0
    warps: int = 0
    plain_seconds: float = 0.0  # to compile
    default: Ours = field(default_factory=Ours)
    off: Ours | None = None  # without the gate, and without trials
    error: str = ""


class Noting(Enabled):
    """`wspec.enable` that notes with each kernel what became of it."""

    def _copy(self, kernel: Any) -> Any:
        copy = super()._copy(kernel)
        if copy is None:
            return None
        load = copy._load

        def noting(source: Any, result: Result, group: Any) -> Any:
            made = load(source, result, group)
            made.on_card = result
            return made

        copy._load = noting
        return copy

    def launch(self, kernel: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """As a launch of the kernel while this switch is the last one that is on."""
        return self._switch.launch(kernel, original, args, kwargs)


class Watch:
    """Takes the place of `JITFunction.run` and of autotuning in this process, for good."""

    def __init__(self, turns: Turns, tell: Tell, timed: bool = True, pretend: bool = False) -> None:
        """`pretend`: there is no card; what is looked at is compiled, and nothing is launched."""
        self.turns, self.tell, self.timed, self.pretend = turns, tell, timed, pretend
        self.entry, self.sizes = "", ""
        self.wanted: frozenset[str] = frozenset()
        self.pick: Any = None
        self.seen: dict[str, set[str]] = {}
        self.guarded = 0
        self.phase = ""
        self.original: Any = JITFunction.run
        autotuned, heuristics = Autotuner.run, Heuristics.run
        self.off = Noting(remarks="off", gate="off")
        self.default = Noting(remarks="off")  # the last one counts
        self._routed: Any = JITFunction.run
        Heuristics.run, Autotuner.run = heuristics, autotuned
        watch = self

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            return watch.run(kernel, args, kwargs)

        def choose(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
            return watch.choose(autotuner, args, kwargs)

        JITFunction.run, Autotuner.run = run, choose
        plain_launch = overlap_guard.Plain.launch

        def noting_plain(plain: Any, *args: Any, **kwargs: Any) -> Any:
            watch.guarded += 1
            return plain_launch(plain, *args, **kwargs)

        overlap_guard.Plain.launch = noting_plain  # type: ignore[method-assign]

    def begin(self, entry: str, sizes: str, wanted: Sequence[str], pick: Any) -> None:
        """The launches that follow are this entry's, and the kernels of these names are looked at."""
        self.entry, self.sizes, self.wanted, self.pick = entry, sizes, frozenset(wanted), pick
        self.seen = {}

    # ---- what replaces Triton's

    def choose(self, autotuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch one configuration, as a person who cannot measure would choose it."""
        autotuner.nargs = dict(zip(autotuner.arg_names, args, strict=False))
        config = self._configuration(autotuner, args, kwargs)
        autotuner.best_config = config
        _hook(config, autotuner, kwargs)
        try:
            return autotuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})
        finally:
            autotuner.nargs = None

    def _configuration(self, autotuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = autotuner.__dict__.setdefault("on_card_choice", {})
        key = _text((*args, *kwargs.values()))
        if key not in known:
            known[key] = self._first_that_fits(autotuner, args, kwargs)
        return known[key]

    def _first_that_fits(self, autotuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = {**autotuner.nargs, **kwargs}
        try:
            configs = autotuner.prune_configs(kwargs)
        except Exception:
            configs = autotuner.configs
        given = self.pick(autotuner.base_fn.__name__, configs, named) if self.pick is not None else None
        if given is not None or len(configs) == 1:
            return given or configs[0]
        ranked = sorted(configs, key=likely, reverse=True)
        found = []
        may_spill = autotuner.base_fn.__name__ not in self.wanted
        with self.turns.away():
            for config in ranked[:CONFIGURATIONS]:
                _hook(config, autotuner, kwargs)
                try:
                    made = autotuner.fn.run(*args, **{**kwargs, **config.all_kwargs(), "warmup": True})
                    shared, spills = made.metadata.shared, 0 if self.pretend else _spills(made)
                except Exception:
                    continue
                if shared <= BLOCK_SHARED_BYTES and (may_spill or not spills):
                    return config
                if shared <= BLOCK_SHARED_BYTES:
                    found.append((spills, config))
        return min(found, key=lambda one: one[0])[1] if found else ranked[0]

    def run(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kwargs = {k: v for k, v in kwargs.items() if k not in OTHERS_OPTIONS or k in kernel.arg_names}
        triton.set_allocator(scratch)  # of this thread, which may be autograd's
        name = kernel.fn.__name__
        ours = isinstance(kernel, WspecFunction)
        if ours or kwargs.get("warmup"):
            return self.original(kernel, *args, **kwargs)
        if name not in self.wanted or not self._is_new(name, args, kwargs):
            return None if self.pretend else self.original(kernel, *args, **kwargs)
        row = Row(self.entry, self.sizes, name, _text(args, 400), _grid(kernel, args, kwargs))
        self.tell({"event": "begin", "entry": self.entry, "sizes": self.sizes, "kernel": name})
        compiled = None
        self.phase = "compiling"
        try:
            compiled = self._looked_at(row, kernel, args, kwargs)
        except torch.cuda.OutOfMemoryError as error:
            row.error = f"{self.phase}: out of memory: {_first_line(error)}"
            torch.cuda.empty_cache()
        except Exception as error:
            traceback.print_exc()
            row.error = f"{self.phase}: {type(error).__name__}: {_first_line(error)}"
            if is_lost(str(error)):
                self.tell({"event": "row", **asdict(row)})
                raise
        self.tell({"event": "row", **asdict(row)})
        return self.original(kernel, *args, **kwargs) if row.error else compiled

    def _is_new(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        seen = self.seen.setdefault(name, set())
        key = _text((*args, *(value for key, value in sorted(kwargs.items()) if key not in ("grid", "warmup"))))
        if key in seen or len(seen) >= MOST:
            return False
        seen.add(key)
        return True

    # ---- a launch

    def _looked_at(self, row: Row, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def plain_run() -> Any:
            return self.original(kernel, *args, **kwargs)

        variants = [(row.default, lambda: self._routed(kernel, *args, **kwargs))]
        with self.turns.away():
            start = time.perf_counter()
            plain = self.original(kernel, *args, **{**kwargs, "warmup": True})
            row.plain_seconds = time.perf_counter() - start
            row.product = product(plain.asm["ttgir"])
            warm = {**kwargs, "warmup": True}
            made = [self._made(row.default, lambda: self._routed(kernel, *args, **warm))]
            if row.product != "none" and (row.default.code in BY_THE_GATE or row.default.kind == "specialized"):
                row.off = Ours()
                made.append(self._made(row.off, lambda: self.off.launch(kernel, self.original, args, warm)))
                variants.append((row.off, lambda: self.off.launch(kernel, self.original, args, kwargs)))
        if self.pretend:
            return plain
        memory = compare.memory_of(list(tensors((*args, *kwargs.values()))))
        runs = [
            self._watched(run, "ours" if noted is row.default else "off", noted)
            for (noted, run), one in zip(variants, made, strict=True)
            if one is not None
        ]
        done = [noted for (noted, _), one in zip(variants, made, strict=True) if one is not None]
        found = compare.compared(memory, self._watched(plain_run, "plain"), runs)
        row.spills, row.registers, row.warps = _spills(plain), plain.n_regs, plain.metadata.num_warps
        for noted, agreed in zip(done, found, strict=True):
            noted.verdict, noted.unequal, noted.largest = agreed.verdict, agreed.unequal, agreed.largest
            noted.noise, noted.informative = agreed.noise, agreed.informative
        for (noted, _), one in zip(variants, made, strict=True):
            if one is not None:
                noted.spills, noted.registers, noted.warps = _spills(one), one.n_regs, one.metadata.num_warps
        timed = [
            (noted, run)
            for (noted, run), one in zip(variants, made, strict=True)
            if one is not None and self.timed and _binary(one) != _binary(plain) and not noted.guard
        ]
        if timed:
            self._now("timing")
            self._timed(memory, plain_run, timed)
        return plain

    def _now(self, phase: str) -> None:
        self.phase = phase
        self.tell({"event": "phase", "phase": phase})

    def _made(self, noted: Ours, run: Callable[[], Any]) -> Any | None:
        """The compiled kernel under wspec; None where there is none to be launched."""
        start = time.perf_counter()
        try:
            made = run()
        except Exception as error:
            traceback.print_exc()
            noted.kind, noted.why = "failed", f"{type(error).__name__}: {_first_line(error)}"
            return None
        finally:
            noted.compile_seconds = time.perf_counter() - start
        result: Result | None = getattr(made, "on_card", None)
        if result is None:
            noted.why = "nothing is known of it"
            return made
        noted.kind = "specialized" if result.specialized else "promoted" if result.promotion else "left alone"
        if result.reason is not None:
            noted.code, noted.why = result.reason.code, result.reason.message[:200]
        if result.plan:
            expected = Plan.from_text(result.plan).prediction
            if expected.iteration_cycles:
                noted.predicted = expected.plain_iteration_cycles / expected.iteration_cycles
        return made

    def _watched(self, run: Callable[[], Any], phase: str, noted: Ours | None = None) -> Callable[[], None]:
        """The launch, to its end; ends the process if there is none."""

        def watched() -> None:
            self._now(phase)
            signal.alarm(SECONDS)
            before = self.guarded
            run()
            synchronize()
            signal.alarm(0)
            if noted is not None:
                noted.guard = self.guarded > before

        return watched

    def _timed(
        self, memory: compare.Memory, plain: Callable[[], Any], ours: Sequence[tuple[Ours, Callable[[], Any]]]
    ) -> None:
        """Time against the plain kernel, in rounds; memory is as it was afterwards."""
        kept = {address: flat.clone() for address, flat in memory.items()}
        with self.turns.alone():
            signal.alarm(2 * SECONDS)
            for _, run in ours:
                _tried(run)
            gc.freeze()  # PyTorch collects garbage before it captures a graph
            runs = {"plain": plain, **{str(at): run for at, (_, run) in enumerate(ours)}}
            many = repeats(plain)
            variants = [Variant(name, (_repeated(run, many),)) for name, run in runs.items()]
            try:
                found = measure(variants, rounds=11, window_ms=1.5, graph=True, warm=2)
            except Exception:
                traceback.print_exc()
                synchronize()
                found = measure(variants, rounds=7, window_ms=1.5, graph=False, warm=1)
            signal.alarm(0)
        for at, (noted, _) in enumerate(ours):
            time_of, expected = found[str(at)], found["plain"]
            noted.microseconds, noted.plain_microseconds = time_of.median_us / many, expected.median_us / many
            noted.ratio, noted.spread = time_of.speedup_over(expected), time_of.speedup_spread(expected)
        for address, flat in kept.items():
            memory[address].copy_(flat)


# ----------------------------------------------------------------------------------------------- parts


def is_lost(message: str) -> bool:
    """Can a process that was told so not use its card any more?"""
    return "CUDA error" in message or "[CUDA]" in message


def likely(config: Any) -> tuple[Any, ...]:
    """Of an autotuner's configurations: the largest tile up to 128 x 256 x 64 first, 4 warps up to 128 x 128 and 8
    above, 3 stages."""
    tiles = [value for name, value in config.kwargs.items() if _is_tile(name, value)]
    volume, area = 1, 1
    for tile in tiles:
        volume *= max(tile, 1)
    for tile in sorted(tiles)[-2:]:
        area *= max(tile, 1)
    warps = 8 if area > 128 * 128 else 4
    return (
        volume if volume <= 128 * 256 * 64 else 0, config.num_warps == warps, config.num_warps in (4, 8),
        -abs(config.num_stages - 3), -config.num_warps,
    )  # fmt: skip


def _is_tile(name: str, value: Any) -> bool:
    if type(value) is not int or "GROUP" in name.upper():
        return False
    return any(word in name.upper() for word in ("BLOCK", "BK", "BV", "BT", "BS", "TILE", "BM", "BN"))


def _hook(config: Any, autotuner: Any, kwargs: dict[str, Any]) -> None:
    if config.pre_hook is not None:
        config.pre_hook({**autotuner.nargs, **kwargs, **config.all_kwargs()})


def tensors(values: Any) -> Iterator[Tensor]:
    """The tensors among arguments, and those inside descriptors and tuples."""
    for value in values:
        if isinstance(value, Tensor):
            yield value.detach()
        elif isinstance(value, (tuple, list)):
            yield from tensors(value)
        elif isinstance(getattr(value, "base", None), Tensor):
            yield value.base.detach()


def product(ttgir: str) -> str:
    """Where a kernel multiplies with wgmma: "loop", "no loop" or "none"."""
    if "warp_group_dot" not in ttgir:
        return "none"
    try:
        module = ir.read(generic_text(reparse(ttgir)))
    except Exception:  # a kernel in which something is that wspec cannot read
        return "loop" if any(name in ttgir.partition("warp_group_dot")[0] for name in LOOPS) else "no loop"
    dots = [op for op in module.walk() if op.name == "ttng.warp_group_dot"]
    return "loop" if any(one.name in LOOPS for dot in dots for one in dot.ancestors()) else "no loop"


def _tried(run: Callable[[], Any]) -> None:
    """Launch it until its trial is over, the card always busy with something else when a launch is made."""
    other = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    for _ in range(5):
        for _ in range(8):
            other.zero_()
            run()
        synchronize()


def repeats(run: Callable[[], Any]) -> int:
    """How many launches make a tenth of a millisecond, at most 20: so much the host takes to replay a graph."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    run()
    start.record()
    for _ in range(5):
        run()
    stop.record()
    stop.synchronize()
    return max(1, min(20, round(0.1 / max(1e-3, start.elapsed_time(stop) / 5))))


def _repeated(run: Callable[[], Any], times: int) -> Callable[[], None]:
    def many() -> None:
        for _ in range(times):
            run()

    return many


_scratch: dict[int, Tensor] = {}


def scratch(size: int, alignment: int, stream: int | None) -> Tensor:
    """Memory that kernels make descriptors in: of one stream, so that one piece of each size is enough."""
    if size not in _scratch:
        _scratch[size] = torch.empty(size, dtype=torch.int8, device="cuda")
    return _scratch[size]


def synchronize() -> None:
    torch.cuda.synchronize()


def _spills(compiled: Any) -> int:
    """Registers spilled, once the kernel is loaded."""
    compiled._init_handles()
    return int(compiled.n_spills or 0)


def _binary(compiled: Any) -> bytes:
    return bytes(compiled.asm["cubin"])


def _grid(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    grid = kwargs["grid"]
    if callable(grid):
        grid = grid({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
    return tuple(int(one) for one in (grid if isinstance(grid, (tuple, list)) else (grid,)))


def _text(values: Any, most: int = 10_000) -> str:
    """Arguments as types, shapes and numbers."""
    said = []
    for value in values:
        if isinstance(value, Tensor):
            said.append(f"{str(value.dtype)[6:]}{list(value.shape)}")
        elif isinstance(getattr(value, "base", None), Tensor):
            said.append(f"desc {str(value.base.dtype)[6:]}{list(value.shape)}{list(value.block_shape)}")
        elif value is None or isinstance(value, (int, float, str)):
            said.append(str(value))
        elif isinstance(value, (tuple, list)):
            said.append(f"({_text(value, most)})")
    return ", ".join(said)[:most]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
