"""A plan: how one kernel is divided into tasks, as a frozen value.

Operations are named by their number in the walk of the kernel's function (`wspec.id` in dumps); `fingerprint` ties a
plan to the kernel it was made for. `plan.to_text()` and `Plan.from_text` are inverse; the text is TOML.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from wspec.decision import NOT_ASKED, Decision
from wspec.ir.core import Operation
from wspec.plan.fill import Fill
from wspec.target.hopper import WARP_GROUP
from wspec.tile_scheduler import Raster, StreamK, TileLoop

VERSION = 3  # of a plan's text


@dataclass(frozen=True, slots=True)
class Task:
    """Operations that run together on one set of warps."""

    name: str
    kind: str  # "producer": moves tiles; "consumer": multiplies them; "helper": another link of a chain
    warps: int  # per replica
    registers: int  # a thread
    replicas: int = 1  # how many warp groups run it, each on a slice of the tile


@dataclass(frozen=True, slots=True)
class Channel:
    """A ring of shared-memory buffers from one task to others: of tiles from memory, or of values a task computes."""

    name: str
    loads: tuple[int, ...]  # the load operations that fill it, in program order; of a value: what computes it
    depth: int  # buffers in the ring
    buffer_bytes: int  # one buffer, all replicas together
    sliced_dim: int = -1  # the tile dimension replicas share, or -1: every replica reads all of it
    reused: bool = True  # False: filled once in the kernel's life, so nothing needs to be released
    stays: bool = False  # True: the tile is read by a loop that streams others
    source: str = ""  # the task that computes the value, where one does; else the producer fills it
    readers: tuple[str, ...] = ()  # the tasks that read it; none named: the consumer
    result: int = 0  # which result of the operation the value is
    private: bool = False  # each member of a team has a ring of its own, for a tile of its own
    fill: Fill = Fill.TMA  # how its buffers are filled
    barriers: str = ""  # the channel whose barriers say that its buffers are full or free, too; "": it has its own

    @property
    def is_computed(self) -> bool:
        return self.fill is Fill.COMPUTED

    @property
    def streams(self) -> bool:
        """Is it filled in every iteration of a loop?"""
        return self.reused and not self.stays

    @property
    def sliced(self) -> bool:
        return self.sliced_dim >= 0

    @property
    def apart(self) -> bool:
        """Does each replica have a ring of its own: for its slice of the tile, or for its own tile?"""
        return self.sliced or self.private


@dataclass(frozen=True, slots=True)
class LoopSchedule:
    """Software pipelining of one consumer loop: operations of `late` run one iteration behind the others."""

    loop: int
    stage1: tuple[int, ...] = ()  # stage 1; everything else in the body is stage 0
    in_flight: bool = False  # the dots of one iteration may still run while the next one's are issued
    ping_pong: bool = False  # consumer groups issue their dots one group after the other


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model expects, in cycles of one SM."""

    iteration_cycles: float = 0.0  # steady state of the specialized loop
    plain_iteration_cycles: float = 0.0  # the same loop unspecialized
    overhead_cycles: float = 0.0  # extra start-up cost of specializing
    bound: str = ""  # what limits the steady state
    chain_cycles: float = 0.0  # the best chain of tasks that was not taken; 0: there was none
    chain_note: str = ""  # why it was not taken


