"""What functions share that launch a kernel for tensors: a call like one before it is made without looking twice.

What calls have in common that differ in sizes only is a *form*. It ends with the device and its current stream, which
is -1 where that has no handle of its own. With the sizes it is a *key*: all that is checked and that decides the
launch, but for addresses. There are three ways to the card:

* one of a form that is known is of its class (`Calls.classes`), of which all but sizes was looked at once: the binary
  is known, and makes the launch that the sizes ask for (`Alike.launch`), whether they were seen or not;
* what is out of the ordinary there, and of a key that is known, is a launch made again with other addresses
  (`Calls.launches`);
* all others are checked and go through Triton. `Calls.remember` keeps what they came to.
"""

from __future__ import annotations

from typing import Any

from wspec.bridge.again import Ready
from wspec.bridge.alike import Alike
from wspec.bridge.ready import Memo, like_before

Key = tuple[Any, ...]


class Calls:
    """Of one function."""

    def __init__(self) -> None:
        self.launches = Memo()  # by the key: what makes the launch again, and what else its function keeps
        self.classes = Memo()  # by the form

    def binary(self, kernel: Any, like: tuple[Any, ...] | None, key: Key | None) -> Alike | None:
        """What launches calls that have `like` in common (`ready.launch`), if there was one of them."""
        if key is None or like is None or key[-1] < 0:
            return None
        return like_before(kernel, like, key[-2:])

    def remember(self, key: Key | None, again: Ready | None, *rest: Any) -> None:
        """What makes a launch again that went another way, if there is that, and a key."""
        if again is not None and key is not None and key[-1] >= 0:
            self.launches.keep(key, (again, *rest))
