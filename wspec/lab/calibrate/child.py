"""`python -m wspec.lab.calibrate.child TOPIC FOLDER 0|1`: measures one topic, prints spreads as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.driver import Driver
from wspec.lab.calibrate.statistics import Spread
from wspec.lab.calibrate.topics import TOPICS


def main(name: str, folder: str, quick: str) -> None:
    """`folder` holds cubins, or gets them; `quick` is "1" for fewer repeats."""
    topic = TOPICS[name]
    samples = topic.measure(Bench(Driver(), topic.modules, Path(folder), quick=quick == "1"))
    wanted = {quantity.name for quantity in topic.quantities}
    if set(samples) != wanted:
        raise ValueError(f"{name}: measured {sorted(set(samples) ^ wanted)} too much or too little")
    spreads = {
        quantity: {key: dataclasses.asdict(Spread.of(values)) for key, values in table.items()}
        for quantity, table in samples.items()
    }
    json.dump(spreads, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
