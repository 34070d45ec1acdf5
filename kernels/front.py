"""What functions share that launch a kernel for tensors: a call like one before it is made without looking twice.

A call's *key* is all that is checked and that decides the launch, but for addresses. It ends with the device and its
current stream, which is -1 where that has no handle of its own. There are three ways to the card, the shortest first:

* a call of a key that is known is a launch made again with other addresses (`Calls.launches`);
* one that differs from another in sizes only is of its class (`Calls.classes`), of which all else was looked at once:
  the binary is known, and `Calls.launch` makes the launch that the sizes ask for;
* all others are checked and go through Triton. `Calls.remember` keeps what they came to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wspec.bridge.again import Ready
from wspec.bridge.alike import Alike
from wspec.bridge.ready import MOST, Memo, like_before

Key = tuple[Any, ...]


class Calls:
    """Of one function."""

    def __init__(self) -> None:
        self.launches = Memo()  # by the key: what makes the launch again, and what else its function keeps
        self.classes = Memo()  # by what their calls have in common

    def binary(self, kernel: Any, like: tuple[Any, ...] | None, key: Key | None) -> Alike | None:
        """What launches calls that have `like` in common (`ready.launch`), if there was one of them."""
        if key is None or like is None or key[-1] < 0:
            return None
        return like_before(kernel, like, key[-2:])

    def launch(
        self,
        binary: Alike,
        grid: tuple[int, ...],
        arguments: Sequence[Any],
        key: Key,
        step: tuple[int, int],
        *rest: Any,
    ) -> bool:
        """Launch it for a call of that key, which is known then; whether that was done.

        step: the axis on which grids of other sizes differ, and by how much.
        """
        again = binary.launch(grid, arguments, key[-2:], step)
        if again is None:
            return False
        known = self.launches
        if len(known) < MOST:
            known[key] = again, *rest
        else:
            known.keep(key, (again, *rest))
        return True

    def remember(self, key: Key | None, again: Ready | None, *rest: Any) -> None:
        """What makes a launch again that went another way, if there is that, and a key."""
        if again is not None and key is not None and key[-1] >= 0:
            self.launches.keep(key, (again, *rest))
