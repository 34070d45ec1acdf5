"""Every pass over small programs, each in a folder of `programs/`.

`input.ttgir` is what the compiler is given, `plan.toml` the plan it is given with it. `checks.txt` says what matters of
each pass's output (`SPLIT: ...` for split, and so on); a file `<pass>.ttgir` is that whole output. Each pass reads the
text the pass before has printed, so every dump is seen to be a valid input. What the first one, walk_tiles, does is
seen in two steps: persist, and divide_tiles where tiles may be divided. To keep the whole output of another pass,
create the empty file and run `pytest tests/passes --update`; where that is too long to be read, write CHECK lines.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.support.goldens import assert_golden, assert_matches, prefixes
from tests.support.invariants import assert_sound
from wspec import bridge
from wspec.ir import print_module, read
from wspec.ir.numbering import number
from wspec.ir.verify import check_valid
from wspec.passes.persistent.persist import persist
from wspec.passes.stream_k.divide_tiles import divide_tiles
from wspec.pipeline import PASSES, passes_of, walk_tiles
from wspec.plan.plan import Plan

FOLDER = Path(__file__).parent / "programs"
PROGRAMS = sorted(path.name for path in FOLDER.iterdir())
NAMES = [persist.__name__, divide_tiles.__name__, *(one.__name__ for one in PASSES if one is not walk_tiles)]


@functools.cache
def outputs(program: str) -> dict[str, str]:
    """Pass -> the text of its output, locations and all."""
    folder = FOLDER / program
    plan = Plan.from_text((folder / "plan.toml").read_text())
    text = (folder / "input.ttgir").read_text()
    module = read(text)
    texts: dict[str, str] = {}
    for one in (*((persist,) if plan.persistent else ()), *((divide_tiles,) if plan.stream_k else ())):
        check_valid(persist(module, parts=bool(plan.stream_k)) if one is persist else one(module))
        texts[one.__name__] = print_module(module)
        module = read(texts[one.__name__])
    number(next(op for op in module.walk() if op.name == "tt.func"))
    for one in passes_of(plan):
        if one is walk_tiles:
            assert print_module(read(print_module(one(read(text), plan)))) == print_module(module), "the same at once"
            continue
        module = one(module, plan)
        check_valid(module)
        texts[one.__name__] = print_module(module)
        module = read(texts[one.__name__])
    return texts


def shown(text: str) -> str:
    """A dump as the files have it: without places in files, values called as in the source."""
    return print_module(read(text), locations=False, names=True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_input_is_what_triton_reads(program: str) -> None:
    text = (FOLDER / program / "input.ttgir").read_text()
    check_valid(read(text))
    bridge.text.verify(bridge.reparse(text))


@pytest.mark.parametrize("program", PROGRAMS)
def test_result_is_sound(program: str) -> None:
    text = outputs(program)[NAMES[-1]]
    assert_sound(read(text), Plan.from_text((FOLDER / program / "plan.toml").read_text()))
    bridge.text.verify(bridge.reparse(text))


CHECKS = [(program, prefix) for program in PROGRAMS for prefix in prefixes(FOLDER / program / "checks.txt")]


@pytest.mark.parametrize(("program", "prefix"), CHECKS, ids=lambda value: str(value).lower())
def test_checks(program: str, prefix: str) -> None:
    assert_matches(FOLDER / program / "checks.txt", prefix, shown(outputs(program)[prefix.lower()]))


GOLDENS = [(program, name) for program in PROGRAMS for name in NAMES if (FOLDER / program / f"{name}.ttgir").exists()]


@pytest.mark.parametrize(("program", "name"), GOLDENS)
def test_whole_output(program: str, name: str, update: bool) -> None:
    assert_golden(FOLDER / program / f"{name}.ttgir", shown(outputs(program)[name]), update)


def test_every_pass_has_checks_and_most_a_whole_output() -> None:
    """Those without one have outputs that are too long to be read (tests/test_rooms.py)."""
    assert {prefix.lower() for _, prefix in CHECKS} == set(NAMES)
    assert {name for _, name in GOLDENS} < set(NAMES) and len({name for _, name in GOLDENS}) > len(NAMES) // 2
