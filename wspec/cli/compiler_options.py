"""The compiler's options as flags of a command, and as the page that lists them (docs/options.md)."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any

from wspec.options import Options, Spec, default_text, env_name, flag_name, parse, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per option; a flag that is not given leaves the environment and the default in charge.

    `--help` names them, `--help-options` says what each is.
    """
    names = ", ".join(flag_name(name) for name in table())
    group = parser.add_argument_group("compiler options", f"{names}; as --depth 3")
    group.add_argument("--help-options", action=_HelpOptions, help="say what each of these is, and what it takes")
    for name in table():
        group.add_argument(flag_name(name), dest=name, metavar="VALUE", default=None, help=argparse.SUPPRESS)


class _HelpOptions(argparse.Action):
    """Prints what the options of the compiler are, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.exit(0, options_help())


def options_help() -> str:
    """Every flag of the compiler with its values, default and meaning, for a terminal."""
    lines = []
    for name, spec in table().items():
        lines.append(f"{flag_name(name)} VALUE    {spec.allowed()}; default {default_text(name, spec)}")
        lines += textwrap.wrap(spec.help, 96, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def from_arguments(arguments: argparse.Namespace) -> Options:
    """The options a parser with `add_arguments` found. Raises WspecError on a bad value."""
    texts = {name: getattr(arguments, name, None) for name in table()}
    given: dict[str, Any] = {name: parse(name, table()[name], text) for name, text in texts.items() if text is not None}
    return Options.from_env(**given)


def markdown() -> str:
    """The text of docs/options.md."""
    head = [
        "# Options",
        "",
        "Generated from `wspec/options.py` by `.ci/update-docs`; a test compares them.",
        "A keyword argument of `wspec.compile` wins over the environment variable, which wins over the default.",
        "",
        "| keyword | environment | flag | values | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join(head + [_row(name, spec) for name, spec in table().items()]) + "\n"


def _row(name: str, spec: Spec) -> str:
    default = default_text(name, spec)
    cells = (f"`{name}`", f"`{env_name(name)}`", f"`{flag_name(name)}`", spec.allowed(), default, spec.help)
    return "| " + " | ".join(cells) + " |"
