"""Where tasks stand in rings: registers that hold slots and phases, and what the code does with them (see `rings`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wspec.check import code as c
from wspec.check.clock import look, timed
from wspec.check.liveness import gathered, live_registers, reads, successors, writes
from wspec.check.names import Names
from wspec.check.scalars import kept

Pair = tuple[int | None, int]  # registers of a task: the slot (None: a ring of one) and the phase
Node = tuple[str, int, int]  # ("register", task, register) or ("root", 0, allocation)
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Place:
    """What a register says of a position: its slot or its phase, some steps on."""

    pair: Pair
    ahead: int
    is_phase: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """A position in live registers: where it is read from, and which registers turn with it."""

    group: int
    slots: tuple[int, ...]
    phases: tuple[int, ...]


@dataclass(slots=True)
class _Use:
    """A wait on a barrier of a ring: the index taken of the ring, and the phase."""

    root: int
    depth: int
    index: int | None
    phase: int


class Positions:
    """The positions of all tasks in rings, and the steps that hold a group of rings."""

    def __init__(self, program: c.Program, names: Names) -> None:
        self.program, self.names = program, names
        self.depths: list[int] = []  # of the groups
        self.group_of: dict[int, int] = {}  # allocation -> group
        self.held: list[list[int]] = []  # task, step -> the groups that the task may hold from there on, as bits
        self.standing: list[list[tuple[Standing, ...]]] = []  # task, step -> positions in the registers that are live
        self.codes = [_Code(self, index, code) for index, code in enumerate(program.codes)]
        self.parents: dict[Node, Node] = {}
        self.bad: set[Node] = set()
        self.depth: dict[Node, int] = {}
        self.pairs: list[dict[Pair, int]] = [{} for _ in program.codes]  # task -> positions that are carried, depths
        self._run()

    def _run(self) -> None:
        self._find_pairs()
        self._join_roots()
        self._refuse_parts()
        groups: dict[Node, int] = {}
        for node in list(self.parents):
            top = self.find(node)
            if top in self.bad or top not in self.depth:
                continue
            if top not in groups:
                groups[top] = len(groups)
                self.depths.append(self.depth[top])
            if node[0] == "root":
                self.group_of[node[2]] = groups[top]
        self.groups = groups
        for index, code in enumerate(self.codes):
            code.settle({pair: g for pair in self.pairs[index] if (g := self._group(index, pair)) is not None})
        for code in self.codes:
            held = code.held()
            standing = [code.standing(at) for at in range(len(code.steps))]
            self.held.append([bits | lost for bits, (_, lost) in zip(held, standing, strict=True)])
            self.standing.append([found for found, _ in standing])

    def _group(self, index: int, pair: Pair) -> int | None:
        return self.groups.get(self.find(("register", index, pair[1])))

    # ---- positions, and what hangs together

    def _find_pairs(self) -> None:
        pending: list[tuple[int, Pair, int]] = []
        for index, code in enumerate(self.codes):
            for use in code.uses():
                ring: Node = ("root", 0, use.root)
                self._measure(ring, use.depth)
                pair = code.base(use.index, use.phase)
                if pair is not None:
                    self._join(("register", index, pair[1]), ring)
                    pending.append((index, pair, use.depth))
        while pending:
            index, pair, depth = pending.pop()
            node: Node = ("register", index, pair[1])
            self._measure(node, depth)
            if pair[0] is not None:
                self._join(node, ("register", index, pair[0]))
            if pair in self.pairs[index]:
                continue
            self.pairs[index][pair] = depth
            for slot, phase in self.codes[index].origins(pair):
                if self.codes[index].is_start(slot, phase):
                    continue
                base = self.codes[index].base(slot, phase)
                if base is None or self.codes[index].ahead(slot, phase, base, depth) is None:
                    self.bad.add(self.find(node))
                    continue
                self._join(node, ("register", index, base[1]))
                pending.append((index, base, depth))
            if not self.codes[index].is_carried(pair):
                self.bad.add(self.find(node))

    def _join_roots(self) -> None:
        """Rings whose buffers are taken at a slot that is some ring's."""
        for index, code in enumerate(self.codes):
            slots = {pair[0]: pair for pair in self.pairs[index] if pair[0] is not None}
            for step in code.steps:
                if isinstance(step, c.Index) and (root := code.ring(step.source)) is not None:
                    for leaf in code.leaves(step.index) & slots.keys():
                        self._join(("root", 0, root), ("register", index, slots[leaf][1]))
                        self._measure(("root", 0, root), step.count)

    def _refuse_parts(self) -> None:
        """Rings of which some slots are taken together, or barriers seen as something else: they cannot be turned."""
        for code in self.codes:
            for step in code.steps:
                if isinstance(step, c.Part) and not code.is_part(step.source):
                    for root in self.names.may_be(code.code.values[step.source]):
                        if step.box is not None or root in self.names.barriers:
                            self.bad.add(self.find(("root", 0, root)))

    def _measure(self, node: Node, depth: int) -> None:
        top = self.find(node)
        if self.depth.setdefault(top, depth) != depth or depth > MAX_DEPTH:
            self.bad.add(top)

    def find(self, node: Node) -> Node:
        self.parents.setdefault(node, node)
        while self.parents[node] != node:
            node = self.parents[node]
        return node

    def _join(self, left: Node, right: Node) -> None:
        one, other = self.find(left), self.find(right)
        if one == other:
            return
        self.parents[one] = other
        if one in self.bad:
            self.bad.add(other)
        if one in self.depth:
            self._measure(other, self.depth[one])


