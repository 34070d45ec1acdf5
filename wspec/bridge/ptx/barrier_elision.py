"""Barriers of a warp group that only slow it down, and are taken out of the PTX.

Triton puts a barrier of the whole warp group before each arrival at an mbarrier and before many waits, so that what all
its threads did in shared memory comes before what one of them says. Two of these have nothing to order:

    wgmma.wait_group 1;                          try_wait [full];
    bar.sync 0, 128;         // taken out        ...
    @leader mbarrier.arrive [empty];             bar.sync 0, 128;     // taken out
                                                 try_wait [full + 8];

A tile that only the tensor core has read is handed back right behind the wait for that product. A `wgmma` belongs to
all four warps: it runs when each has issued it, and each has passed the wait for its operands before; so when it is
done for the thread that arrives, nobody in the group reads the tile any more. CUTLASS hands its buffers back the same
way (`PipelineTmaAsync::consumer_release` of one thread, without a barrier of the group).

Likewise a barrier right behind another one and arrivals, as when a task hands on a tile that it made and gives back
the one it was made of: whoever has passed the first barrier has done all that the second one waits for. And
while a kernel makes its mbarriers, or ends them, a barrier between two of them:

    @leader mbarrier.init [full], 1;
    bar.sync 0, 128;                     // taken out
    @leader mbarrier.init [full + 8], 1;
    bar.sync 0, 128;

One thread does all of these, each at an address of its own, and the barrier behind the last one stays.

A barrier of the other kinds is taken out only if no thread can have touched shared memory since the last barrier that
stays, on any way to it: loads, stores, matrix moves, copies out of shared memory and their waits, fences, and what is
not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wspec.bridge.ptx.code import instruction, is_arrival, is_clean, is_group_barrier, speaks

_LABEL = re.compile(r"^(\$L(?!__tmp)\w+):")  # $L__tmp are for debuggers
_BRANCH = re.compile(r"^(@!?%?\w+\s+)?bra(\.uni)?\s+(\$L\w+)\s*;")
_INDIRECT = re.compile(r"^(@!?%?\w+\s+)?brx\.idx\s+[^,]+,\s*(\$L\w+)\s*;")
_TARGETS = re.compile(r"^(\$L\w+):\s*\.branchtargets")
_ENDS = re.compile(r"^(ret|exit|trap)\b")
_SYNC = re.compile(r"^(bar|barrier)\.sync(\.aligned)?\s")
_SETUP_SYNC = re.compile(r"^bar\.sync\s+0\s*[,;]")  # all warps that set a kernel up; tasks have other numbers
_WAIT = re.compile(r"^mbarrier\.try_wait")
_DONE = re.compile(r"^wgmma\.wait_group")
_MADE = re.compile(r"^(@%?\w+)\s+mbarrier\.(init|inval)\.shared(::cta)?\.b64\s")


@dataclass(slots=True)
class _Block:
    lines: list[int] = field(default_factory=list)  # the instructions' places in the text
    follow: list[str] = field(default_factory=list)  # labels of the blocks that may come next


def without_idle_barriers(ptx: str) -> tuple[str, int]:
    """(the PTX without them, how many were taken out)."""
    lines = ptx.split("\n")
    code = [instruction(line) for line in lines]
    blocks = _blocks(code)
    dirty = _dirty_at_entry(blocks, code)
    idle = [at for name, block in blocks.items() for at in _idle(block, code, dirty[name])]
    for at in idle:
        lines[at] = "\t// a barrier of the warp group stood here that had nothing to order"
    return "\n".join(lines), len(idle)


def _blocks(code: list[str]) -> dict[str, _Block]:
    """Basic blocks by label, in order of the text; `""` is the first."""
    targets: dict[str, list[str]] = {}
    for at, text in enumerate(code):
        if match := _TARGETS.match(text):
            listed = " ".join(code[at : at + 200]).split(".branchtargets", 1)[1].split(";", 1)[0]
            targets[match[1]] = re.findall(r"\$L\w+", listed)
    blocks: dict[str, _Block] = {}
    current = blocks[""] = _Block()
    made = 0
    open_ended = True
    for at, text in enumerate(code):
        if (match := _LABEL.match(text)) and match[1] not in targets:
            if open_ended:
                current.follow.append(match[1])
            current, open_ended = blocks.setdefault(match[1], _Block()), True
        elif text and not _LABEL.match(text):
            current.lines.append(at)
            ways = [m[3] for m in [_BRANCH.match(text)] if m] or targets.get(_named(text), [])
            conditional = text.startswith("@")
            if ways or _ENDS.match(text):
                current.follow += ways
                made += 1
                following = blocks[f"${made}"] = _Block()
                if conditional:
                    current.follow.append(f"${made}")
                current, open_ended = following, True
    return blocks


def _named(text: str) -> str:
    match = _INDIRECT.match(text)
    return match[2] if match else ""


def _dirty_at_entry(blocks: dict[str, _Block], code: list[str]) -> dict[str, bool]:
    """For each block: may a thread have touched shared memory since the last barrier, on some way to it?"""
    dirty = dict.fromkeys(blocks, False)
    dirty[""] = True
    reached, work = {""}, [""]
    while work:
        name = work.pop()
        after = dirty[name]
        for at in blocks[name].lines:
            after = _after(code[at], after)
        for way in blocks[name].follow:
            if way in blocks and (way not in reached or (after and not dirty[way])):
                reached.add(way)
                dirty[way] = dirty[way] or after
                work.append(way)
    return dirty


def _after(text: str, dirty: bool) -> bool:
    if _SYNC.match(text):
        return False
    return dirty or not is_clean(text)


def _idle(block: _Block, code: list[str], dirty: bool) -> list[int]:
    """The barriers of a block that have nothing to order."""
    found: list[int] = []
    behind = False  # have all before, since the last wait for products, been arithmetic and such arrivals?
    passed = ""  # the barrier since which all before have been arithmetic and such arrivals
    maker = ""  # who has made or ended mbarriers since the last barrier that stays, nobody else having done anything
    for place, at in enumerate(block.lines):
        text = code[at]
        made = _MADE.match(text)
        if _DONE.match(text):
            behind, passed = True, ""
        elif _SYNC.match(text):
            following = next((code[i] for i in block.lines[place + 1 :] if speaks(code[i])), "")
            another = _MADE.match(following)
            own = is_group_barrier(text)
            if maker and another and another[1] == maker and _SETUP_SYNC.match(text):
                found.append(at)
                continue  # what was done before it is not in order yet
            handed = is_arrival(following) and (behind or passed == text)
            if own and not dirty and (handed or _WAIT.match(following)):
                found.append(at)
            else:
                passed = text
            maker = ""
        elif not is_arrival(text) and speaks(text):
            behind, passed = False, ""
        if made:
            maker = made[1] if not dirty or maker == made[1] else ""
        elif speaks(text) and not _SYNC.match(text):
            maker = ""
        dirty = _after(text, dirty)
    return found