@dataclass(frozen=True, slots=True)
class Plan:
    """All decisions for one kernel."""

    kernel: str
    fingerprint: str
    source_warps: int
    tasks: tuple[Task, ...]
    channels: tuple[Channel, ...]
    loops: tuple[LoopSchedule, ...] = ()
    staging: tuple[tuple[int, str, str], ...] = ()  # (descriptor store, channel, kind: plan/staging.py)
    smem_bytes: int = 0
    blocks_per_sm: int = 1  # thread blocks that share an SM; their registers and shared memory are divided by it
    prediction: Prediction = Prediction()
    tile_loop: TileLoop | None = None  # blocks walk through tiles; operations are numbered with that loop in place
    elide_barriers: bool = False  # warp groups' barriers that order nothing are taken out of the PTX
    hold_waits: bool = False  # waits for products stay behind the values before them
    packed: tuple[int, ...] = ()  # operations whose tiles are bits of a byte, computed several bytes at a time
    epilogue_overlap: Decision[bool] = NOT_ASKED  # a tile is finished beside the first product of the next one
    ping_pong: Decision[bool] = NOT_ASKED  # groups issue the products of a loop one after the other
    shared_barriers: Decision[bool] = NOT_ASKED  # the tiles that one product reads arrive at one barrier
    subtiling: Decision[bool] = NOT_ASKED  # stores are made in halves; why not, or why not where it was asked for
    programmatic_launch: Decision[bool] = NOT_ASKED  # blocks start while the kernel before them ends, and wait for it
    version: int = VERSION

    @property
    def consumer(self) -> Task:
        """The task that multiplies: of a chain the one with the last dots. Its first replica has the kernel's warps."""
        return next(task for task in self.tasks if task.kind == "consumer")

    @property
    def producer(self) -> Task:
        """The task that fills rings by copies alone."""
        return next(task for task in self.tasks if task.kind == "producer")

    @property
    def helpers(self) -> tuple[Task, ...]:
        """The other tasks of a chain: each computes, or hands on, what the rest does not."""
        return tuple(task for task in self.tasks if task.kind == "helper")

    @property
    def computing(self) -> tuple[Task, ...]:
        """All but the task that loads, each behind those whose values it reads; the last one makes the stores.

        Raises PlanError where values go round in a circle.
        """
        left = [task for task in self.tasks if task != self.producer]
        found: list[Task] = []
        while left:
            waiting = {reader.name for channel in self.values for reader in self.readers(channel)
                       if channel.source in [task.name for task in left]}  # fmt: skip
            ready = [task for task in left if task.name not in waiting]
            if not ready:
                names = " and ".join(task.name for task in left)
                raise PlanError(f"the values of {names} go round in a circle")
            found.append(ready[0])
            left.remove(ready[0])
        return tuple(found)

    @property
    def values(self) -> tuple[Channel, ...]:
        """The channels that carry what a task computes."""
        return tuple(channel for channel in self.channels if channel.is_computed)

    @property
    def persistent(self) -> bool:
        """Do blocks walk through tiles?"""
        return self.tile_loop is not None

    @property
    def coarsening(self) -> int:
        """Neighbouring tiles that a block works on at a time, each consumer on one, sharing what they stream."""
        return self.tile_loop.coarsening if self.tile_loop is not None else 1

    @property
    def stream_k(self) -> Decision[StreamK]:
        """May the launch give parts of a tile to two blocks, the second taking up the first one's sums?"""
        return self.tile_loop.stream_k if self.tile_loop is not None else _NO_TILES

    @property
    def raster(self) -> Decision[Raster]:
        """Are blocks beside each other to share the larger operand?"""
        return self.tile_loop.raster if self.tile_loop is not None else _NO_TILES

    def regions(self) -> tuple[tuple[Task, int], ...]:
        """(task, replica) of each region of the specialized kernel: what multiplies, what else computes, what loads."""
        ordered = (self.consumer, *self.helpers, self.producer)
        return tuple((task, replica) for task in ordered for replica in range(task.replicas))

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)

    def readers(self, channel: Channel) -> tuple[Task, ...]:
        """The tasks that read a channel."""
        return tuple(map(self.task, channel.readers)) or (self.consumer,)

    def copies(self, channel: Channel) -> int:
        """How many rings a channel has: one for each replica where they share its tile."""
        ends = [task.replicas for task in self.readers(channel)]
        if channel.is_computed:
            ends.append(self.task(channel.source).replicas)
        return max(ends) if channel.apart else 1

    def filling(self, channel: Channel) -> Task:
        """The task that fills a channel."""
        return self.task(channel.source) if channel.is_computed else self.producer

    def fill_arrivals(self, channel: Channel) -> int:
        """How many arrivals say that a buffer is full."""
        return channel.fill.arrivals(self.filling(channel).warps)

    def arrivals(self, channel: Channel) -> int:
        """How many warp groups hand a buffer of each ring back."""
        return sum(1 if channel.apart else task.replicas for task in self.readers(channel))

    def does_effects(self, task: Task) -> bool:
        """Does the task make the kernel's stores? The one that computes and sends nothing does."""
        return task.kind != "producer" and all(channel.source != task.name for channel in self.values)

    @property
    def total_warps(self) -> int:
        """Warps the kernel launches, in whole warp groups."""
        warps = sum(task.warps * task.replicas for task in self.tasks)
        return -(-warps // 4) * 4

    def channel_named(self, ring: str) -> Channel:
        """The channel of a ring: of its own name, or of its name and the number of a replica."""
        base = ring.rsplit(".", 1)[0]
        return next(one for one in self.channels if one.name == ring or (one.apart and one.name == base))

    def barriers_of(self, ring: str) -> str:
        """The channel whose barriers a ring has together with others; "" where it has them alone."""
        channel = self.channel_named(ring)
        lends = any(other.barriers == channel.name for other in self.channels)
        return channel.barriers or (channel.name if lends else "")

    def channel_of(self, load: int) -> Channel | None:
        return next((channel for channel in self.channels if load in channel.loads), None)

    def to_text(self) -> str:
        """The plan as TOML; edit it and load it with `Plan.from_text`."""
        return _to_toml(_as_data(self))

    @staticmethod
    def from_text(text: str) -> Plan:
        """Read `to_text`'s form. Raises PlanError with the line or field at fault."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"plan is not valid TOML: {error}") from None
        return _from_dict(data)


_NO_TILES: Decision[Any] = Decision(None, "blocks do not walk through tiles")


class PlanError(ValueError):
    """A plan text that cannot be used; the message names the field."""


_UNUSUAL = {
    "source": "", "readers": (), "result": 0, "private": False, "barriers": "", "chain_cycles": 0.0, "chain_note": "",
    "packed": (),
}  # fmt: skip


def _without_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """What few plans have is left out of the others."""
    for channel in data["channels"]:
        if channel["fill"] == _implied_fill(channel):
            del channel["fill"]
    for table in (data, *data["channels"], *data["loops"], data["prediction"]):
        for name in [name for name in table if name in _UNUSUAL and table[name] == _UNUSUAL[name]]:
            del table[name]
    return data


def _as_data(plan: Plan) -> dict[str, Any]:
    """As tables, numbers and texts."""
    data = _without_defaults(asdict(replace(plan, tile_loop=None)))
    del data["tile_loop"]
    decisions = [name for name, one in data.items() if isinstance(one, dict) and set(one) == {"value", "why_not"}]
    for name in decisions:
        data[name] = {key: part for key, part in data[name].items() if part}
        if not data[name]:
            del data[name]
    if plan.tile_loop is not None:
        data["tile_loop"] = plan.tile_loop.to_data()
    return data


def _implied_fill(channel: dict[str, Any]) -> Fill:
    """How a channel is filled whose row in the text does not say it."""
    return Fill.COMPUTED if channel.get("source") else Fill.TMA


def _scalar(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_scalar(part)}" for key, part in value.items()) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _to_toml(data: dict[str, Any]) -> str:
    lines: list[str] = []
    tables: list[str] = []
    for key, value in data.items():
        if isinstance(value, dict):
            inner = [name for name, part in value.items() if isinstance(part, dict)]
            tables += ["", f"[{key}]", *(f"{k} = {_scalar(v)}" for k, v in value.items() if k not in inner)]
            for name in inner:
                tables += ["", f"[{key}.{name}]", *(f"{k} = {_scalar(v)}" for k, v in value[name].items())]
        elif isinstance(value, tuple | list) and value and isinstance(value[0], dict):
            for item in value:
                tables += ["", f"[[{key}]]", *(f"{k} = {_scalar(v)}" for k, v in item.items())]
        else:
            lines.append(f"{key} = {_scalar(value)}")
    return "\n".join(lines + tables) + "\n"


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _record(kind: type[Any], where: str, data: Any) -> Any:
    if not isinstance(data, dict):
        raise PlanError(f"plan: {where} must be a table")
    known = {field.name for field in fields(kind)}
    if unknown := sorted(set(data) - known):
        raise PlanError(f"plan: {where} has unknown field {unknown[0]!r}; it may have {', '.join(sorted(known))}")
    values = {key: _tuples(value) for key, value in data.items()}
    hints = get_type_hints(kind)
    for key in [key for key in values if isinstance(hints[key], type) and issubclass(hints[key], StrEnum)]:
        if values[key] not in list(hints[key]):
            raise PlanError(f"plan: {where}.{key}: {values[key]!r} is none of {', '.join(hints[key])}")
        values[key] = hints[key](values[key])
    for key, value in values.items():
        if not _is_a(value, hints[key]):
            raise PlanError(f"plan: {where}.{key}: {value!r} is not {_in_words(hints[key])}")
    try:
        return kind(**values)
    except TypeError as error:
        raise PlanError(f"plan: {where}: {str(error).split('__init__() ')[-1]}") from None


def _decision(name: str, data: Any) -> Decision[bool]:
    """`{ value = true }`, or `{ why_not = "a reason" }`."""
    found = _record(_Answer, name, data)
    return Decision(found.value or None, found.why_not)


@dataclass(frozen=True, slots=True)
class _Answer:
    value: bool = False
    why_not: str = ""


def _tile_loop(data: Any) -> TileLoop:
    try:
        return TileLoop.from_data(data)
    except ValueError as error:
        raise PlanError(f"plan: tile_loop: {error}") from None


def _is_a(value: Any, hint: Any) -> bool:
    """Is the value of the annotated type? Whole numbers pass for fractions, true and false not for numbers."""
    if get_origin(hint) is UnionType:
        return any(_is_a(value, one) for one in get_args(hint))
    hint = get_origin(hint) if isinstance(get_origin(hint), type) and get_origin(hint) is not tuple else hint
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if len(parts) == 2 and parts[1] is Ellipsis:
            return all(_is_a(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_is_a, value, parts))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def _in_words(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if get_origin(hint) is tuple:
        return "a list of " + " and ".join(_in_words(part) for part in get_args(hint) if part is not Ellipsis)
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def _from_dict(data: dict[str, Any]) -> Plan:
    if (version := data.get("version", VERSION)) != VERSION:
        raise PlanError(f"plan: version: this wspec reads version {VERSION}, found {version}")
    lists = {"tasks": Task, "channels": Channel, "loops": LoopSchedule}
    values: dict[str, Any] = dict(data)
    for name, kind in lists.items():
        rows = data.get(name, [])
        if not isinstance(rows, list):
            raise PlanError(f"plan: {name} must be a list of tables")
        if kind is Channel:
            rows = [{"fill": _implied_fill(row), **row} if isinstance(row, dict) else row for row in rows]
        values[name] = [_record(kind, f"{name}[{i}]", row) for i, row in enumerate(rows)]
    values["prediction"] = _record(Prediction, "prediction", data.get("prediction", {}))
    decisions = ("epilogue_overlap", "ping_pong", "shared_barriers", "subtiling", "programmatic_launch")
    values |= {name: _decision(name, data[name]) for name in decisions if name in data}
    if "tile_loop" in data:
        values["tile_loop"] = _tile_loop(data["tile_loop"])
    plan: Plan = _record(Plan, "the top level", values)
    kinds = sorted(task.kind for task in plan.tasks)
    if [kind for kind in kinds if kind != "helper"] != ["consumer", "producer"]:
        raise PlanError(f"plan: expected one producer and one consumer task, found {', '.join(kinds) or 'none'}")
    if "helper" in kinds and len({task.name for task in plan.tasks}) != len(plan.tasks):
        raise PlanError("plan: tasks: names must differ")
    for channel in plan.channels:
        if channel.depth < 1:
            raise PlanError(f"plan: channels.{channel.name}: depth must be at least 1, found {channel.depth}")
        if unknown := {*channel.readers, channel.source} - {task.name for task in plan.tasks} - {""}:
            raise PlanError(f"plan: channels.{channel.name}: there is no task {sorted(unknown)[0]!r}")
        if channel.is_computed != bool(channel.source):
            why = "no source computes it" if channel.is_computed else f"{channel.source!r} computes it"
            raise PlanError(f"plan: channels.{channel.name}: fill is {str(channel.fill)!r}, but {why}")
    return plan


def is_shallow(channels: Iterable[Channel]) -> bool:
    """Has the producer nowhere to run ahead: a ring of one buffer for a tile of every iteration?"""
    return any(channel.streams and channel.depth < 2 for channel in channels)


# ------------------------------------------------------------------------------------------ numbering


def source_warps(function: Operation) -> int:
    """num_warps the kernel was compiled with."""
    module = function.parent_op
    value = module.int_attr("ttg.num-warps") if module is not None else None
    return value if value is not None else WARP_GROUP
