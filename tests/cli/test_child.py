"""What the command line has another process do: libtriton may die of a module from outside, or take too long."""

from __future__ import annotations

import pytest

from tests.check.script import kernel
from wspec import bridge
from wspec.cli.child import in_child, placement


def test_a_child_says_the_same() -> None:
    module = kernel("""
def kernel(n):
    a = buffer(64, 64)
    store(a, fetch())
    keep(load(a))
    keep(convert(fetch()))
""")
    assert placement(module) == bridge.placement(module)


def test_what_libtriton_refuses() -> None:
    module = kernel("def kernel(n):\n    a = buffer(64, 64)\n    store(part(a, (0, 0), (32, 48)))")
    with pytest.raises(bridge.BridgeError):
        placement(module)


def test_what_libtriton_dies_of() -> None:
    module = kernel("def kernel(n):\n    ring = raw_barriers(2)\n    init(part(ring, (1, 0), (1, 1)), 1)")
    with pytest.raises(bridge.BridgeError, match=r"crashed|barrier allocation must be"):  # 3.9 refuses it first
        placement(module)


def test_a_child_that_takes_too_long_is_ended() -> None:
    def endless() -> None:
        while True:
            pass

    with pytest.raises(bridge.BridgeError, match="too long"):
        in_child(endless, "x.ttgir", 0.1)
