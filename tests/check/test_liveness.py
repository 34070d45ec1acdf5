"""A register is live where its value may still be read; what is not is left out of states."""

from __future__ import annotations

from tests.check.script import kernel
from wspec.check import code as c
from wspec.check.liveness import live_registers
from wspec.check.translate import translate
from wspec.ir.disjoint import NONE


def _code(text: str) -> c.Code:
    module = kernel(text)
    function = next(op for op in module.walk() if op.name == "tt.func")
    return translate(module, function, NONE)[0].codes[0]


def _at(code: c.Code, kind: type[c.Step], number: int = 0) -> int:
    return [at for at, step in enumerate(code.steps) if isinstance(step, kind)][number]


def test_carried_slots_are_live_around_the_loop_and_dead_behind_it() -> None:
    code = _code(
        """
        def kernel(n):
            ring = buffer(2, 64, 64)
            slot = 0
            for i in range(0, n, 1):
                store(ring[slot])
                slot = slot ^ 1
            fence()
        """
    )
    live = live_registers(code)
    index = next(step for step in code.steps if isinstance(step, c.Index))
    head, fence = _at(code, c.Head), _at(code, c.Fence)
    assert index.index in live[head]
    assert index.source in live[head]
    assert index.index not in live[fence]
    assert live[fence] == ()


def test_both_arms_of_a_branch_keep_alive_what_they_read() -> None:
    code = _code(
        """
        def kernel(flag: i1):
            a, b = buffer(64, 64), buffer(64, 64)
            if flag:
                store(a)
            else:
                store(b)
            store(b)
        """
    )
    live = live_registers(code)
    a, b = (step.dst for step in code.steps if isinstance(step, c.Allocate))
    branch, last = _at(code, c.Branch), _at(code, c.Access, 2)
    assert {a, b} <= set(live[branch])
    assert a not in live[last] and b in live[last]
    assert a not in live[_at(code, c.Access, 1)]


def test_a_position_written_anew_is_dead_before() -> None:
    code = _code(
        """
        def kernel(n):
            ring = buffer(3, 64, 64)
            for i in range(0, 3, 1):
                store(ring[i])
        """
    )
    enter = code.steps[_at(code, c.Enter)]
    assert isinstance(enter, c.Enter) and enter.position is not None
    live = live_registers(code)
    assert enter.position not in live[_at(code, c.Enter)]
    assert enter.position in live[_at(code, c.Head)]


def test_every_register_a_step_reads_is_live_there() -> None:
    code = _code(
        """
        def kernel(n):
            ring, full = buffer(2, 64, 64), barriers(2)
            c = 0
            for i in range(0, n, 1):
                expect(full[c % 2], 8192)
                copy(ring[c % 2], full[c % 2])
                wait(full[c % 2], c // 2 & 1)
                c = c + 1
        """
    )
    live = live_registers(code)
    assert len(live) == len(code.steps)
    for at, step in enumerate(code.steps):
        read = {
            getattr(step, name)
            for name in ("source", "index", "barrier", "phase", "view")
            if isinstance(getattr(step, name, None), int)
        }
        assert read <= set(live[at]), step
