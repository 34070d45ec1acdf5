"""What exponentials need of values that come from other threads of the warp."""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.effects import reads, writes
from wspec.ptx.syntax import Instruction

F32 = ("max", "min", "add", "sub", "mul", "fma")


def taken_up(code: Sequence[Instruction]) -> list[Instruction | None]:
    """Of straight code, for each exchange that is the last one some exponential depends on, in order: the first float32
    instruction that reads what came; None where there is none."""
    newest: dict[str, Instruction] = {}  # register -> the last exchange that it depends on
    order: dict[Instruction, int] = {}
    users: dict[str, Instruction] = {}  # register of an exchange -> who reads it first
    needed: set[Instruction] = set()
    for one in code:
        made = writes(one)
        if not made:
            continue
        read = reads(one)
        latest = max((newest[name] for name in read if name in newest), key=order.__getitem__, default=None)
        if one.name == "shfl":
            latest = one
            order[one] = len(order)
        elif one.name == "ex2" and latest is not None:
            needed.add(latest)
        elif one.name in F32 and one.opcode.endswith(".f32") and not one.guard:
            for name in read:
                users.setdefault(name, one)
        for name in made:
            if latest is None:
                newest.pop(name, None)
            else:
                newest[name] = latest
    return [users.get(writes(one)[0]) for one in sorted(needed, key=order.__getitem__)]
