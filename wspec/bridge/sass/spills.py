"""Where a binary goes to local memory: in the loops that multiply, or only outside of them."""

from __future__ import annotations

from wspec.bridge.sass.kept_operands import innermost
from wspec.bridge.sass.machine_code import WGMMA, Code, read_sass
from wspec.bridge.sass.program import blocks, program_of

_LOCAL = frozenset({"LDL", "STL"})


def spills_while_multiplying(sass: str) -> bool:
    """Does an innermost loop of those that multiply touch local memory, where spilled registers are?

    `sass` is what `nvdisasm -c` prints.
    """
    return any(_in_hot_loop(code) for code in read_sass(sass) if code.kernel)


def _in_hot_loop(code: Code) -> bool:
    parts = blocks(program_of(code))
    roots = {first: {one.root for one in code.instructions[first : part.end]} for first, part in parts.items()}
    around = innermost({first: part.next for first, part in parts.items()}, 0)
    hot = {around[first] for first, found in roots.items() if first in around and not found.isdisjoint(WGMMA)}
    inner = [loop for loop in hot if not any(other < loop for other in hot)]
    return any(not roots[first].isdisjoint(_LOCAL) for loop in inner for first in loop)
