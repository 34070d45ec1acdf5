"""What a warp group issues and waits for later: dots, TMA loads and stores, cp.async.

Dots run in the order of their issue, whoever issued them, and hold their warp group up until their last instruction is
issued; where each instruction waits for the one before, those of other warp groups run in between. Loads run in the
order of their issue, whoever issued them, and so do stores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from wspec.lab.simulate.actions import Action, Flow, Kind
from wspec.lab.simulate.clock import Running
from wspec.lab.simulate.handshakes import Handshakes
from wspec.lab.simulate.player import Player
from wspec.lab.simulate.state import Group
from wspec.model.fitted import QUICK

_CAUSES = {"dots": "dot", "stores": "store", "copies": "copies"}
TMA, TMA_STORE = "TMA", "TMA stores"
TENSOR_CORE = "tensor core"


class Asynchrony:
    """The actions on units that work on their own. Each says whether the warp group goes on at once."""

    def __init__(self, engine: Player, handshakes: Handshakes) -> None:
        self.engine, self.numbers, self.handshakes = engine, engine.numbers, handshakes
        self._stored: Running | None = None  # the store that was issued last
        self._burst = 0.0  # instructions of dots that were issued one right behind the other
        self.kinds: dict[Kind, Callable[[Group, Action], bool]] = {
            Kind.DOT: self._dot,
            Kind.DOT_WAIT: lambda group, action: self._drain(group, "dots", action.a),
            Kind.COPY: self._copy,
            Kind.STORE: self._store,
            Kind.STORE_WAIT: lambda group, action: self._drain(group, "stores", action.a),
            Kind.CP: self._cp,
            Kind.CP_COMMIT: self._commit,
            Kind.CP_WAIT: lambda group, action: self._drain(group, "copies", action.a),
            Kind.CP_ARRIVE: self._cp_arrive,
        }

    def _start(
        self, group: Group, action: Action, queue: Hashable, then: Callable[[Running], None],
        behind: Running | None = None,
    ) -> Running:  # fmt: skip
        assert action.flow is not None
        track = queue if isinstance(queue, str) else f"tensor core: {group.track}"

        def finished(one: Running) -> None:
            self.engine.slice(track, group.track, one.started, action)
            then(one)

        return self.engine.clock.start(action.flow, (group.key, action.a), finished, queue, behind)

    def _dot(self, group: Group, action: Action) -> bool:
        """An instruction is issued when the one before is through: the warp group goes on with the last one's issue."""

        def finished(one: Running) -> None:
            one.done = False
            self.engine.clock.at(action.after, ("dot", group.key), lambda: self._done(group, one))

        dots = group.pending.setdefault("dots", deque())
        queue = (TENSOR_CORE, group.key) if action.gaps else (TENSOR_CORE,)
        one = self._start(group, action, queue, finished)
        dots.append(one)
        last = action.pieces[0]
        assert isinstance(last, Flow)
        one.rest = last
        if action.held is None:
            one.reached = lambda: self.engine.resume(group, "dot")
        else:
            self.engine.resume_after(self._issue(*action.held), group, "dot")
        return False

    def _issue(self, count: float, each: float) -> float:
        """Cycles until a dot is issued, behind others that are; after a few instructions at half the speed."""
        clock = self.engine.clock
        if clock.issued <= clock.now:
            self._burst = 0.0
        quick = min(count, max(0.0, QUICK - self._burst))
        self._burst += count
        clock.issued = max(clock.now, clock.issued) + each * (2 * count - quick)
        return clock.issued - clock.now

    def _done(self, group: Group, one: Running) -> None:
        """Something a warp group may wait for is done."""
        one.done = True
        for arrival in [arrival for arrival in group.arrivals if all(copy.done for copy in arrival[0])]:
            group.arrivals.remove(arrival)
            self._arrive(group, arrival[1])
        if group.limit is not None and group.unfinished(group.limit[0]) <= group.limit[1]:
            cause, group.limit = _CAUSES[group.limit[0]], None
            self.engine.resume(group, cause)

    def _drain(self, group: Group, what: str, may_run: int) -> bool:
        """Wait until no more than that many are not done."""
        if group.unfinished(what) <= may_run:
            return True
        group.limit = (what, may_run)
        return False

    # ---- TMA

    def _copy(self, group: Group, action: Action) -> bool:
        """The tile is there, and reported, a latency after its last byte was sent."""
        if not group.is_first:
            return True
        barrier = self.handshakes.barrier(group, action.a)

        def finished(one: Running) -> None:
            key, by = ("landed", group.instance.slot, action.a, action.b), ("TMA", self.engine.clock.now)
            arrive = self.handshakes.landed
            self.engine.clock.at(action.after, key, lambda: arrive(barrier, action.b, by))

        self._start(group, action, TMA, finished, self._stored)
        self.engine.resume_after(max(0.0, self.numbers.tma_issue - self.numbers.ready_latency), group, "latency")
        return False

    def _store(self, group: Group, action: Action) -> bool:
        """Done, for the waiting warp, when the tile has been read."""
        if group.is_first:

            def finished(one: Running) -> None:
                one.done = False
                key = ("stored", group.key)
                self.engine.clock.at(self.numbers.store_latency, key, lambda: self._done(group, one))

            stores = group.pending.setdefault("stores", deque())
            self._stored = self._start(group, action, TMA_STORE, finished)
            stores.append(self._stored)
        return True

    # ---- cp.async

    def _cp(self, group: Group, action: Action) -> bool:
        def finished(one: Running) -> None:
            one.done = False
            key = ("cp", group.key)
            self.engine.clock.at(self.numbers.load_latency, key, lambda: self._done(group, one))

        group.copies.append(self._start(group, action, TMA, finished))
        return True

    def _commit(self, group: Group, action: Action) -> bool:
        group.groups.append(group.copies)
        group.copies = []
        return True

    def _cp_arrive(self, group: Group, action: Action) -> bool:
        """The warps arrive at a barrier when the copies that they issued so far are done."""
        group.copies = [one for one in group.copies if not one.done]
        bound = [one for copies in (*group.groups, group.copies) for one in copies if not one.done]
        if bound:
            group.arrivals.append((bound, action))
        else:
            self._arrive(group, action)
        return True

    def _arrive(self, group: Group, action: Action) -> None:
        """Each thread, where the barrier counts them from the start; else once for all."""
        self.handshakes.arrive_later(group, action, max(1, action.b * group.warps))
