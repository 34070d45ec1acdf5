"""Which wait completes which product."""

from __future__ import annotations

import pytest

from wspec.ir.core import Block, Operation
from wspec.ir.types import I1, IntegerAttr, i32
from wspec.ir.wgmma import DOT, WAIT, completions


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("D D 0", {0: 2, 1: 2}),
        ("D 1 D 0", {0: 3, 2: 3}),
        ("D D 1", {0: 2}),
        ("D 0 D D 3 1 0", {0: 1, 2: 5, 3: 6}),  # a wait for products of before that names more than there are
        ("0 D 2", {}),
    ],
)
def test_products_complete_in_order(order: str, found: dict[int, int]) -> None:
    """D: a product; a number: a wait that lets as many go on. What is found: by place, the wait's."""
    block = Block()
    for word in order.split():
        name, key, value = (DOT, "isAsync", IntegerAttr(1, I1)) if word == "D" else (WAIT, "pendings", i32(int(word)))
        block.append(Operation.create(name, attributes={key: value}))
    assert {block.ops.index(dot): block.ops.index(wait) for dot, wait in completions(block).items()} == found
