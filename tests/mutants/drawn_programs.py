"""Small programs of a grammar, as scripts of tests/check: channels between tasks, and things beside them.

What a program is made of is drawn: how each channel is filled (TMA, threads, cp.async, one buffer handed over by named
barriers), how deep it is, through which views it is filled and read, who reads it; buffers that live before, in and
behind the tasks; barriers given up or left behind; fences, assembly, and flags in global memory. Most lines are right;
now and then one is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

FORGOTTEN = 0.02  # of lines that another leans on
ASSEMBLY = (
    'asm("mov.u32 $0, 1;")',
    'asm("// bar.sync 8, 256;\\\\0Amov.u32 $0, $1;")',
    'asm("{ .reg .b32 t; add.u32 t, $1, 3; mov.u32 $0, t; }")',
    'asm("bar.warp.sync 0xffffffff; mov.u32 $0, 0;")',
)


def program(random: Random) -> str:
    """A script; it may be wrong."""
    return _Program(random).text()


class _Program:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.arguments = ["n"]
        self.setup: list[str] = []
        self.end: list[str] = []
        self.warps = [4, *(random.choice((1, 4, 4)) for _ in range(random.choice((1, 1, 1, 2))))]
        self.bodies: list[list[str]] = [[] for _ in self.warps]
        self.heads: list[list[str]] = [[] for _ in self.warps]
        self.bound = "n"

    def text(self) -> str:
        self._before()
        self._bound()
        for number in range(self.random.choice((1, 1, 2))):
            self._channel(f"r{number}")
        for task in range(len(self.warps)):
            self._beside(task)
        self._behind()
        lines = [f"def kernel({', '.join(self.arguments)}):", *self._in(self.setup, 1), "    with specialize():"]
        for warps, head, body in zip(self.warps, self.heads, self.bodies, strict=True):
            lines += [f"        with task({warps}):", *self._in(head or ["pass"], 3)]
            lines += [f"            for i in range(0, {self.bound}, 1):", *self._in(body or ["pass"], 4)]
        return "\n".join([*lines, *self._in(self.end, 1)]) + "\n"

    def _in(self, lines: list[str], depth: int) -> list[str]:
        return ["    " * depth + line for line in lines]

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _lines(self, *lines: str) -> list[str]:
        """Those that are not forgotten."""
        return [line for line in lines if " = " in line or not self._chance(FORGOTTEN)]

    # ---- channels

    def _channel(self, name: str) -> None:
        tasks = list(range(len(self.warps)))
        filler = self.random.choice(tasks)
        readers = [task for task in tasks if task != filler]
        if len(readers) > 1 and self._chance(0.5):
            readers = [self.random.choice(readers)]
        kinds: list[Callable[[str, int, list[int]], None]] = [self._by_tma, self._by_tma]
        if self.warps[filler] == 4:
            kinds += [self._computed, self._by_threads]
        if len(readers) == 1 and self.warps[filler] == self.warps[readers[0]] == 4:
            kinds.append(self._handed)
        self.random.choice(kinds)(name, filler, readers)

    def _ring(self, name: str, depth: int, full: int, empty: int) -> tuple[str, str, str, list[str], list[str]]:
        """Of a ring: slot, its full and empty barriers, what waits for a free buffer, what for a full one."""
        self.setup.append(
            f"{name}, {name}_full, {name}_empty = buffer({depth}, 64, 64), barriers({depth}, {full}), "
            f"barriers({depth}, {empty})"
        )
        at, turn = f"i % {depth}", f"i // {depth}"
        free = f"wait({name}_empty[{at}], {turn} + 1 & 1)"
        come = f"wait({name}_full[{at}], {turn} & 1)"
        return f"{name}[{at}]", f"{name}_full[{at}]", f"{name}_empty[{at}]", [free], [come]

    def _by_tma(self, name: str, filler: int, readers: list[int]) -> None:
        depth = self.random.choice((1, 2, 2, 3))
        slot, full, empty, free, come = self._ring(name, depth, 1, len(readers))
        copies = [f"copy({slot}, {full})"]
        if self._chance(0.3):
            copies = [f"copy(part({slot}, ({row}, 0), (32, 64)), {full})" for row in (0, 32)]
        if self._chance(0.1):
            copies = [f"copy(trans(trans({slot})), {full})"]
        self.bodies[filler] += self._lines(*free, f"expect({full}, 8192)", *copies)
        for reader in readers:
            use, threads = self._read(slot, reader)
            fence = ["fence()"] if threads else []
            self.bodies[reader] += self._lines(*come, *use, *fence, f"arrive({empty})")

    def _computed(self, name: str, filler: int, readers: list[int]) -> None:
        slot, full, empty, free, come = self._ring(name, self.random.choice((1, 2, 3)), 1, len(readers))
        stores = [f"store({slot})"]
        if self._chance(0.3):
            stores = [f"store(part({slot}, ({row}, 0), (32, 64)))" for row in (0, 32)]
        self.bodies[filler] += self._lines(*free, *stores, "fence()", f"arrive({full})")
        for reader in readers:
            use, _ = self._read(slot, reader)
            self.bodies[reader] += self._lines(*come, *use, f"arrive({empty})")

    def _by_threads(self, name: str, filler: int, readers: list[int]) -> None:
        """cp.async: the threads say themselves when what they copied is there, or one does for all."""
        alone = self._chance(0.5)
        slot, full, empty, free, come = self._ring(name, self.random.choice((1, 2)), 128 if alone else 1, len(readers))
        tell = [f"cp_arrive({full})"] if alone else ["commit()", "cp_wait(0)", f"arrive({full})"]
        fence = ["fence()"] if not alone and self._chance(0.5) else []
        self.bodies[filler] += self._lines(*free, f"cp({slot})", *tell[:-1], *fence, tell[-1])
        for reader in readers:
            use, _ = self._read(slot, reader)
            first = ["fence()"] if self._chance(0.7) else []
            self.bodies[reader] += self._lines(*come, *first, *use, f"arrive({empty})")

    def _handed(self, name: str, filler: int, readers: list[int]) -> None:
        """One buffer and two named barriers."""
        self.setup.append(f"{name} = buffer(64, 64)")
        first = self.random.choice((8, 10))
        use, _ = self._read(name, readers[0])
        there, back = f"bar_sync({first}, 256)", f"bar_sync({first + 1}, 256)"
        self.bodies[filler] += self._lines(f"store({name})", "fence()", there, back)
        self.bodies[readers[0]] += self._lines(there, *use, back)

    def _read(self, slot: str, reader: int) -> tuple[list[str], bool]:
        """(lines, do threads read it). Tiles in registers are spread over four warps."""
        where = "tma_store_back" if self._chance(0.06) else "tma_store"
        stored = [f"{where}({slot})", "store_wait(0)"], False
        if self.warps[reader] < 4:
            return stored
        products = [
            ([f"dot_wait(0, dot({slot}, trans({slot}), zeros(64, 64)))"], False),
            ([f"dot_wait(0, dot({slot}, {slot}, zeros(64, 64)))"], False),
        ]
        ways = [
            ([f"load({slot})"], True),
            ([f"use(load({slot}))"], True),
            ([f"use(convert(load({slot})))"], True),
            ([f"load(part({slot}, (0, 0), (32, 64)))", f"load(part({slot}, (32, 0), (32, 64)))"], True),
            ([f"load(as_bytes({slot}, 64, 128))"] if self._chance(0.3) else [f"load({slot})"], True),
        ]
        return self.random.choice([*ways, *products, stored])

    # ---- beside them

    def _bound(self) -> None:
        if self._chance(0.3):
            self.arguments.append("p: ptr")
            self.bound = "read(p)"
            if self._chance(0.4):
                self.setup.append("m = read(p)")
                self.bound = "m"
        if self._chance(0.2):
            self.arguments.append("q: ptr")
            task = self.random.randrange(len(self.warps))
            place = self.random.choice((self.bodies[task], self.heads[task], self.setup, self.end))
            place.append(self.random.choice(("write(q, 1)", "add(q, 1)", "keep(fetch())")))

    def _before(self) -> None:
        """What is done with before the tasks begin."""
        if self._chance(0.3):
            self.setup += self._lines("t0 = buffer(64, 64)", "store(t0)", "use(load(t0))")
            self.setup += ["fence()"] if self._chance(0.7) else []
            self.setup += ["dealloc(t0)"] if self._chance(0.4) else []
        if self._chance(0.25):
            self.setup += ["t1, once = buffer(64, 64), barriers(1)"]
            self.setup += self._lines("expect(once[0], 8192)", "copy(t1, once[0])", "wait(once[0], 0)", "load(t1)")
            self.setup += ["fence()"] if self._chance(0.7) else []
            self.setup += ["inval(once[0])"] if self._chance(0.8) else []

    def _beside(self, task: int) -> None:
        """In a task, around or in its loop."""
        extra = [[self.random.choice(ASSEMBLY)], ["fence()"]]
        fence = ["fence()"] if self._chance(0.8) else []
        if self.warps[task] == 4:
            extra += [
                ["s = filled(numbers(64, 64))", "load(s)"],
                ["use(convert(numbers(64, 64)))"],
                ["u = buffer(64, 64)", "store(u)", *fence, "tma_store(u)", "store_wait(0)"],
                ["w = filled(numbers(64, 64))", *fence, "dot_wait(0, dot(w, w, zeros(64, 64)))"],
            ]
        if self._chance(0.35):
            lines = self.random.choice(extra)
            body = self.bodies[task]
            where = self.random.choice((0, len(body)))
            if self._chance(0.6):
                body[where:where] = lines
            else:
                self.heads[task] += lines

    def _behind(self) -> None:
        """After the tasks."""
        if self._chance(0.4):
            self.end += ["z = buffer(64, 64)", *self._lines("store(z)", "fence()"), "tma_store(z)", "store_wait(0)"]
            names = [line.split(", ")[1] for line in self.setup if "_full" in line.split(" = ")[0]]
            if self._chance(0.5):
                self.end[:0] = [f"inval({name}[0])" for name in names]
