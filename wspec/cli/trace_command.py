"""`wspec trace`: the timeline that the simulator predicts for one SM, and how long the launch is expected to take.

With `--measure` the launch is made on a GPU too (trace_measured.py), and stands beside the prediction.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from rich.table import Table

from wspec import ir
from wspec.cli import trace_measured
from wspec.cli.inputs import is_ir, open_input, signature_of
from wspec.cli.modules import invalid, read_module, write_output
from wspec.cli.screen import remark_text, show, working
from wspec.cli.subject import Subject
from wspec.diagnostics import bad_input
from wspec.ir.verify import verify
from wspec.lab.persistent_launch import walked_launch
from wspec.lab.simulate import Edits, Prediction, Simulator
from wspec.lab.simulate.costs import NAMES
from wspec.lab.simulate.power import Draw
from wspec.lab.simulate.timeline import CAUSES, SmResult
from wspec.lab.simulate.trace import trace
from wspec.lab.simulate.walk import Arguments
from wspec.model.machine import load_machine
from wspec.plan.plan import Plan
from wspec.show.tables import table
from wspec.specs.signature import split_items
from wspec.tile_scheduler import TABLE

Grid = tuple[int, int, int]
_MOST_BLOCKS = 32  # that share an SM
_MOST_TILES = 1 << 20  # of a launch; its table and its blocks are held in memory
_MOST_DRAWN = 500_000  # steps of a timeline, 100 MB of JSON


def run(args: argparse.Namespace) -> int:
    """Tables; with `-o` the timeline too. Raises WspecError for what cannot be played, or not measured."""
    if args.measure:
        trace_measured.check(args)
    subject = open_input(args)
    module, title, registers, plan = _module(args, subject)
    simulator = Simulator(module, load_machine(subject.options.machine), registers, edits=Edits.of(plan))
    if args.together is not None and not 1 <= args.together <= _MOST_BLOCKS:
        raise bad_input(f"--sm-blocks: {args.together} is not in 1..{_MOST_BLOCKS}")
    if args.clock and not 100 <= args.clock <= 5000:  # nor what is no number at all
        raise bad_input(f"--clock: {args.clock} MHz is not in 100..5000")
    blocks = args.together or simulator.blocks_per_sm
    given, tiles = _launch(args, simulator)
    _check_size(tiles)
    with working(f"a launch of {_shown(tiles)} is simulated"):
        arguments, grid = _persistent(subject, simulator, given, tiles, blocks)
        prediction = simulator.predict(arguments, grid, args.together, args.clock)
    first = _triple("--program", args.program or "0")
    if any(not 0 <= at < size for at, size in zip(first, grid, strict=True)):
        raise bad_input(f"--program: {args.program} is not in the grid {_shown(grid)}")
    together = prediction.blocks_per_sm
    block = simulator.block(arguments, grid, first)
    steps = together * sum(len(task.actions) for task in block.tasks)
    if args.output is not None and steps > _MOST_DRAWN:
        raise bad_input(
            f"-o: a timeline of {steps} steps is longer than anyone reads, the limit is {_MOST_DRAWN}",
            "a smaller --grid gives each block fewer tiles, and the same timeline of each",
        )
    with working("one program is played"):
        played = simulator.play(block, together, record=args.output is not None)
    walks = f", tiles {_shown(tiles)} walked by {grid[0]} blocks" if grid != tiles or TABLE in arguments else ""
    show(
        f"{title}{walks or f', grid {_shown(grid)}'}",
        "",
        _totals(prediction, simulator.numbers.power.parts(prediction.draw)),
        "",
        _units(prediction),
        "",
        _waits(played, together),
    )
    measured = trace_measured.measure(args) if args.measure else None
    if measured is not None:
        show("", *trace_measured.view(measured, played))
    if args.output is not None:
        assert played.record is not None
        made = trace(played.record, prediction.clock_mhz, f"{title}, program {_shown(first)}")
        if measured is not None:
            made["traceEvents"] += trace_measured.timeline(measured, _number(first, grid))
        write_output(json.dumps(made), args.output)
        if args.output != "-":
            show("", f"{args.output}: open it at https://ui.perfetto.dev")
    return 0


# ---------------------------------------------------------------------------------------------------- what


def _module(args: argparse.Namespace, subject: Subject) -> tuple[ir.Operation, str, int | None, Plan | None]:
    """What would run, how to call it, a thread's registers where the back end has to be asked, and the plan."""
    from wspec import bridge
    from wspec.cli.subject import KernelSubject, source_of

    registers = None
    if is_ir(args.input):
        given = subject.front.reason is not None and subject.front.reason.code == "already-specialized"
        text, what = subject.front.stages["ttgir"], "as given"
        if not given and subject.front.specialized and not args.plain:
            text, what = (
                bridge.final_ttgir(subject.text("specialized"), source_of(subject.text("ttgir"))),
                "specialized",
            )
    else:
        assert isinstance(subject, KernelSubject)
        plain = args.plain or not subject.front.specialized
        if plain and not args.plain and subject.front.reason is not None:
            show(remark_text(subject.front.reason), "")
        source = subject.offline.source
        text = bridge.plain_ttgir(source) if plain else bridge.final_ttgir(subject.text("specialized"), source)
        what = "plain" if plain else "specialized"
        if plain and args.together is None and subject.binary is not None and not subject.front.specialized:
            registers = subject.binary.resources.registers
    module = read_module(text, subject.name)
    if problems := verify(module):
        raise invalid(problems, subject.name)
    return module, f"{subject.name}, {what}", registers, subject.front.plan if what == "specialized" else None


# ------------------------------------------------------------------------------------------------- launches


