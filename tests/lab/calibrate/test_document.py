"""The tables of docs/results/machine.md are those of the H200's description; `--update` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from wspec.lab.calibrate.topic import Topic
from wspec.lab.calibrate.topics import TOPICS
from wspec.lab.measurements import Measured, load_measurements

DOCUMENT = Path(__file__).parents[3] / "docs" / "results" / "machine.md"
_TABLE = re.compile(r"(<!-- measured (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def short(value: float) -> str:
    return f"{value:.4g}"


def cell(measured: Measured) -> str:
    """The median, and the spread where it is more than one per cent."""
    text = short(measured.value)
    if measured.high - measured.low > 0.01 * measured.value:
        text += f" [{short(measured.low)}, {short(measured.high)}]"
    return text


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def tables(topic: Topic) -> str:
    """Numbers first, then one table for each kind of key; of the H200, or of the H100 what was measured there alone."""
    known = next(one for one in map(load_measurements, ("h200", "h100")) if topic.name in one.sources)
    numbers = [quantity for quantity in topic.quantities if not quantity.by]
    lines = [row(("number", "what", "value", "unit")), "|---|---|---|---|"] if numbers else []
    for quantity in numbers:
        one = known.numbers[quantity.key(topic.name)]
        lines.append(row((f"`{quantity.name}`", quantity.what, cell(one), one.unit)))
    for by in dict.fromkeys(quantity.by for quantity in topic.quantities if quantity.by):
        found = [quantity for quantity in topic.quantities if quantity.by == by]
        keys = sorted({key for quantity in found for key in known.tables[quantity.key(topic.name)]})
        lines += ["", row((f"by {by}", *map(str, keys), "unit")), "|---" * (len(keys) + 2) + "|"]
        for quantity in found:
            table = known.tables[quantity.key(topic.name)]
            cells = (cell(table[key]) if key in table else "" for key in keys)
            lines.append(row((f"`{quantity.name}`", *cells, quantity.unit)))
    text = "\n".join(lines).strip("\n")
    return f"\n{text}\n\n"


def test_the_tables_are_the_descriptions(update: bool) -> None:
    text = DOCUMENT.read_text()
    assert [name for _, name, _ in _TABLE.findall(text)] == list(TOPICS)
    expected = _TABLE.sub(lambda found: found[1] + tables(TOPICS[found[2]]) + found[3], text)
    if update:
        DOCUMENT.write_text(expected)
    assert text == expected or update, "pytest tests/lab/calibrate --update writes the tables anew; read the diff"


def test_the_page_says_what_was_measured_on() -> None:
    text = DOCUMENT.read_text()
    about = load_measurements("h200").about
    for key in ("date", "card", "driver", "triton", "ptxas", "sm_clock_max"):
        assert about[key] in text, key
