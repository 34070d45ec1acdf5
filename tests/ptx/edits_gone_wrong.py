"""Each edit of the PTX done wrongly: on the PTX as LLVM wrote it, or on top of what the edits made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

BARRIER = re.compile(r"\n[ \t]*bar\.sync[ \t]+\d+, \d+;")
HELD = re.compile(r"(setp\.ne\.b32 %wspec_known\d+, )(%\w+)(, 0x7fc0dead;)")
KNOWN = re.compile(r"\n[^\n]*and\.pred %wspec_known\d+[^\n]*")
ARRIVAL = re.compile(r"\n[^\n]*@%wspec_known\d+ mbarrier\.arrive[^\n]*")
WAIT = "\tgriddepcontrol.wait;\n"


def wrong_edits(emitted: str, edited: str) -> Iterator[tuple[str, str]]:
    """(what is wrong, the PTX)."""
    for number, barrier in enumerate(BARRIER.finditer(edited)):
        yield f"one more barrier gone: {number}", edited[: barrier.start()] + edited[barrier.end() :]
    barriers = list(BARRIER.finditer(emitted))
    if barriers:
        yield "all barriers gone", BARRIER.sub("", emitted)
    for held in HELD.finditer(edited):
        before = f"{edited[: held.start()]}{held[1]}"
        yield "waits for an integer", f"{before}%r1{held[3]}{edited[held.end() :]}"
        yield "waits for a number that values are", f"{before}{held[2]}, 0x7fffffff;{edited[held.end() :]}"
        yield "waits for zero", f"{before}{held[2]}, 0;{edited[held.end() :]}"
    for known in KNOWN.finditer(edited):
        yield "every thread arrives", edited[: known.start()] + edited[known.end() :]
    for arrival in ARRIVAL.finditer(edited):
        text = edited[: arrival.start()] + edited[arrival.end() :]
        yield "the arrival never comes", text
        wait = text.index("wgmma.wait_group", arrival.start())
        end = text.index("\n", wait)
        yield "the arrival comes outside of its block", text[:end] + arrival[0] + text[end:]
    starts = [found.start() for found in re.finditer(re.escape(WAIT), edited)]
    for at in starts:
        without = edited[:at] + edited[at + len(WAIT) :]
        if len(starts) > 1:
            yield "a task does not wait for the kernel before", without
        later = re.search(r"\n[^\n]*(cp\.async\.bulk\.tensor|st\.global)[^\n]*\n", without[at:])
        if later is not None:
            place = at + later.end()
            yield "waits behind an access", without[:place] + WAIT + without[place:]
        yield "waits under a predicate", f"{edited[:at]}\t@%p1 griddepcontrol.wait;\n{edited[at + len(WAIT) :]}"
