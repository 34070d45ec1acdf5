"""The flags that say what a command works on, and the subject they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wspec.cli.compiler_options import add_arguments, from_arguments
from wspec.cli.example_types import example_types
from wspec.cli.modules import read_text
from wspec.diagnostics import bad_input
from wspec.options import Options, table
from wspec.plan.plan import Plan, PlanError
from wspec.specs.signature import Signature, from_flags
from wspec.specs.variants import read_variants, spec_path, variant_signature

if TYPE_CHECKING:
    from wspec.cli.subject import KernelSubject, Subject
    from wspec.specs.kernel_file import Kernel

IR_SUFFIXES = (".ttgir", ".ttir", ".mlir")
INPUT_HELP = "FILE.py:KERNEL, package.module:KERNEL, FILE.ttgir, or - for TTGIR from standard input"


def add_input(parser: argparse.ArgumentParser) -> None:
    """The input, its signature, the plan and the options of the compiler."""
    parser.add_argument("input", metavar="INPUT", help=INPUT_HELP)
    group = parser.add_argument_group("signature", "what the kernel is compiled for; not for TTGIR")
    group.add_argument("--variant", metavar="NAME", help="a variant of the spec beside the kernel (default: its first)")
    group.add_argument("--spec", metavar="FILE", help="the spec (default: FILE.toml beside FILE.py)")
    group.add_argument(
        "--sig", metavar="TYPES",
        help='every type, in place of a variant: "x_ptr=*bf16:16, n=i32, d=tensordesc<bf16[128, 64]>, BLOCK=128"; '
        ":16 says divisible by 16, a literal makes a constexpr",
    )  # fmt: skip
    group.add_argument("--arg", metavar="NAME=TYPE", action="append", default=[], help="one type; over the variant's")
    group.add_argument(
        "--const", metavar="NAME=VALUE", action="append", default=[],
        help="one value: a literal or a name of the kernel's file (tl.float16); over the variant's",
    )  # fmt: skip
    group.add_argument("--num-warps", type=int, metavar="N", help="warps the kernel is written for")
    group.add_argument("--num-stages", type=int, metavar="N", help="stages of Triton's own pipeliner")
    add_plan_and_options(parser)


def add_plan_and_options(parser: argparse.ArgumentParser) -> None:
    """`--plan` and one flag for each option of the compiler."""
    parser.add_argument("--plan", metavar="FILE", help="use this plan (as `wspec plan --toml` prints it)")
    add_arguments(parser)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The compiler's options that stand on the command line. Raises WspecError on a bad value."""
    parsed = from_arguments(args)
    return {name: getattr(parsed, name) for name in table() if getattr(args, name, None) is not None}


def read_plan(place: str | None) -> Plan | None:
    """The plan in a file. Raises WspecError."""
    if place is None:
        return None
    try:
        return Plan.from_text(read_text(place))
    except PlanError as error:
        raise bad_input(f"{place}: {error}") from None


def is_ir(place: str) -> bool:
    """Does the input name a module, and not a kernel?"""
    path = Path(place)
    return place == "-" or path.suffix in IR_SUFFIXES or (path.suffix != ".py" and path.is_file())


def open_input(args: argparse.Namespace) -> Subject:
    """What the command line names. Raises WspecError."""
    return _open_module(args) if is_ir(args.input) else open_kernel(args)


def _open_module(args: argparse.Namespace) -> Subject:
    from wspec.api import options_here
    from wspec.cli.subject import TextSubject

    options, plan = given_options(args), read_plan(args.plan)
    refuse_kernel_flags(args)
    text = read_text(args.input)
    place = "<stdin>" if args.input == "-" else args.input
    return TextSubject(text, place, options_here(Options.from_env(**options)), plan)


def refuse_kernel_flags(args: argparse.Namespace, more: tuple[str, ...] = ()) -> None:
    """Raises WspecError for flags that say how to compile a kernel, where a module is given."""
    for flag in ("variant", "spec", "sig", "arg", "const", "num_warps", "num_stages", *more):
        if getattr(args, flag):
            raise bad_input(f"--{flag.replace('_', '-')} says how to compile a kernel, but {args.input} is TTGIR")


def open_kernel(args: argparse.Namespace) -> KernelSubject:
    """The kernel the command line names. Raises WspecError."""
    from wspec import api
    from wspec.bridge import printed
    from wspec.cli.environment import check_folders
    from wspec.cli.subject import KernelSubject
    from wspec.specs.kernel_file import load_kernel

    options, plan = given_options(args), read_plan(args.plan)
    check_folders()
    printed.to_stderr = True
    kernel = load_kernel(args.input)
    signature = signature_of(args, kernel)
    merged = {**signature.options, **options}
    offline = api.offline(kernel.function, signature.types, signature.values, plan=plan, **merged)
    return KernelSubject(offline)


def each_variant(args: argparse.Namespace) -> list[argparse.Namespace]:
    """The same arguments for each variant of the kernel's spec, in its order. Raises WspecError."""
    from wspec.specs.kernel_file import load_kernel

    if args.variant is not None or args.sig is not None:
        raise bad_input(f"--{'variant' if args.variant is not None else 'sig'} and --all do not go together")
    kernel = load_kernel(args.input)
    spec = _spec_of(args, kernel)
    names = read_variants(spec, kernel.name)
    if not names:
        raise bad_input(f"{spec} has no variant of {kernel.name}")
    return [argparse.Namespace(**{**vars(args), "variant": name}) for name in names]


def _spec_of(args: argparse.Namespace, kernel: Kernel) -> Path:
    return Path(args.spec) if args.spec is not None else spec_path(kernel.file)


def signature_of(args: argparse.Namespace, kernel: Kernel) -> Signature:
    """The variant with what the flags change; with `--sig` and no `--variant` the flags alone."""
    names = vars(kernel.module)
    flags = from_flags(args.sig, args.arg, args.const, names)
    launch = {"num_warps": args.num_warps, "num_stages": args.num_stages}
    flags = flags.updated(Signature(options={name: value for name, value in launch.items() if value is not None}))
    spec = _spec_of(args, kernel)
    asked = args.variant is not None or args.spec is not None
    if asked or (args.sig is None and spec.is_file()):
        return variant_signature(spec, kernel.name, args.variant, names).updated(flags)
    if not flags.types and not flags.values:
        raise bad_input(f"there is no signature for {kernel.name}", _how_to(kernel, spec))
    return flags


def _how_to(kernel: Kernel, spec: Path) -> str:
    """A guess in the kernel's own parameters."""
    from wspec import bridge

    function = bridge.innermost(kernel.function)
    guess = example_types(function.src, function.params)
    return f'give one, for example --sig "{guess}", or write {spec}'
