"""One table: keywords, environment, flags, documentation."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from wspec.cli.compiler_options import add_arguments, from_arguments, markdown, options_help
from wspec.diagnostics import WspecError
from wspec.options import OptionArguments, Options, env_name, flag_name, misspelt, table

DOCS = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_documentation_is_generated() -> None:
    assert DOCS.read_text() == markdown(), "run .ci/update-docs"


def test_keyword_over_environment_over_default() -> None:
    env = {"WSPEC_DEPTH": "3", "WSPEC_OVERLAP": "off", "WSPEC_CONSUMER_REGISTERS": "auto", "WSPEC_GATE": "off"}
    options = Options.from_env(env, depth=4)
    assert options == Options(depth=4, overlap=False, consumer_registers=None, gate="off")
    assert Options.from_env({"WSPEC_DEPTH": ""}) == Options()


BAD: dict[str, list[Any]] = {
    "strict": [1, "yes", None],
    "consumers": [0, 4, "2", True, 1.0],
    "depth": [0, 17],
    "producer_warps": [3, None],
    "producer_registers": [25, 16, 264],
    "consumer_registers": [250],
    "gate": ["Model", None],
    "remarks": ["sometimes"],
    "dump": [3],
}


@pytest.mark.parametrize("name, value", [(name, value) for name, values in BAD.items() for value in values])
def test_bad_values_name_the_option_and_what_is_allowed(name: str, value: Any) -> None:
    with pytest.raises(WspecError) as caught:
        Options(**{name: value})
    text = str(caught.value)
    assert caught.value.remark.code == "bad-option"
    assert repr(name) in text and env_name(name) in text and repr(value) in text and table()[name].allowed() in text


@pytest.mark.parametrize("name, text", [("WSPEC_STRICT", "maybe"), ("WSPEC_DEPTH", "two"), ("WSPEC_GATE", "on")])
def test_bad_environment(name: str, text: str) -> None:
    with pytest.raises(WspecError, match=name):
        Options.from_env({name: text})


def test_unknown_options() -> None:
    with pytest.raises(WspecError, match=r"unknown option 'dept'(?s:.*)depth"):
        Options.from_env({}, dept=3)


def test_flags() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(["--depth", "3", "--producer-warps", "4", "--strict", "1", "--dump", "/tmp/x"])
    assert from_arguments(arguments) == Options(depth=3, producer_warps=4, strict=True, dump="/tmp/x")
    assert from_arguments(parser.parse_args([])) == Options()
    with pytest.raises(WspecError, match="--depth"):
        from_arguments(parser.parse_args(["--depth", "99"]))
    assert "--consumer-registers" in parser.format_help().replace("-\n  ", "-")  # a line may end within a name


def test_every_option_has_help_and_an_allowed_default() -> None:
    assert all(spec.help and spec.allowed() for spec in table().values())
    assert list(table()) == [field.name for field in dataclasses.fields(Options)]


def _another(name: str) -> Any:
    """A value of the option that is not its default."""
    spec, default = table()[name], getattr(Options(), name)
    if spec.kind is bool:
        return not default
    if spec.choices:
        return next(choice for choice in spec.choices if choice != default)
    return "/tmp/other" if spec.kind is str else spec.high


def test_the_digest_knows_what_can_change_the_kernel() -> None:
    for name, spec in table().items():
        assert (Options(**{name: _another(name)}).digest() != Options().digest()) == spec.emits, name
    assert not any(table()[name].emits for name in ("strict", "cache", "dump", "remarks"))


def test_options_are_hashable_values() -> None:
    assert {Options(depth=3): 1}[Options(depth=3)] == 1
    assert Options().replace(depth=3) == Options(depth=3)


def test_editors_know_every_option() -> None:
    assert get_type_hints(OptionArguments) == get_type_hints(Options)


def test_the_help_of_the_options_is_asked_for() -> None:
    text = options_help()
    assert all(f"{flag_name(name)} VALUE" in text and spec.allowed() in text for name, spec in table().items())


def test_a_misspelt_variable_is_an_error_with_a_guess() -> None:
    [error] = misspelt({"WSPEC_DEPHT": "3", "WSPEC_DEPTH": "3", "WSPEC_TEST_JOBS": "2", "PATH": ""})
    assert "WSPEC_DEPHT; did you mean WSPEC_DEPTH?" in str(error)
