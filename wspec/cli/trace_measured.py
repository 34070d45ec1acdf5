"""`wspec trace --measure`: the kernel on the GPU at hand, with stamps and without, beside what was predicted."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table

from wspec.cli.inputs import given_options, is_ir, read_plan, signature_of
from wspec.cli.run_inputs import Trial, example_maker, parse_sizes
from wspec.diagnostics import bad_input, place_text
from wspec.lab.simulate.timeline import SmResult
from wspec.lab.trace import Recording, Tracer
from wspec.lab.trace.summary import PARTS, event_times, measured_parts, predicted_parts, tile_cycles
from wspec.lab.trace.timeline import measured_events, title
from wspec.options import table as compiler_options
from wspec.show.tables import table
from wspec.specs.kernel_file import load_kernel
from wspec.specs.signature import Signature

PROCESS = 3  # the predicted timeline has 1 and 2
_BLOCK = re.compile(r"tensordesc<\w+\[([\d, ]+)\]")


@dataclass(frozen=True, slots=True)
class Measured:
    """What the card said."""

    recording: Recording
    card: str
    normal_us: float  # medians over rounds that took turns
    stamped_us: float
    same: bool  # the outputs, to the bit
    spills: str  # what ptxas said of the instrumented kernel

    @property
    def overhead(self) -> float:
        """Time with stamps over time without."""
        return self.stamped_us / self.normal_us


def check(args: argparse.Namespace) -> None:
    """Raises WspecError where nothing can be measured; asks before anything is compiled."""
    from wspec.lab.bench.environment import NoGpu, require_hopper

    if is_ir(args.input):
        raise bad_input(f"--measure launches a kernel, but {args.input} is TTGIR")
    for flag in ("grid", "set", "plain", "together"):
        if getattr(args, flag):
            name = {"together": "sm-blocks"}.get(flag, flag)
            raise bad_input(f"--{name} and --measure do not go together", "--sizes says how large the example is")
    try:
        require_hopper()
    except NoGpu as error:
        raise bad_input(f"--measure: {error}") from None


def measure(args: argparse.Namespace) -> Measured:
    """Launch the example that the kernel's spec names. Raises WspecError."""
    from wspec import api
    from wspec.lab.bench.timing import Variant
    from wspec.lab.bench.timing import measure as ping_pong

    kernel = load_kernel(args.input)
    signature = signature_of(args, kernel)
    trial = example_maker(signature, kernel, parse_sizes(args.sizes), outputs=False)(args.seed)
    known = {name: value for name, value in signature.options.items() if name in compiler_options()}
    options = {**known, **given_options(args)}
    plan = read_plan(args.plan)
    tracer = Tracer(kernel.function, detail=args.detail, plan=plan, **options)
    normal = api.compile(tracer.kernel.plain, plan=plan, **options)
    launches = {"normal": Launch.of(signature, trial, normal), "stamped": Launch.of(signature, trial, tracer.kernel)}
    for launch in launches.values():
        launch.run()
    torch.cuda.synchronize()
    same = all(map(_same, *(launch.tensors for launch in launches.values())))
    variants = [Variant(name, (launch.run,)) for name, launch in launches.items()]
    timings = ping_pong(variants, rounds=9)
    tracer.clear()
    launches["stamped"].run()
    spills = next((line.strip() for line in tracer.ptxas_log.splitlines() if "spill" in line), "")
    card = torch.cuda.get_device_name()
    times = (timings["normal"].median_us, timings["stamped"].median_us)
    return Measured(tracer.recording(), card, *times, same, spills)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit: a NaN is the same as itself."""
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of the example on the GPU, with tensors of its own."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    tensors: tuple[torch.Tensor, ...]

    @staticmethod
    def of(signature: Signature, trial: Trial, kernel: Any) -> Launch:
        """Copy the tensors to the card; those that stand for descriptors get one."""
        from wspec import bridge

        on_card = {name: value.cuda() for name, value in trial.arguments.items() if isinstance(value, torch.Tensor)}
        arguments = {**trial.arguments, **on_card}
        for name, type in signature.types.items():
            if type.endswith(":1"):
                arguments[name] = 1
            if (found := _BLOCK.match(type.strip())) is not None:
                block = [int(size) for size in found[1].split(",")]
                arguments[name] = bridge.host_descriptor(on_card[name], block)
        launch = {name: value for name, value in signature.options.items() if name not in compiler_options()}
        return Launch(kernel, trial.grid, {**arguments, **signature.values, **launch}, tuple(on_card.values()))

    def run(self) -> None:
        self.kernel[self.grid](**self.arguments)


def timeline(measured: Measured, block: int) -> list[dict[str, Any]]:
    """Trace events of the SM that ran a block; of the first where the block was not recorded."""
    recording = measured.recording
    block = block if block < recording.blocks else 0
    return list(measured_events(recording, block, recording.clock_mhz() or 1.0, PROCESS))


# --------------------------------------------------------------------------------------------------- tables


def view(measured: Measured, played: SmResult) -> Iterator[Table | str]:
    """What is printed."""
    yield _totals(measured)
    yield ""
    yield _beside(measured.recording, played)
    for task in range(len(measured.recording.made.tasks)):
        yield ""
        yield _events(measured.recording, task)
    if any(not track.whole for track in measured.recording.tracks()):
        rows = measured.recording.made.layout.rows
        yield ""
        yield f"of some warp groups only the first {rows} events were kept"


def _totals(one: Measured) -> Table:
    made = table(f"measured on {one.card}", "", "")
    made.show_header = False
    percent = 100 * (one.overhead - 1)
    rows = {
        "time": f"{one.normal_us:.1f} us",
        "with stamps": f"{one.stamped_us:.1f} us, {one.overhead:.3f} x: an overhead of {percent:.1f} %",
        "clock": f"{one.recording.clock_mhz():.0f} MHz while stamps were written",
        "results": "the same bits with stamps" if one.same else "NOT the same bits with stamps",
        "registers": one.spills,
        "a tile": _tiles(one.recording),
    }
    for name, value in rows.items():
        made.add_row(name, value)
    return made


def _tiles(recording: Recording) -> str:
    """How long the first task is at a tile."""
    tracks = [recording.track(block, 0) for block in range(recording.blocks)]
    cycles = sorted(int(each) for track in tracks for each in tile_cycles(track, recording))
    if not cycles:
        return "one for each block"
    return f"{cycles[len(cycles) // 2]} cycles from begin to begin, the median of {len(cycles)}"


def _beside(recording: Recording, played: SmResult) -> Table:
    """Predicted and measured shares of each task's time."""
    made = table("share of the time, %", "warp group", "", *PARTS, right=PARTS)
    groups = sorted(played.waits)[: len(recording.made.tasks)]
    for task, name in enumerate(recording.made.tasks):
        if task < len(groups):
            shares = predicted_parts(played.waits[groups[task]], played.cycles)
            made.add_row(name, "predicted", *(f"{100 * shares[part]:.1f}" for part in PARTS))
        shares = measured_parts(recording, task)
        made.add_row(name, "measured", *(f"{100 * shares[part]:.1f}" for part in PARTS))
    return made


def _events(recording: Recording, task: int) -> Table:
    """In the order of the code."""
    numbers = ("times", "mean", "median", "share %")
    made = table(f"{recording.made.tasks[task]}, cycles", "what", "operation", "line", *numbers, right=numbers)
    for one in event_times(recording, task):
        line = place_text(one.event.location).rpartition("/")[2]
        what = title(one.event).rpartition(", ")[0] or title(one.event)
        operation = one.event.operation.partition(".")[2]
        row = (f"{one.count}", f"{one.mean:.0f}", f"{one.median:.0f}", f"{100 * one.share:.1f}")
        made.add_row("tile begins" if one.event.begins_tile else what, operation, line, *row)
    return made
