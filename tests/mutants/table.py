"""The outcome of a run: a table per operator, and the mutants a person should look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.mutants.judge import Judgement
from tests.mutants.mutate import BY_NAME

COLUMNS = ("mutants", "caught", "equivalent", "other values", "undecided", "unexplained", "missed", "harmless")
"""`harmless` are some of those that are caught or undecided; docs/mutants.md says what the others mean."""
BAD = ("missed", "crash", "unexplained")
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


def rows(judgements: Iterable[Judgement]) -> list[tuple[str, Counter[str]]]:
    """Counts per operator in the operators' order, and of all at the end. Only operators that occur."""
    found: dict[str, Counter[str]] = {}
    for one in judgements:
        found.setdefault(one.operator, Counter()).update(_counts(one))
    ordered = [(name, found[name]) for name in BY_NAME if name in found]
    total: Counter[str] = Counter()
    for _, counts in ordered:
        total.update(counts)
    return [*ordered, ("all", total)]


def _counts(one: Judgement) -> Counter[str]:
    counts: Counter[str] = Counter([one.verdict])
    if one.verdict != "invalid":
        counts["mutants"] += 1
    if one.harmless:
        counts["harmless"] += 1
    return counts


def table(judgements: Sequence[Judgement]) -> list[str]:
    """Markdown."""
    lines = ["| operator | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    for operator, counts in rows(judgements):
        lines.append(f"| {operator} | " + " | ".join(str(counts[name]) for name in COLUMNS) + " |")
    return lines


def reasons(judgements: Iterable[Judgement]) -> list[str]:
    """How many of the accepted mutants each rule explains, most first; Markdown."""
    found = Counter(one.reason for one in judgements if one.reason and not one.harmless)
    return [f"- {number}: {reason}" for reason, number in found.most_common()]


def undecided(judgements: Iterable[Judgement]) -> list[str]:
    """What the checker does not follow, by operator and findings, most first; Markdown."""
    chosen = [one for one in judgements if one.verdict == "undecided"]
    found = Counter((one.operator, ", ".join(sorted(set(one.codes))), one.harmless) for one in chosen)
    return [
        f"- {number}: {operator}: {codes}; {'harmless' if harmless else 'not known to be harmless'}"
        for (operator, codes, harmless), number in found.most_common()
    ]


def survivors(judgements: Iterable[Judgement]) -> list[str]:
    """What a person should look at, worst first; Markdown."""
    lines = []
    chosen = sorted((one for one in judgements if one.verdict in BAD), key=lambda one: BAD.index(one.verdict))
    for one in chosen:
        told = one.seen or one.message
        lines.append(f"- **{one.verdict}** {one.place}: {one.change}, line {one.line}. {told}")
    return lines


def report(judgements: Sequence[Judgement], command: str, date: str) -> str:
    """The section of a document, without its markers."""
    kernels = len({one.golden for one in judgements})
    invalid = sum(one.verdict == "invalid" for one in judgements)
    skipped = f"; {invalid} more changes left no valid IR" if invalid else ""
    looked = survivors(judgements) or ["None."]
    parts = [
        f"`{command}`, {date}: {len(judgements) - invalid} mutants of {kernels} kernels{skipped}.",
        "\n".join(table(judgements)),
        "Why those that are equivalent are, by number of mutants:",
        "\n".join(reasons(judgements)) or "None are.",
        "What is undecided, with the checker's findings:",
        "\n".join(undecided(judgements)) or "Nothing is.",
        "To look at:",
        "\n".join(looked),
    ]
    return "\n\n".join(parts)


def with_section(document: str, section: str, first: str = BEGIN, last: str = END) -> str:
    """The document with what stands between the markers replaced. Raises ValueError when they are not there."""
    head, begin, rest = document.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the document has no {first} ... {last}")
    return f"{head}{first}\n\n{section}\n\n{last}{tail}"
