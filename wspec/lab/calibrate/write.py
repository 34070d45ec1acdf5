"""Writing a machine description: one there is, with what was measured in place of what was measured before."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from wspec.lab.calibrate.measure import Results, Spreads
from wspec.lab.calibrate.statistics import Spread
from wspec.lab.calibrate.topic import Quantity, Topic
from wspec.lab.measurements import read_measurements
from wspec.model.machine import read_machine

_NAME = re.compile(r'^name = ".*"', re.MULTILINE)
_MEASURED = re.compile(r"^(#[^\n]*\n)*\[measured\]", re.MULTILINE)
_HEAD = """# Measured by `wspec calibrate`: the median of all samples, and the range that holds nine in ten of them.
# docs/results says how each is measured. Cycles are the SM's (clock64), rates are per cycle of one SM.
[measured]
"""


def description(base: str, name: str, about: Mapping[str, str], topics: Sequence[Topic], results: Results) -> str:
    """The text of machine description `name`: everything in `results`, and what `base` has of other topics and numbers.

    Raises MachineError when it would not read back.
    """
    found = _MEASURED.search(base)
    kept = _NAME.sub(f'name = "{name}"', base[: found.start()] if found else base, count=1).rstrip()
    text = f"{kept}\n\n{_HEAD}" + "".join(f"{key} = {_string(value)}\n" for key, value in about.items())
    sections = _sections(base[found.start() :] if found else "")
    sections |= {topic.name: _section(topic, results.spreads[topic.name]) for topic in topics
                 if topic.name in results.spreads}  # fmt: skip
    text += "".join(sections.values())
    read_machine(text, name)
    read_measurements(text, name)
    return text


def of_card(base: str, card: str, l2_bytes: int) -> str:
    """The text of a description with another card's name in its head, and the size of its L2."""
    named = re.sub(r"\A# Machine description of the [^(\n]*", f"# Machine description of the {card} ", base)
    return re.sub(r"^bytes = \d+ ", f"bytes = {l2_bytes} ", named, count=1, flags=re.MULTILINE)


def _sections(measured: str) -> dict[str, str]:
    """The text of each topic in `[measured]`, by its name."""
    found: dict[str, str] = {}
    for part in re.split(r"\n(?=\[measured\.)", measured)[1:]:
        topic = re.split(r"[.\]]", part, maxsplit=2)[1]
        found[topic] = found.get(topic, "") + "\n" + part.rstrip() + "\n"
    return found


def _section(topic: Topic, spreads: Spreads) -> str:
    lines = ["", f"[measured.{topic.name}]", f"source = {_string(f'wspec calibrate, {topic.name}: {topic.what}')}"]
    numbers = [quantity for quantity in topic.quantities if not quantity.by]
    lines += [f"{quantity.name} = {_number(spreads[quantity.name][0], quantity)}" for quantity in numbers]
    for quantity in topic.quantities:
        if quantity.by:
            lines += ["", f"[measured.{topic.name}.{quantity.name}]", f"by = {_string(quantity.by)}"]
            lines += [f"unit = {_string(quantity.unit)}", f"what = {_string(quantity.what)}"]
            lines += [f"{key} = {_number(spread)}" for key, spread in spreads[quantity.name].items()]
    return "\n".join(lines) + "\n"


def _number(spread: Spread, quantity: Quantity | None = None) -> str:
    parts = [f"value = {digits(spread.value)}", f"low = {digits(spread.low)}", f"high = {digits(spread.high)}"]
    if quantity is not None:
        parts += [f"unit = {_string(quantity.unit)}", f"what = {_string(quantity.what)}"]
    return f"{{ {', '.join(parts)} }}"


def digits(value: float) -> str:
    """Four significant digits, no exponent, always a float of TOML."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no measurement")
    places = max(1, 3 - math.floor(math.log10(abs(value)))) if value else 1
    short = f"{value:.{places}f}".rstrip("0")
    return short + "0" if short.endswith(".") else short


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
