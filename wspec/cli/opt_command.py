"""`wspec opt`: a module through the reader, the verifier, some passes and the printer."""

from __future__ import annotations

import argparse

from wspec import ir
from wspec.cli.child import in_child
from wspec.cli.inputs import given_options, read_plan
from wspec.cli.modules import invalid, read_module, read_text, to_text, write_output
from wspec.cli.screen import show
from wspec.diagnostics import Declined, WspecError, bad_input, unknown
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.verify import verify
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.pipeline import PASSES, passes_of
from wspec.plan.graph import Dataflow
from wspec.plan.plan import Plan
from wspec.planner.decide import decide, given, numbered
from wspec.planner.planner import make_plan
from wspec.planner.validate import validate
from wspec.tile_scheduler import TABLE

ALL = "all"
BY_NAME = {one.__name__: one for one in PASSES}
WALK, SPLIT = (one.__name__ for one in PASSES[:2])
FIRST = (WALK, SPLIT)


def run(args: argparse.Namespace) -> int:
    """Print the module after the passes."""
    if args.passes == "list":
        show("\n".join(BY_NAME))
        return 0
    names = pass_names(args.passes)
    place = "<stdin>" if args.input == "-" else args.input
    module = read_module(read_text(args.input), place)
    _check(module, place)
    if names:
        from wspec.api import options_here

        options, given = options_here(Options.from_env(**given_options(args))), read_plan(args.plan)
        module = run_passes(module, names, options, given)
    if args.verify:
        verify_with_libtriton(module)
    write_output(to_text(module, args.form), args.output)
    return 0


def pass_names(text: str) -> list[str]:
    """The passes asked for; `all` stays, as walk_tiles is one of them only for some kernels. Raises WspecError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BY_NAME and name != ALL:
            raise unknown("pass", name, [*BY_NAME, ALL])
    return names


def run_passes(module: Operation, names: list[str], options: Options, plan: Plan | None) -> Operation:
    """The module after the passes, verified after each. Makes the plan where none is given. Raises WspecError."""
    split = ws.find(module) is not None
    if split and names[0] in (*FIRST, ALL):
        raise bad_input("the module is split already", f"leave the passes {' and '.join(FIRST)} out")
    if not split and names[0] not in (*FIRST, ALL):
        raise bad_input(f"the pass {names[0]} works on a module that is split", f"begin with --passes {FIRST[1]}")
    if plan is None and split:
        raise bad_input("a module that is split needs the plan it was split by", "give it with --plan")
    if not split:
        module, plan = _begin(module, names[0], options, plan)
    assert plan is not None
    every = [one.__name__ for one in passes_of(plan) if one.__name__ != WALK or not _has_table(module)]
    for name in [one for asked in names for one in (every if asked == ALL else [asked])]:
        try:
            module = BY_NAME[name](module, plan)
        except (AssertionError, KeyError, StopIteration) as error:
            why = str(error) or type(error).__name__
            raise bad_input(f"the pass {name} does not take this module with this plan: {why}") from error
        _check(module, f"after {name}")
    return module


def _begin(module: Operation, first: str, options: Options, plan: Plan | None) -> tuple[Operation, Plan]:
    """The numbered module with its plan: of a kernel with a loop over tiles where the first pass is to make one."""
    machine = load_machine(options.machine)
    try:
        numbered(module)
        if plan is None and first == SPLIT:
            return module, make_plan(Dataflow(_function(module)), machine, options)
        if plan is None:
            return module, decide(module, machine, options if first == ALL else options.replace(persistent=True))
        if first == WALK or (first == ALL and not _has_table(module)):
            return module, given(module, plan, machine)
        validate(plan, _function(module), machine)
        return module, plan
    except Declined as declined:
        raise WspecError(declined.remark) from None


def _function(module: Operation) -> Operation:
    functions = [op for op in module.walk() if op.name == "tt.func"]
    if len(functions) != 1:
        raise bad_input(f"passes need a module with one function, this has {len(functions)}")
    return functions[0]


def _has_table(module: Operation) -> bool:
    return any(value_name(arg.location) == TABLE for arg in _function(module).regions[0].block.args)


def _check(module: Operation, place: str) -> None:
    problems = verify(module)
    if problems:
        raise invalid(problems, place)


def verify_with_libtriton(module: Operation) -> None:
    """Raises WspecError when libtriton does not take the module."""
    from wspec import bridge

    if any(op.name.startswith("wspec.") for op in module.walk()):
        raise bad_input("libtriton does not know wspec's own operations", "verify after the pass lower_channels")
    try:
        in_child(lambda: bridge.text.verify(bridge.reparse(ir.print_module(module))), "the module")
    except bridge.BridgeError as error:
        raise bad_input(error.message, error.diagnostics.strip()) from None
