"""`python -m tests.mutants`: break kernels in every way we know, and see what the checker says. Takes long.

Ends with 1 when a mutant is missed or unexplained, or the checker crashes on one, or refuses an unchanged kernel.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from tests.mutants.goldens import goldens
from tests.mutants.judge import Judge, Judgement
from tests.mutants.mutate import BY_NAME, mutants
from tests.mutants.table import BAD, BEGIN, COLUMNS, report, rows, survivors, with_section
from tests.support.disjoint import all_apart
from wspec.check import check

Pair = tuple[str, str]
"""A kernel and an operator."""

_judges: dict[str, Judge] = {}  # of this process


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    console = Console()
    kernels, operators = _chosen(options.kernels, list(goldens())), _chosen(options.operators, list(BY_NAME))
    refused = [name for name in kernels if not _is_accepted(name, console)]
    one_thread()
    judged = _run([(kernel, operator) for kernel in kernels for operator in operators], options, console)
    console.print(_rich_table(judged))
    for line in survivors(judged):
        console.print(line, markup=False, highlight=False)
    if options.report is not None:
        command = " ".join(["python -m tests.mutants", *(sys.argv[1:] if words is None else words)])
        _write(options.report, report(judged, command, datetime.date.today().isoformat()))
    return 1 if refused or any(one.verdict in BAD for one in judged) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--kernels", nargs="*", default=["*"], help="names or patterns; --list shows them")
    parser.add_argument("--operators", nargs="*", default=["*"], help="names or patterns")
    parser.add_argument("--schedules", type=int, default=200, help="runs of each mutant that is accepted")
    parser.add_argument("--report", type=Path, help="Markdown to write; where it has markers only what is between them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--resume", type=Path, help="where results go as they come; what is there is not done again")
    parser.add_argument("--list", action=_List, nargs=0, help="show kernels and operators, and end")
    return parser


class _List(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for operator in BY_NAME.values():
            print(f"{operator.name:20} {operator.about}")
        for golden in goldens().values():
            print(f"{golden.name:32} {sum(1 for _ in mutants(golden.module()))} mutants")
        parser.exit()


def _chosen(patterns: Sequence[str], names: list[str]) -> list[str]:
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise SystemExit(f"nothing is called {pattern}; --list shows what there is")
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _is_accepted(name: str, console: Console) -> bool:
    """An unchanged kernel must be proved right."""
    found = check(module := goldens()[name].module(), disjoint=all_apart(module))
    if not found.ok:
        console.print(f"{name}, unchanged: {found}", markup=False, highlight=False)
    return found.ok


# -------------------------------------------------------------------------------------------------- processes


def _run(pairs: Sequence[Pair], options: argparse.Namespace, console: Console) -> list[Judgement]:
    """Judge the mutants of these kernels by these operators; those in the file to resume from are there already."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    found = _read(options.resume)
    todo = [pair for pair in pairs if pair not in found]
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("mutants", total=len(pairs), completed=len(pairs) - len(todo))
        for pair, judged in _judged(todo, options.schedules, options.jobs):
            found[pair] = judged
            _keep(options.resume, pair, judged)
            progress.update(bar, advance=1, description=" ".join(pair))
            for one in judged:
                if one.verdict in BAD:
                    progress.console.print(f"{one.verdict}: {one.place}, {one.change}", markup=False, highlight=False)
            if not console.is_terminal and all(other in found for other in pairs if other[0] == pair[0]):
                verdicts = Counter(one.verdict for other in found if other[0] == pair[0] for one in found[other])
                print(f"{pair[0]}: {dict(verdicts)}", flush=True)
    return [one for pair in pairs for one in found[pair]]


def _judged(pairs: Sequence[Pair], runs: int, jobs: int) -> Iterator[tuple[Pair, list[Judgement]]]:
    if jobs <= 1:
        yield from ((pair, _judge(*pair, runs)) for pair in pairs)
        return
    with ProcessPoolExecutor(jobs, initializer=one_thread) as pool:
        futures: dict[Future[list[Judgement]], Pair] = {pool.submit(_judge, *pair, runs): pair for pair in pairs}
        for done in as_completed(futures):
            yield futures[done], done.result()


def one_thread() -> None:
    """Tensors are small; what there is to gain comes from processes."""
    torch.set_num_threads(1)


def _read(path: Path | None) -> dict[Pair, list[Judgement]]:
    """What was kept of a run that was cut short."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    found = {}
    for entry in map(json.loads, lines):
        found[(entry["kernel"], entry["operator"])] = [Judgement.of(data) for data in entry["judged"]]
    return found


def _keep(path: Path | None, pair: Pair, judged: Sequence[Judgement]) -> None:
    if path is not None:
        entry = {"kernel": pair[0], "operator": pair[1], "judged": [asdict(one) for one in judged]}
        with path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def _judge(kernel: str, operator: str, runs: int) -> list[Judgement]:
    if kernel not in _judges:
        _judges[kernel] = Judge(goldens()[kernel], runs)
    return list(_judges[kernel].by(operator))


# ----------------------------------------------------------------------------------------------------- output


def _rich_table(judged: Sequence[Judgement]) -> Table:
    found = Table(Column("operator", no_wrap=True), *(Column(name, justify="right") for name in COLUMNS))
    for operator, counts in rows(judged):
        found.add_row(operator, *(str(counts[name] or "") for name in COLUMNS))
    return found


def _write(path: Path, section: str) -> None:
    document = path.read_text() if path.exists() else ""
    path.write_text(with_section(document, section) if BEGIN in document else section + os.linesep)


if __name__ == "__main__":
    sys.exit(main())