def _launch(args: argparse.Namespace, simulator: Simulator) -> tuple[dict[str, int | float], Grid]:
    """The integers and the grid: those given, else those of the example."""
    given = _settings(args.set)
    names = list(simulator.program.parameters)
    for name in given:
        if name not in names:
            raise bad_input(f"--set: there is no argument {name!r}", f"there are: {', '.join(names)}")
    missing = [name for name in simulator.missing(given) if name != TABLE]
    if args.grid is not None and not missing:
        return given, _triple("--grid", args.grid)
    lacking = ["--grid X,Y,Z"] if args.grid is None else []
    lacking += [f"--set {','.join(f'{name}=4096' for name in missing)}"] if missing else []
    if is_ir(args.input):
        raise bad_input(f"a launch of {args.input} needs {' and '.join(lacking)}")
    example, grid = _example(args, " and ".join(lacking))
    return {**example, **given}, grid if args.grid is None else _triple("--grid", args.grid)


def _check_size(grid: Grid) -> None:
    """Raises WspecError for a launch of nothing, and for one too large to be held in memory."""
    total = grid[0] * grid[1] * grid[2]
    if not total:
        raise bad_input(f"a grid of {_shown(grid)} launches nothing")
    if total > _MOST_TILES:
        raise bad_input(
            f"a grid of {_shown(grid)} has {total} programs, more than the {_MOST_TILES} that are simulated",
            "time grows with the number of programs once every SM has several: take a smaller grid",
        )


def _example(args: argparse.Namespace, lacking: str) -> tuple[dict[str, int | float], Grid]:
    """The scalars and the grid of the example that the kernel's spec names. Raises WspecError, which says what flags
    are lacking where there is none."""
    from wspec.cli.run_inputs import example_maker, parse_sizes
    from wspec.specs.kernel_file import load_kernel

    kernel = load_kernel(args.input)
    signature, sizes, instead = signature_of(args, kernel), parse_sizes(args.sizes), f", or give {lacking}"
    trial = example_maker(signature, kernel, sizes, outputs=False, instead=instead)(0)
    scalars = {name: value for name, value in trial.arguments.items() if isinstance(value, int | float)}
    return scalars, _three(trial.grid)


def _persistent(
    subject: Subject, simulator: Simulator, arguments: Mapping[str, int | float], grid: Grid, blocks: int
) -> tuple[Arguments, Grid]:
    """Of a kernel that walks through a table of tiles: the table, and as many blocks as run at a time."""
    plan = subject.front.plan
    slots = simulator.machine.sm_count * blocks
    tiles, names = None if plan is None else plan.tile_loop, simulator.program.names
    return walked_launch(tiles, names, arguments, grid, slots, shared=blocks > 1)


def _settings(items: list[str]) -> dict[str, int | float]:
    """`--set a=1,b=2`. Raises WspecError."""
    found: dict[str, int | float] = {}
    for item in (part for text in items for part in split_items(text)):
        name, _, value = (part.strip() for part in item.partition("="))
        try:
            found[name] = int(value, 0)
        except ValueError:
            raise bad_input(f"--set: {item!r} is not NAME=INTEGER", "for example seqlen_k=4096") from None
    return found


def _triple(flag: str, text: str) -> Grid:
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdecimal() for part in parts):
        raise bad_input(f"{flag}: {text!r} is not one to three numbers", f"for example {flag} 32,16,4")
    return _three([int(part) for part in parts], 0 if flag == "--program" else 1)


def _three(sizes: Any, rest: int = 1) -> Grid:
    x, y, z = (*sizes, rest, rest, rest)[:3]
    return x, y, z


def _number(program: Grid, grid: Grid) -> int:
    """Of a block, as blocks are counted."""
    return program[0] + grid[0] * (program[1] + grid[1] * program[2])


def _shown(grid: Grid) -> str:
    return ",".join(map(str, grid))


# --------------------------------------------------------------------------------------------------- tables


def _totals(one: Prediction, power: Draw) -> Table:
    made = table("", "", "", right=())
    made.title = "predicted"
    rows = {
        "time": f"{one.microseconds:.1f} us: {one.cycles:.0f} cycles at {one.clock_mhz:.0f} MHz",
        "dots": f"{one.tflops:.0f} TFLOP/s",
        "power": f"{_power(power)} of what the card may draw",
        "blocks": f"{one.blocks}, {one.blocks_per_sm} an SM, {one.waves:.1f} waves",
        "bound": f"{NAMES[one.bound]}, busy {100 * one.utilization[one.bound]:.0f} % of the time",
    }
    for name, value in rows.items():
        made.add_row(name, value)
    made.show_header = False
    return made


def _power(parts: Draw) -> str:
    names = ("tensor cores", "instructions", "L2 to SMs", "reading L2", "memory")
    return ", ".join(f"{name} {100 * part:.0f} %" for name, part in zip(names, astuple(parts), strict=True))


def _units(one: Prediction) -> Table:
    made = table("units, busy", *(NAMES[unit] for unit in one.utilization), right=NAMES.values())
    made.add_row(*(f"{100 * share:.0f} %" for share in one.utilization.values()))
    return made


def _waits(one: SmResult, together: int) -> Table:
    """Of one program, as many of it as share an SM; only causes that occur."""
    causes = [cause for cause in CAUSES if any(waits.get(cause, 0.0) >= 0.5 for waits in one.waits.values())]
    several = f", {together} of it on the SM" if together > 1 else ""
    made = table(
        f"one program{several}: {one.cycles:.0f} cycles; waiting for, cycles", "warp group", *causes, right=causes
    )
    for track, waits in sorted(one.waits.items()):
        made.add_row(track, *(f"{waits.get(cause, 0.0):.0f}" for cause in causes))
    return made
