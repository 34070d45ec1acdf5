"""Reading and printing stay cheap enough to do it between passes."""

from __future__ import annotations

import time

from tests.roundtrip.cases import cases
from tests.roundtrip.stages import text_of
from wspec.ir import Operation, Value, print_module, read

OPERATIONS = 500
LIMIT_MS = 30.0  # on an idle machine
BUSY = 2.5  # times as long where neighbours have its caches


def _large_text() -> str:
    """Generic text of a function of at least OPERATIONS operations: a real kernel's body, as often as it takes."""
    case = next(case for case in cases() if case.name == "our_attention_128_causal")
    module = read(text_of(case, "before"))
    function = module.regions[0].block.ops[0]
    body = function.regions[0].block
    original, end = body.ops[:-1], body.terminator
    while _count(module) < OPERATIONS:
        values: dict[Value, Value] = {}
        body.ops[-1:] = []
        for op in original:
            body.append(op.clone(values))
        body.append(end)
    return print_module(module)


def _count(module: Operation) -> int:
    return sum(1 for _ in module.walk())


def _milliseconds(text: str) -> float:
    start = time.perf_counter()
    print_module(read(text))
    return (time.perf_counter() - start) * 1e3


def test_five_hundred_operations_in_thirty_milliseconds() -> None:
    text = _large_text()
    assert _count(read(text)) >= OPERATIONS
    best = min(_milliseconds(text) for _ in range(10))
    assert best <= BUSY * LIMIT_MS, f"best of ten: {best:.1f} ms for {_count(read(text))} operations"
