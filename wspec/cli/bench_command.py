"""`wspec bench`: hands over to `python -m wspec.lab.bench.NAME`."""

from __future__ import annotations

import argparse
import importlib


def run(args: argparse.Namespace) -> int:
    """Its exit code: 0 all right, 1 something is wrong, 2 there is no GPU to measure on."""
    code: int = importlib.import_module(f"wspec.lab.bench.{args.name}").main(args.arguments)
    return code
