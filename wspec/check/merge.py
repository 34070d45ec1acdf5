"""Making states alike: one that is followed stands for another when it lacks all that the other lacks.

Two ways lead there, and neither can make a verdict better. A state may *forget*: somebody no longer knows of an event.
And it may be given a read that has not been: of tasks that go different ways through a conditional, one has read a
buffer that the other lets pass, and then either has something that the other has not. The read gets a stream of its
own, so that exactly those do not know of it who do not in the other state.
"""

from __future__ import annotations

from wspec.check.clock import timed
from wspec.check.code import View
from wspec.check.happens_before import Lacks, Past, at_least
from wspec.check.state import Clock, History, Touch


def merge(past: Past, wanted: Lacks) -> Lacks:
    """Make the state of `past` lack what `wanted` says, as far as that can be done; perhaps more. What it lacks then.

    `past` must have its form, and `wanted` be of states of the same shape.
    """
    lacks = past.lacking()
    if at_least(wanted, lacks):
        return lacks
    bits = 0
    for one in wanted[:-1]:
        bits |= one
    _forget(past, wanted)
    added = _invent(past, wanted, bits & ~past.every) if bits & ~past.every else 0
    return _lacking(past, wanted, added)


def _lacking(past: Past, wanted: Lacks, added: int) -> Lacks:
    """What the state lacks now, or less, which is told from what has been done to it: to ask for its form once more
    would take as long as the first time. `added`: events of reads that it did not have.

    Of a barrier that is also what nobody can learn from it any more, who knows as little.
    """
    known = zip(past.lacks, wanted, strict=False)
    return *(lacks | bits & (past.every | added) for lacks, bits in known), past.lacking()[-1] | wanted[-1]


def _forget(past: Past, wanted: Lacks) -> None:
    for holder, bits, lacks in zip(past.holders, wanted, past.lacks, strict=False):
        lost = bits & ~lacks & past.every
        if lost:
            clocks = {name: dict(getattr(holder.of, name)) for name in (holder.known, holder.visible)}
            for event in timed(past.events):
                if lost & event.bit:
                    clock: Clock = clocks[holder.visible if event.fenced else holder.known]
                    if clock.get(event.stream, 0) >= event.epoch:
                        clock[event.stream] = event.epoch - 1
            for name, clock in clocks.items():
                setattr(holder.of, name, clock)
    for bit, history, asked in past.written:
        if wanted[-1] & bit:
            if asked:
                history.maybe = True
            else:
                history.write = None


def _invent(past: Past, wanted: Lacks, missing: int) -> int:
    """Add the reads that are missing: those that are over, so that their own task knows of them. Their bits."""
    found: dict[tuple[View, int], list[int]] = {}  # part, stream -> bits: that it is known, and that it is visible
    for bit, name in past.bits.names(missing):
        match name:
            case ("read", key, int(stream), None, *more):
                part = _part(past, key)
                if part is not None and not _matters(past, key, stream, past.state.buffers[part.root][part]):
                    found.setdefault((part, stream), [0, 0])[len(more)] = bit
    added = 0
    for (part, stream), (plain, fenced) in found.items():
        _add(past, wanted, part, stream, plain, fenced)
        added |= plain | fenced
    return added


def _matters(past: Past, key: object, stream: int, history: History) -> bool:
    """Is there a read already of which somebody who may ask does not know, or that is not over?"""
    if stream not in history.reads:
        return False
    names = (("read", key, stream, None), ("read", key, stream, None, "fenced"))
    return past.behind(history.reads[stream]) is not None or any(past.bits.of(name) & past.every for name in names)


def _part(past: Past, key: object) -> View | None:
    """The part of a buffer that has this name, when it was touched before."""
    if past.names is None:
        past.names = {past.turn.key(part): part for parts in past.state.buffers.values() for part in parts}
    return past.names.get(key)


def _add(past: Past, wanted: Lacks, part: View, stream: int, plain: int, fenced: int) -> None:
    buffers = past.engine.buffers
    one = buffers.readers[stream]
    own, epoch = buffers.stream(("other way", part, stream)), past.bits.fresh()
    if one.unit == "threads":
        buffers.loads[own] = one.task
    past.state.buffers[part.root][part].reads[stream] = Touch(own, epoch, one.task, one.op, one.unit)
    for holder, lacks in zip(past.holders, wanted, strict=False):
        known, visible = getattr(holder.of, holder.known), getattr(holder.of, holder.visible)
        if not lacks & plain:
            setattr(holder.of, holder.known, {**known, own: epoch})
        if not lacks & (plain | fenced):
            setattr(holder.of, holder.visible, {**visible, own: epoch})