class _Code:
    """One task."""

    def __init__(self, owner: Positions, index: int, code: c.Code) -> None:
        self.owner, self.code, self.steps = owner, code, code.steps
        self.index = index
        self.defs: dict[int, list[tuple[c.Step, int]]] = {}  # register -> steps that write it, and the source of a move
        for step in code.steps:
            sources = dict(step.pairs) if isinstance(step, c.Move | c.WaitDots) else {}
            for register in writes(step):
                self.defs.setdefault(register, []).append((step, sources.get(register, -1)))
        self.captured: dict[int, list[int]] = {}  # register -> registers of the code around
        for step in owner.program.codes[0].steps:
            if isinstance(step, c.Fork) and index in step.tasks:
                for there, here in step.captured[step.tasks.index(index)]:
                    self.captured.setdefault(there, []).append(here)
        self.groups: dict[Pair, int] = {}
        self.live = live_registers(code)
        self._places: dict[int, Place | None] = {}
        self._leaves: dict[int, frozenset[int]] = {}

    # ---- single registers

    def _only(self, register: int) -> c.Step | None:
        """The one step that writes a register."""
        found = self.defs.get(register, [])
        return found[0][0] if len(found) == 1 and register not in self.captured else None

    def constant(self, register: int) -> int | None:
        step = self._only(register)
        if isinstance(step, c.Constant):
            return step.value
        if register in self.captured and register not in self.defs and self.index != 0:
            values = {self.owner.codes[0].constant(here) for here in self.captured[register]}
            return values.pop() if len(values) == 1 else None
        return None

    def ring(self, register: int) -> int | None:
        """The allocation, when the register holds all of it."""
        step = self._only(register)
        if isinstance(step, c.Allocate):
            return step.root
        if register in self.captured and register not in self.defs and self.index != 0:
            roots = {self.owner.codes[0].ring(here) for here in self.captured[register]}
            return roots.pop() if len(roots) == 1 else None
        return None

    def _made(self, step: c.Step | None) -> tuple[int, ...] | None:
        """The registers that a computed integer comes from."""
        if isinstance(step, c.Compute):
            return step.sources
        if isinstance(step, c.Select) and step.register is not None:
            return (step.register, step.then, step.other)
        return None

    def leaves(self, register: int) -> frozenset[int]:
        """What an integer is computed from, less constants."""
        if register not in self._leaves:
            self._leaves[register] = frozenset((register,))  # while its own are asked for
            sources = self._made(self._only(register))
            if self.constant(register) is not None:
                self._leaves[register] = frozenset()
            elif sources is not None:
                self._leaves[register] = frozenset().union(*(self.leaves(source) for source in sources))
        return self._leaves[register]

    def value(self, register: int, given: dict[int, int]) -> int | None:
        """The integer when some registers are given."""
        return self._value(register, dict(given))

    def _value(self, register: int, found: dict[int, int | None]) -> int | None:
        if register not in found:
            look()
            found[register] = self._computed(register, found)
        return found[register]

    def _computed(self, register: int, found: dict[int, int | None]) -> int | None:
        known = self.constant(register)
        if known is not None:
            return known
        step = self._only(register)
        sources = self._made(step)
        values = [self._value(source, found) for source in sources] if sources is not None else [None]
        ready = [value for value in values if value is not None]
        if len(ready) < len(values):
            return None
        if isinstance(step, c.Select):
            return ready[1] if ready[0] else ready[2]
        assert isinstance(step, c.Compute)
        return kept(int(step.function(*ready)))

    # ---- positions

    def uses(self) -> Iterator[_Use]:
        """Waits on the barriers of rings."""
        for step in self.steps:
            if isinstance(step, c.Wait):
                taken = self._only(step.barrier)
                if isinstance(taken, c.Index):
                    root = self.ring(taken.source)
                    if root is not None:
                        yield _Use(root, taken.count, taken.index, step.phase)
                elif (root := self.ring(step.barrier)) is not None:
                    yield _Use(root, 1, None, step.phase)

    def base(self, slot: int | None, phase: int) -> Pair | None:
        """The carried position that a slot and a phase are computed from."""
        left = self.leaves(slot) if slot is not None else frozenset[int]()
        right = self.leaves(phase) - left
        if len(left) > 1 or len(right) != 1:
            return None
        return next(iter(left), None), next(iter(right))

    def origins(self, pair: Pair) -> Iterator[tuple[int | None, int]]:
        """What a carried position takes over."""
        for step, source in self.defs.get(pair[1], []):
            if isinstance(step, c.Move):
                yield (dict(step.pairs).get(pair[0], -1) if pair[0] is not None else None), source

    def is_carried(self, pair: Pair) -> bool:
        """Are both parts of a position only ever written together, by moves?"""
        steps = [{id(step) for step, _ in self.defs.get(one, [])} for one in pair if one is not None]
        moves = all(isinstance(step, c.Move) for one in pair if one is not None for step, _ in self.defs.get(one, []))
        return moves and all(one == steps[0] for one in steps) and not any(one in self.captured for one in pair)

    def is_start(self, slot: int | None, phase: int) -> bool:
        """Does a ring begin anew?"""
        return self.constant(phase) is not None and (slot is None or slot < 0 or self.constant(slot) is not None)

    def ahead(self, slot: int | None, phase: int, pair: Pair, depth: int, turned: bool = False) -> int | None:
        """By how much a slot and a phase are ahead of a position; `turned`: perhaps with the other phase."""
        found: set[int] = set()
        for position in range(2 * depth):
            given = {pair[1]: position // depth}
            if pair[0] is not None:
                given[pair[0]] = position % depth
            at, bit = self.value(slot, given) if slot is not None else 0, self.value(phase, given)
            if at is None or bit is None or not 0 <= at < depth or (bit not in (0, 1) and not turned):
                return None
            found.add((depth * (bit & 1) + at - position) % (2 * depth))
        return found.pop() if len(found) == 1 else None

    # ---- once the groups are known

    def settle(self, groups: dict[Pair, int]) -> None:
        self.groups = groups
        self.by_register: dict[int, list[Pair]] = {}
        for pair in groups:
            for register in pair:
                if register is not None:
                    self.by_register.setdefault(register, []).append(pair)
        self._colour()

    def _colour(self) -> None:
        """Register -> the groups its integer may depend on, as bits."""
        self.colours = [0] * self.code.registers
        for register, pairs in self.by_register.items():
            for pair in pairs:
                self.colours[register] |= 1 << self.groups[pair]
        changed = True
        while changed:
            changed = False
            for step in timed(self.steps):
                if isinstance(step, c.Move | c.WaitDots):
                    flows: list[tuple[int, tuple[int, ...]]] = [(target, (source,)) for target, source in step.pairs]
                elif isinstance(step, c.Compute | c.Select | c.Decide):
                    flows = [(step.dst, tuple(reads(step)))]
                elif isinstance(step, c.Enter) and step.position is not None and step.lower is not None:
                    flows = [(step.position, (step.lower,))]
                else:
                    continue
                for target, sources in flows:
                    colour = self.colours[target]
                    for source in sources:
                        colour |= self.colours[source]
                    if colour != self.colours[target]:
                        self.colours[target], changed = colour, True

    def place(self, register: int) -> Place | None:
        """What a register says of a position, when it is a slot or a phase."""
        if register not in self._places:
            self._places[register] = self._make_place(register)
        return self._places[register]

    def _make_place(self, register: int) -> Place | None:
        leaves = self.leaves(register)
        for pair in {one for leaf in leaves for one in self.by_register.get(leaf, [])}:
            if not leaves <= {*pair}:
                continue
            depth = self.owner.depths[self.groups[pair]]
            values = []
            for position in range(2 * depth):
                given = {pair[1]: position // depth}
                if pair[0] is not None:
                    given[pair[0]] = position % depth
                values.append(self.value(register, given))
            for ahead in range(2 * depth):
                places = [(position + ahead) % (2 * depth) for position in range(2 * depth)]
                if pair[1] not in leaves and values == [at % depth for at in places]:
                    return Place(pair, ahead % depth, False)
                if values == [at // depth for at in places]:
                    return Place(pair, ahead, True)
        return None

    def standing(self, at: int) -> tuple[tuple[Standing, ...], int]:
        """The positions in the live registers before a step; the groups that one of them is in the way of."""
        slots: dict[tuple[Pair, int], list[int]] = {}
        phases: dict[tuple[Pair, int], list[int]] = {}
        lost = 0
        for register in timed(self.live[at]):
            if not self.colours[register]:
                continue
            place = self.place(register)
            if place is None or self.colours[register] != 1 << self.groups[place.pair]:
                lost |= self.colours[register]
            elif place.is_phase:
                phases.setdefault((place.pair, place.ahead), []).append(register)
            else:
                slots.setdefault((place.pair, place.ahead), []).append(register)
        found = []
        for key, registers in phases.items():
            pair, ahead = key
            group = self.groups[pair]
            depth = self.owner.depths[group]
            beside = slots.pop((pair, ahead % depth), [])
            if depth > 1 and not beside:
                lost |= 1 << group
            else:
                found.append(Standing(group, tuple(beside), tuple(registers)))
        found += [Standing(self.groups[pair], tuple(registers), ()) for (pair, _), registers in slots.items()]
        return tuple(found), lost

    # ---- steps that hold a group

    def held(self) -> list[int]:
        """Per step: the groups that it or a later one holds."""
        own = [self._holds(step) for step in self.steps]
        return gathered(own, [successors(at, step) for at, step in enumerate(self.steps)])

    def _holds(self, step: c.Step) -> int:
        """The groups with which a step does more than go along with them."""
        match step:
            case c.Compute() | c.Select() | c.Decide():
                return 0
            case c.Move():
                return self._begins(step)
            case c.Index():
                return self._takes(step)
            case c.Allocate(root=root):
                return self._group(root)
            case c.Init(barrier=register) | c.Invalidate(barrier=register):
                return self._any_of(register)
            case c.Wait():
                return self._waits(step) | self._predicate(step)
            case c.Barriered():
                return self._names(step.barrier) | self._predicate(step)
            case c.ArriveElements():
                return self._names(step.barrier)
        held = 0
        for register in reads(step):
            held |= self.colours[register]
        return held

    def _names(self, barrier: int) -> int:
        """All of a ring of barriers stands for the first of them."""
        root = self.ring(barrier)
        if root is None:
            return 0 if self.is_part(barrier) else self._any_of(barrier)
        group = self.owner.group_of.get(root)
        return 0 if group is None or self.owner.depths[group] == 1 else 1 << group

    def _predicate(self, step: c.Barriered) -> int:
        known = step.predicate.register if step.predicate is not None else None
        return self.colours[known] if known is not None else 0

    def _begins(self, step: c.Move) -> int:
        """Carried positions that begin anew."""
        held = 0
        sources = dict(step.pairs)
        for pair, group in timed(self.groups.items()):
            if pair[1] in sources and not self.leaves(sources[pair[1]]):
                held |= 1 << group
        return held

    def _takes(self, step: c.Index) -> int:
        root = self.ring(step.source)
        group = self.owner.group_of.get(root) if root is not None else None
        colours = self.colours[step.index]
        if root is not None and group is None:
            return colours
        if group is None:
            return colours | (0 if self.is_part(step.source) else self._any_of(step.source))
        depth = self.owner.depths[group]
        if depth == 1 and step.count == 1 and self.constant(step.index) == 0:
            return 0
        place = self.place(step.index)
        if place is not None and not place.is_phase and self.groups[place.pair] == group and step.count == depth:
            return colours & ~(1 << group)
        return colours | 1 << group

    def is_part(self, register: int) -> bool:
        """Does the register hold one buffer of an allocation, or a part of one?"""
        step = self._only(register)
        while isinstance(step, c.Part):
            step = self._only(step.source)
        return isinstance(step, c.Index)

    def _waits(self, step: c.Wait) -> int:
        taken = self._only(step.barrier)
        index = taken.index if isinstance(taken, c.Index) else None
        root = self.ring(taken.source) if isinstance(taken, c.Index) else self.ring(step.barrier)
        group = self.owner.group_of.get(root) if root is not None else None
        colours = self.colours[step.phase]
        if root is not None and group is None:
            return colours
        if group is None:
            return colours | self._any_of(step.barrier)
        depth = self.owner.depths[group]
        if index is not None and depth == 1 and self.constant(index) == 0:
            index = None
        if index is None and depth > 1:
            return colours | 1 << group
        pair = self.base(index, step.phase)
        if pair is None or self.groups.get(pair) != group:
            return colours | 1 << group
        if self.ahead(index, step.phase, pair, depth, turned=True) is None:
            return colours | 1 << group
        return colours & ~(1 << group)

    def _group(self, root: int) -> int:
        group = self.owner.group_of.get(root)
        return 0 if group is None else 1 << group

    def _any_of(self, register: int) -> int:
        """The groups of all allocations that a register may be about."""
        held = 0
        for root in self.owner.names.may_be(self.code.values[register]):
            held |= self._group(root)
        return held
