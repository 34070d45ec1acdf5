"""`python -m tests.mutants.drawn`: random mutants of many kernels, and what the executor says of those that are proved.

Draws one of the subjects (the kernels of `goldens.py`, every shipped variant, small programs of a grammar), changes it
at one to three places (`drawn_edits.py`), asks libtriton whether that is a module, and then the checker, with the
memory that Triton gives it. What is proved is run under many schedules, with Triton's memory and fences: it must
neither hang nor race nor depend on the order, or be of a kind that is explained (`EXPLAINED`). Ends with 1 when one
is not. What `--resume` names holds the mutants that were judged, and is read first.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tests.mutants.__main__ import one_thread
from tests.mutants.drawn_edits import described, edited
from tests.mutants.drawn_programs import program
from tests.mutants.drawn_subjects import PROGRAM, Subject, subject, subjects
from tests.mutants.table import with_section
from tests.support.disjoint import all_apart
from wspec import bridge
from wspec.check import check
from wspec.cli.child import placement
from wspec.ir import print_module
from wspec.ir.core import Operation
from wspec.ir.shared_memory import Placement, placed
from wspec.ir.verify import verify

SCHEDULES = 30
LIMIT_S = 10.0  # for the checker
TRIES = 20  # to draw something that libtriton takes
BATCH = 20  # mutants that a process is given at a time
BEGIN, END = "<!-- drawn: begin -->", "<!-- drawn: end -->"

EXPLAINED: tuple[tuple[str, str], ...] = (
    (
        r"outside of|global memory(?!.*nothing orders the two)|negative coordinates|not a multiple of \d+$|column",
        "which memory of the GPU",
    ),
    (r"the step of a loop is|division|divides|by zero", "arithmetic"),
    (r"more than \d+ operations", "too long"),
    (
        r"not supported|does not know|cannot read|cannot be had|inline assembly with|runs on every element"
        r"|the executor cannot run",
        "not known to the executor",
    ),
    (r"another view of the same bytes", "not known to the executor"),
    (r"in part has never been written", "parts of a buffer"),
    (r"bytes of shared memory; a block has at most", "refused at the launch"),
    (r"assumes? does not hold|assertion failed", "an assumption of the kernel"),
)
"""Of what the executor says of a mutant that is proved: what the checker does not claim (docs/mutants.md)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one mutant."""

    seed: int
    subject: str
    edits: str
    verdict: str  # error, undecided, agrees, other values, a word of EXPLAINED, missed, crash
    codes: tuple[str, ...] = ()
    seen: str = ""
    text: str = ""  # the module, of what is to be looked at
    places: int = 0
    check_s: float = 0.0


BAD = ("missed", "crash")


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    begin = time.monotonic()
    names = tuple(name for name in subjects() if re.search(options.only, name))
    seeds = range(options.seed, options.seed + options.count)
    known = {one.seed: one for one in _read(options.resume)}
    todo = [seed for seed in seeds if seed not in known]
    with ProcessPoolExecutor(options.jobs, initializer=one_thread) as pool:
        batches = [
            pool.submit(_batch, todo[at : at + BATCH], names, options.schedules) for at in range(0, len(todo), BATCH)
        ]
        for done in as_completed(batches):
            known |= {one.seed: one for one in done.result()}
            _keep(options.resume, done.result())
            if options.limit_s and time.monotonic() - begin > options.limit_s:
                for one in batches:
                    one.cancel()
                break
        pool.shutdown(wait=False, cancel_futures=True)
    found = [known[seed] for seed in seeds if seed in known]
    text = table(found)
    print(text, *to_look_at(found), sep="\n")
    if options.report is not None:
        command = " ".join(["python -m tests.mutants.drawn", *(sys.argv[1:] if words is None else words)])
        section = f"`{command}`, {datetime.date.today()}: {text}"
        options.report.write_text(with_section(options.report.read_text(), section, BEGIN, END))
    if options.out is not None:
        _write(options.out, found)
    return 1 if any(one.verdict in BAD for one in found) else 0


def _document(name: str) -> Path:
    """Looked at before hours are spent."""
    path = Path(name)
    try:
        with_section(path.read_text(), "", BEGIN, END)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.drawn", description=__doc__)
    parser.add_argument("--count", type=int, default=400, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the first; mutant n has seed + n")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="subjects whose name this pattern finds")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="runs of each that is proved")
    parser.add_argument("--limit-s", type=float, default=0, help="start nothing after so many seconds")
    parser.add_argument("--resume", type=Path, help="where results go as they come; what is there is not done again")
    parser.add_argument("--report", type=_document, help="Markdown to write between the markers of, which is there")
    parser.add_argument("--out", type=Path, help="folder for a summary and a file for each disagreement")
    return parser


# ----------------------------------------------------------------------------------------------- one mutant


def _read(path: Path | None) -> list[Outcome]:
    """What was kept of a run that was cut short."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return [Outcome(**{**data, "codes": tuple(data["codes"])}) for data in map(json.loads, lines)]


