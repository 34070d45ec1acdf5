"""`wspec calibrate`: measures the card at hand for the latency model."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

from wspec.diagnostics import unknown
from wspec.model.machine import description_of


def run(args: argparse.Namespace) -> int:
    """0 all measured, 1 something could not be, 2 there is no GPU to measure on."""
    from wspec.lab.calibrate.topics import TOPICS

    for name in args.only or ():
        if name not in TOPICS:
            raise unknown("topic", name, TOPICS)
    topics = [topic for name, topic in TOPICS.items() if not args.only or name in args.only]
    if args.list:
        for topic in topics:
            print(f"{topic.name}: {topic.what}")
            for quantity in topic.quantities:
                by = f", by {quantity.by}" if quantity.by else ""
                print(f"  {quantity.name} ({quantity.unit}{by}): {quantity.what}")
        return 0

    from wspec.lab.calibrate.about import about, l2_bytes, require_gpu
    from wspec.lab.calibrate.driver import NoGpu

    try:
        require_gpu()
    except NoGpu as error:
        print(f"error: {error}; calibrating needs a Hopper GPU (H100, H200)", file=sys.stderr)
        print("note: `wspec calibrate --list` says what would be measured", file=sys.stderr)
        return 2

    from wspec.lab.calibrate.measure import calibrate
    from wspec.lab.calibrate.write import description, of_card

    results = calibrate(topics, quick=args.quick, say=lambda text: print(f"... {text}", file=sys.stderr, flush=True))
    card = about(_command(args))
    base = args.base or description_of(card["card"])
    name = Path(args.output).stem if args.output else base
    text = of_card((files("wspec.model") / f"{base}.toml").read_text(encoding="utf-8"), card["card"], l2_bytes())
    text = description(text, name, card, topics, results)
    if args.output:
        Path(args.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    for topic_name, why in results.failures.items():
        print(f"error: {topic_name}: {why}", file=sys.stderr)
    return 1 if results.failures else 0


def _command(args: argparse.Namespace) -> str:
    """What repeats the measurement."""
    flags = ["--quick"] if args.quick else []
    return " ".join(["wspec calibrate", *flags, *(["--only", *args.only] if args.only else [])])
