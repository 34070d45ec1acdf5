"""`kernel[grid](...)` like a launch before it: what the driver was given then is given again, with other addresses.

Between Triton, which finds the binary, and the driver a launch goes through guards, choices between binaries and tables
of tiles. All that they look at but addresses is a launch's *key*: grid, stream, numbers, and of tensors and descriptors
what they are, shape and strides. The function that makes the key is written for the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign
from operator import index
from typing import Any

from wspec.bridge.again import Ready, is_capturing
from wspec.bridge.launch import Run, around
from wspec.bridge.launcher import key_of
from wspec.bridge.ready import Memo
from wspec.bridge.recording import recording
from wspec.bridge.workspace import PER_THREAD

_PATIENCE = 256  # launches in a row that could not be written down, after which only each so many'th is tried

_REACH = "{0}.nbytes if {0}.is_cuda and {0}.is_contiguous() else ({0}.is_cuda, {0}.shape, {0}.stride())"
"""What of a tensor decides beside its address: how far it reaches."""

_TEMPLATE = """
def launch(x, y, z, stream, function, packed, metadata, enter, leave, {arguments}):
    try:
        key = (x, y, z, stream, {key})
        found = known.get(key)
        if found is not None and not recording.count and found({addresses}):
            return
    except (AttributeError, TypeError):
        key = None
    ordinary(key, x, y, z, stream, function, packed, metadata, enter, leave, {arguments})
"""


def decided_once(kernel: Any, function: Any, signature: Mapping[str, Any]) -> Any:
    """The compiled kernel, whose launches of one key are decided once.

    function: the kernel under `wspec.compile`, of the compiled one's signature.
    """
    kinds = list(signature.values())
    return around(kernel, lambda run: _Repeated(run, function, kinds).launch)


class _Repeated:
    """What was launched, by the key."""

    def __init__(self, run: Run, function: Any, kinds: Sequence[Any]) -> None:
        self.run, self.function, self.count = run, function, len(kinds)
        self.known = Memo()
        self.missed = 0
        self.launch: Run = self._on_numbers
        if all(isinstance(kind, str) for kind in kinds):
            self.launch = self._written(kinds)

    def _written(self, kinds: Sequence[str]) -> Run:
        names = [f"a{at}" for at in range(len(kinds))]
        key, addresses = [], []
        for name, kind in zip(names, kinds, strict=True):
            if kind.startswith("*"):
                key.append(f"{name}.__class__, {_REACH.format(name)}, ")
                addresses.append(f"{name}.data_ptr()")
            elif kind.startswith("tensordesc"):
                key.append(f"*{key_of(name)}, ")
                addresses.append(f"{name}.base.data_ptr()")
            elif kind != "constexpr":
                sign = "" if kind[0] in "iu" else f"copysign(1.0, {name}), "  # 0.0 and -0.0 are equal
                key.append(f"{name}, {sign}")
        source = _TEMPLATE.format(arguments=", ".join(names), key="".join(key), addresses=", ".join(addresses))
        space: dict[str, Any] = {
            "known": self.known,
            "recording": recording,
            "ordinary": self._ordinary,
            "copysign": copysign,
        }
        exec(compile(source, "<wspec kernel[grid]>", "exec"), space)
        written: Run = space["launch"]
        return written

    def _on_numbers(self, x: Any, y: Any, z: Any, *args: Any) -> None:
        """Of a grid of anything that stands for whole numbers, as a tensor does: Triton asks for them in C, here a grid
        is looked up and calculated with."""
        self.run(index(x), index(y), index(z), *args)

    def _ordinary(self, key: tuple[Any, ...] | None, x: Any, y: Any, z: Any, stream: int, *args: Any) -> None:
        """Decide all of it, and write down what it came to; not inside of a launch that is recorded as a whole."""
        is_usual = key is not None and type(x) is type(y) is type(z) is int and stream != PER_THREAD
        if not is_usual or recording.now is not None or self._in_vain() or is_capturing():
            self._on_numbers(x, y, z, stream, *args)
            return
        with recording.on() as now:
            self._on_numbers(x, y, z, stream, *args)
        if now.launches == 1 and not now.once:
            self.missed = 0
            self.known.keep(key, Ready.of(self.function, now, self.count))

    def _in_vain(self) -> bool:
        """Is this one of the launches of a kernel that has others written down never, or not yet?"""
        self.missed += 1
        return self.missed > _PATIENCE and self.missed % _PATIENCE > 0