def _keep(path: Path | None, found: Sequence[Outcome]) -> None:
    if path is not None:
        with path.open("a") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in found)


def _batch(seeds: Sequence[int], names: tuple[str, ...], schedules: int) -> list[Outcome]:
    return [judged(seed, names, schedules) for seed in seeds]


def judged(seed: int, names: Sequence[str], schedules: int = SCHEDULES) -> Outcome:
    """The mutant of a seed: drawn, checked, and run if it is proved."""
    random = Random(seed)
    one, module, placement, edits = drawn(random, names)
    said = described(edits)
    try:
        report = check(module, limit_s=LIMIT_S, disjoint=all_apart(module), placement=placement)
    except Exception:  # whatever it is, a mutant must not bring the checker down
        return Outcome(seed, one.name, said, "crash", seen=traceback.format_exc(), text=print_module(module))
    codes = tuple(sorted({f"{found.kind} {found.code}" for found in report.findings}))
    if not report.ok:
        verdict = "error" if report.errors else "undecided"
        return Outcome(seed, one.name, said, verdict, codes, places=len(edits), check_s=report.seconds)
    verdict, seen = run(one, module, placement, schedules)
    text = print_module(module) if verdict in BAD else ""
    return Outcome(seed, one.name, said, verdict, (), seen, text, len(edits), report.seconds)


def drawn(random: Random, names: Sequence[str]) -> tuple[Subject, Operation, Placement, list[str]]:
    """(what was changed, the changed module, the memory that Triton gives it, the changes). libtriton takes it."""
    while True:
        name = random.choice(list(names))
        for _ in range(TRIES):
            one = subject(name, program(random) if name == PROGRAM else "")
            if one is None:
                break
            module = one.module()
            least = 0 if name == PROGRAM else 1
            edits = edited(random, module, random.choice((least, 1, 2, 3)))
            if len(edits) < least or verify(module):
                continue
            with contextlib.suppress(bridge.BridgeError):
                return one, module, placement(module), edits


def run(one: Subject, module: Operation, placement: Placement, schedules: int) -> tuple[str, str]:
    """(verdict, what was seen) of a module that is proved, with the memory and the fences that Triton gives it."""
    observed = one.runner.observe(placed(module, placement), schedules)
    if observed.seen == "agrees":
        return "agrees", ""
    if observed.seen == "other result":
        return "other values", str(observed)
    if observed.seen == "fault":
        for pattern, word in EXPLAINED:
            if re.search(pattern, observed.text):
                return word, str(observed)
    return "missed", str(observed)


# --------------------------------------------------------------------------------------------------- output


def table(found: Sequence[Outcome]) -> str:
    """Counts by kind of subject; Markdown."""
    verdicts = ["error", "undecided", "agrees", "other values", *dict.fromkeys(word for _, word in EXPLAINED), *BAD]
    counts = Counter((kind_of(one.subject), one.verdict) for one in found)
    proved = sum(one.verdict not in ("error", "undecided", "crash") for one in found)
    lines = [
        f"{len(found)} mutants, {proved} of them proved.",
        "",
        f"| subjects | mutants | {' | '.join(verdicts)} |",
        f"|---|---:|{'---:|' * len(verdicts)}",
    ]
    kinds = sorted({kind_of(one.subject) for one in found})
    rows = [(kind, [counts[kind, verdict] for verdict in verdicts]) for kind in kinds]
    rows.append(("all", [sum(row[at] for _, row in rows) for at in range(len(verdicts))]))
    return "\n".join([*lines, *(f"| {kind} | {sum(row)} | {' | '.join(map(str, row))} |" for kind, row in rows)])


def to_look_at(found: Sequence[Outcome]) -> list[str]:
    """A line for each disagreement."""
    bad = [one for one in found if one.verdict in BAD]
    return [f"{one.verdict}: seed {one.seed}, {one.subject}: {one.edits}: {one.seen.splitlines()[-1]}" for one in bad]


def kind_of(subject: str) -> str:
    """shipped, programs, or a kernel of the tests."""
    return subject.partition(" ")[0] if subject.startswith(("shipped", "corpus")) or subject == PROGRAM else "tests"


def _write(folder: Path, found: Sequence[Outcome]) -> None:
    """summary.json, and for each disagreement a module with what was done and seen."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{name: value for name, value in asdict(one).items() if name != "text"} for one in found]
    counts = Counter(one.verdict for one in found)
    data = {"mutants": len(found), "verdicts": counts, "table": table(found)}
    (folder / "summary.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for one in found:
        if one.text:
            head = "".join(f"// {line}\n" for line in _head(one))
            (folder / f"{one.verdict}-{one.seed}.ttgir").write_text(head + one.text)


def _head(one: Outcome) -> Iterator[str]:
    yield f"seed {one.seed}: {one.subject}"
    yield one.edits
    yield from one.seen.splitlines()


if __name__ == "__main__":
    sys.exit(main())
