"""The command line's grammar. Commands are imported when they run, so that `--help` is quick."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import NoReturn

from wspec.cli.inputs import IR_SUFFIXES, add_input, add_plan_and_options
from wspec.model.machine import available
from wspec.version import VERSION

FORMS = ("generic", "short", "brief", "pretty")
_EXAMPLES = """examples:
  wspec demo
  wspec compile kernels/attention.py:attention_fwd --variant d128_causal
  wspec plan    kernels/matmul.py:matmul_descriptor_kernel --depth 3
  wspec explain kernels/elementwise.py:softmax_kernel
  wspec check   kernels/attention.py:attention_fwd --all
  wspec run     kernels/attention.py:attention_fwd --variant d64_causal --seeds 5
  wspec trace   kernels/attention.py:attention_fwd -o timeline.json
  wspec dump    kernels/attention.py:attention_fwd --diff split slice_tile
  wspec dump    kernels/attention.py:attention_fwd --stage split | wspec opt - --form brief
  wspec run-with train.py --epochs 3

exit codes: 0 done; 1 failed (also: not proved, or left alone under --strict 1); 2 the input cannot be used"""


class _Parser(argparse.ArgumentParser):
    """One line on an error, and where to read on."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\nnote: see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """The whole grammar; the chosen command is `args.run`."""
    parser = _Parser(
        prog="wspec",
        description="Makes Triton kernels warp-specialized on Hopper GPUs, and says what it did and why.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"wspec {VERSION}")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    known = (_compile, _plan, _explain, _check, _dump, _graph, _run, _run_with, _trace, _opt, _bench, _calibrate, _demo)
    for add in known:
        add(commands)
    return parser


def _command(commands: argparse._SubParsersAction[_Parser], name: str, text: str, more: str = "") -> _Parser:
    made = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip(), allow_abbrev=False
    )
    made.set_defaults(run=_lazily(name))
    return made


def _lazily(name: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        module = importlib.import_module(f"wspec.cli.{name.replace('-', '_')}_command")
        command: Callable[[argparse.Namespace], int] = module.run
        return command(args)

    return run


def _compile(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(commands, "compile", "compile to a cubin; print remarks, plan and resources")
    add_input(made)
    made.add_argument("-o", "--output", metavar="FOLDER", help="write every stage and the cubin there")


def _plan(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "plan", "show the plan: tasks, channels, the schedule of each loop, and the plans that lost and why",
        "With --plan FILE that plan is checked against the kernel and shown.",
    )  # fmt: skip
    add_input(made)
    made.add_argument("--toml", action="store_true", help="print the plan's text, to be edited and given to --plan")
    made.add_argument("--json", metavar="FILE", help="write plan, schedules and runners-up there; - for nothing else")
    made.add_argument(
        "--no-runners-up", action="store_true", help="do not look for other plans and simulate them (up to 2 s)"
    )
    made.add_argument("-o", "--output", metavar="FILE", help="write the plan's text to a file")


def _explain(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(commands, "explain", "say what was done and why, or why not and what to change")
    add_input(made)


def _check(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "check", "prove that it has no deadlock and no race, for any trip count, or say what is wrong",
        "A kernel is specialized first; one that is left alone is checked as Triton itself compiles it. A module is "
        "checked as it is: wspec's, Triton's, Gluon's or one of your own.",
    )  # fmt: skip
    add_input(made)
    which = made.add_mutually_exclusive_group()
    which.add_argument(
        "--stage", choices=CHECK_STAGES,
        help="of a kernel: what is compiled (final), that before Triton's last passes, which add fences (specialized), "
        "or what is specialized (ttgir); default final",
    )  # fmt: skip
    which.add_argument("--plain", action="store_true", help="what Triton itself makes of the kernel")
    made.add_argument("--all", action="store_true", help="every variant of the kernel's spec")
    made.add_argument(
        "--disjoint", metavar="PAIRS",
        help="of a module: arguments to take for not overlapping, as a:b,c:d, or all; a kernel's are those that its "
        "launches compare",
    )  # fmt: skip
    made.add_argument("--limit", type=float, default=20.0, metavar="S", help="seconds to search (default %(default)s)")
    made.add_argument("--json", metavar="FILE", help="write the verdict and the findings there too; - for nothing else")


def _dump(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "dump", "print a stage, or what changed between two",
        "Every module reads back with `wspec opt -`, the plan with `--plan`, the graph with `wspec graph`.",
    )  # fmt: skip
    add_input(made)
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--stage", metavar="STAGE", help="ttir, ttgir, graph, plan, a pass, final, ptx, sass, ...")
    what.add_argument("--list", action="store_true", help="the stages there are, and what each is")
    what.add_argument("--diff", nargs=2, metavar=("OLD", "NEW"), help="a unified diff of two stages, in brief form")
    _add_form(made)
    made.add_argument("-o", "--output", metavar="FILE", help="write to a file")


def _add_form(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--form", choices=FORMS, default="generic",
        help="generic: exact, with locations; short: generic with the names of the source, no locations; "
        "brief: for people, nothing reads it back; pretty: Triton's own syntax (default %(default)s)",
    )  # fmt: skip


def _graph(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "graph", "draw the dataflow graph, coloured by task",
        "INPUT may also be a graph that `wspec dump --stage graph` wrote (FILE.json).",
    )  # fmt: skip
    add_input(made)
    what = made.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", help="every operation, not those in and around hot loops alone")
    what.add_argument("--tasks", action="store_true", help="the plan's tasks and rings in place of operations (SVG)")
    made.add_argument("--format", choices=("dot", "svg", "json"), help="default: by FILE's ending, else dot")
    made.add_argument("-o", "--output", metavar="FILE", help="write to a file")


def _run(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "run", "run it on the CPU, plain and specialized, and compare with float64",
        "Inputs come from the example that the kernel's spec names, or from --random. Slow, and exact about barriers, "
        "copies and tensor cores: what no correct kernel does is an error, with a replay.",
    )  # fmt: skip
    add_input(made)
    made.add_argument("--seeds", type=int, default=3, metavar="N", help="inputs and orders (default %(default)s)")
    made.add_argument("--first-seed", type=int, default=0, metavar="N", help="the first of them (default %(default)s)")
    made.add_argument("--sizes", metavar="A=N,...", default="", help="of the example; with --random every argument")
    made.add_argument(
        "--schedule", choices=SCHEDULES, default="both",
        help="who goes when several may: random, adversarial, both, or first: in order (default %(default)s)",
    )  # fmt: skip
    which = made.add_mutually_exclusive_group()
    which.add_argument("--plain-only", action="store_true", help="do not run the specialized kernel")
    which.add_argument("--specialized-only", action="store_true", help="do not run the plain kernel")
    which.add_argument("--replay", metavar="FILE", help="repeat the failure that a run wrote there")
    made.add_argument("--random", action="store_true", help="no example: random tensors of the sizes given")
    made.add_argument("--grid", metavar="X,Y,Z", help="the grid, with --random (default 1)")
    made.add_argument(
        "--record", metavar="FILE", default="wspec-replay.json", help="where a failure goes (default %(default)s)"
    )


def _trace(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "trace", "predict the timeline on an SM, and the time of a launch; no GPU needed",
        "The launch is that of the example that the kernel's spec names; --grid and --set describe another. -o writes "
        "the timeline of one block, and of those that share its SM, for https://ui.perfetto.dev. With --measure the "
        "example is launched on the GPU at hand, by a kernel that writes down when its warp groups wait and work.",
    )  # fmt: skip
    add_input(made)
    made.add_argument("--grid", metavar="X,Y,Z", help="the grid of the launch")
    made.add_argument(
        "--set", metavar="NAME=N,...", action="append", default=[], help="integer arguments of the launch"
    )
    made.add_argument("--sizes", metavar="A=N,...", default="", help="of the example")
    made.add_argument("--program", metavar="X,Y,Z", help="whose timeline (default 0,0,0)")
    made.add_argument("--sm-blocks", dest="together", type=int, metavar="N", help="blocks that share an SM")
    made.add_argument("--plain", action="store_true", help="what Triton itself makes of the kernel")
    made.add_argument("--clock", type=float, default=0.0, metavar="MHZ", help="default: the machine's highest")
    made.add_argument("-o", "--output", metavar="FILE", help="write the timeline there, as JSON; - for standard output")
    made.add_argument("--measure", action="store_true", help="measure it too, beside the prediction; needs a GPU")
    made.add_argument(
        "--detail", choices=DETAILS, default="all",
        help="what --measure stamps: the begin of tiles, loops too, or every wait, dot and store (default %(default)s)",
    )  # fmt: skip
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of the example's inputs (default %(default)s)")


def _opt(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "opt", "read a module, run passes on it, print it",
        "Without --passes this checks reader, verifier and printer.",
    )  # fmt: skip
    made.add_argument("input", metavar="INPUT", help=f"a file ({', '.join(IR_SUFFIXES)}), or - for standard input")
    made.add_argument("--passes", metavar="A,B,...", default="", help="passes in order, or all; list: what there is")
    made.add_argument("--verify", action="store_true", help="let libtriton verify the result too")
    _add_form(made)
    made.add_argument("-o", "--output", metavar="FILE", help="write to a file")
    add_plan_and_options(made)


CHECK_STAGES = ("final", "specialized", "ttgir")
DETAILS = ("tiles", "loops", "all")
SCHEDULES = ("both", "random", "adversarial", "first")
BENCHES = ("attention", "matmul", "launch")


def _bench(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "bench", "measure on the GPU at hand, against plain Triton and libraries; compare recorded runs",
        "A recorded run is named by FILE@LINE, the last one of a file by FILE. Exit code 1: something is wrong, or "
        "slower.",
    )  # fmt: skip
    made.add_argument("--record", metavar="FILE", help="append the run to FILE; without NAME, a run of each")
    made.add_argument(
        "--compare", metavar="RUN", nargs="+",
        help="what changed between two runs (old, new), or between the last two of one file; needs no GPU",
    )  # fmt: skip
    made.add_argument("--plot", metavar="FILE", help="draw what --compare finds: .png or .svg (matplotlib)")
    made.add_argument("name", nargs="?", metavar="NAME", help=", ".join(BENCHES), choices=BENCHES)
    made.add_argument("arguments", nargs=argparse.REMAINDER, help="its own; `wspec bench NAME --help` lists them")


def _calibrate(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "calibrate", "measure the GPU at hand for the latency model, and write a machine description",
        "The result is one of wspec/model/*.toml with what was measured anew, each number with its spread.",
    )  # fmt: skip
    made.add_argument("-o", "--output", metavar="FILE", help="write it to a file, whose name it gets")
    made.add_argument("--base", choices=available(), help="where the other numbers are from: that of the card at hand")
    made.add_argument("--only", metavar="TOPIC", nargs="+", help="some topics alone; --list names them")
    made.add_argument("--quick", action="store_true", help="fewer repeats")
    made.add_argument("--list", action="store_true", help="say what would be measured; needs no GPU")


def _demo(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "demo", "specialize FlashAttention, prove it, run it on the CPU; show plan and binary",
        "On a Hopper GPU it runs there too, and is timed.",
    )  # fmt: skip
    made.add_argument("--head-dim", type=int, choices=(64, 128, 256), default=128, metavar="D", help="64, 128 or 256")
    made.add_argument("--no-causal", dest="causal", action="store_false", help="without the causal mask")
    made.add_argument("--no-run", action="store_true", help="do not run it, neither on the CPU nor on a GPU")
    made.add_argument("-o", "--output", metavar="FOLDER", help="write the cubin and every stage there")


def _run_with(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = _command(
        commands, "run-with", "run a Python program whose Triton kernels all go through wspec",
        "What became of each kernel is told on stderr when the program ends. Options are given by WSPEC_... variables; "
        "the program's own processes are switched on by WSPEC=1, which is set for them.",
    )  # fmt: skip
    made.add_argument("--quiet", action="store_true", help="no table at the end")
    made.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module's name, as for python -m")
    made.add_argument("program", metavar="PROGRAM", help="a Python file")
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the program's own arguments")
