"""`python -m tests.ptx`: break the PTX of every shipped variant, and see what the validation says. A few minutes.

Ends with 1 when what wspec makes is refused, or an edit that is wrong, or a mutant is accepted that is not of a kind
whose acceptance is explained in docs/results/mutants.md.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.ptx.judge import judged
from tests.ptx.shipped_ptx import pair, variants
from wspec.ptx.validation.validate import validate

BEGIN, END = "<!-- ptx: begin -->", "<!-- ptx: end -->"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ptx", description=__doc__)
    parser.add_argument("--only", default="", help="variants with this in their name")
    parser.add_argument("--report", type=Path, help="Markdown to write between the markers of")
    options = parser.parse_args(words)
    counts: Counter[tuple[str, str]] = Counter()
    bad, kernels, longest = [], 0, 0.0
    for kernel, variant in variants():
        name = f"{kernel} {variant}"
        found = pair(kernel, variant) if options.only in name else None
        if found is None:
            continue
        begin = time.process_time()
        said = validate(found.emitted, found.edited, found.constant)
        seconds = time.process_time() - begin
        kernels, longest = kernels + 1, max(longest, seconds)
        print(f"{name}: {said.summary} {said.refusal} ({seconds:.2f} s)", flush=True)
        bad += [f"{name}: refused as it is: {said.refusal}"] if said.refusal else []
        for one in judged(found):
            counts[one.operator, one.verdict] += 1
            if one.verdict == "unexplained":
                bad.append(f"{name}: {one.operator}: {one.what}")
    text = _table(counts, kernels, longest)
    print(text)
    print("\n".join(bad))
    if options.report is not None:
        document = options.report.read_text()
        head, _, rest = document.partition(BEGIN)
        tail = rest.partition(END)[2]
        options.report.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")
    return 1 if bad else 0


def _table(counts: Counter[tuple[str, str]], kernels: int, longest: float) -> str:
    verdicts = ("refused", "equivalent", "unexplained")
    lines = [
        f"`python -m tests.ptx --report docs/results/mutants.md`, {datetime.date.today()}: {sum(counts.values())} "
        f"mutants of {kernels} variants; as they are, all are accepted unless said otherwise, the longest in "
        f"{longest:.2f} s of processor time.",
        "",
        f"| operator | mutants | {' | '.join(verdicts)} |",
        "|---|---:|---:|---:|---:|",
    ]
    for operator in dict.fromkeys(operator for operator, _ in counts):
        row = [counts[operator, verdict] for verdict in verdicts]
        lines.append(f"| {operator} | {sum(row)} | {' | '.join(map(str, row))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
