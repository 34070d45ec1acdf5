"""Drawn loops: how they count, what walks along with them, what stands in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.fuzz.motifs import Body, addend, dot, peek, react, soften
from tests.fuzz.program import Assign, Bin, Buffer, Cast, Expr, Extent, For, If, Lit, PtrLoad, Stmt, Type, Var
from tests.fuzz.sketch import Dim, Level, Sketch, State, Tile, integer
from tests.fuzz.values import condition, transformed

TRIPS = (1, 0, 2, 5, 3)
I32 = Type("i32")


@dataclass(slots=True)
class Walk:
    """A loop's header, and the dimension that walks along with it."""

    variable: Var
    low: Expr
    high: Expr
    step: Expr
    place: Dim
    before: list[Stmt] = field(default_factory=list)  # at the start of the body
    after: list[Stmt] = field(default_factory=list)  # at its end
    moving: Var | None = None  # a variable that starts at 0 before the loop


def loop(body: Body) -> None:
    """A loop with a body of its own, put at the end of the level."""
    sketch, level = body.sketch, body.level
    inner = Level(level)
    hints = _hints(sketch, inner.depth)
    walk = _walk(body, plain=not hints)
    if walk.moving is not None:
        level.statements.append(Assign(walk.moving.name, integer(0)))
        if not level.is_branch:
            level.states.append(State(walk.moving, (), "offset"))
    inner.statements += walk.before
    inner.places.append(walk.place)
    inner.conditions += _conditions(sketch, walk)
    within = replace(body, level=inner, place=walk.place)
    fill(within)
    inner.statements += walk.after
    statement = For(walk.variable.name, walk.low, walk.high, walk.step, tuple(inner.statements), hints)
    level.statements.append(statement)
    gather(level)


def _hints(sketch: Sketch, depth: int) -> tuple[tuple[str, int], ...]:
    """What else tl.range may be told. Unrolling is for Triton's front end, which then hands over several bodies."""
    kind = sketch.number(0, 11)
    if kind == 11:
        return (("num_stages", sketch.pick(1, 2, 4)),)
    if kind == 10:
        return (("loop_unroll_factor", 2),)
    return (("disallow_acc_multi_buffer", 1),) if kind == 9 and depth == 1 else ()


# --------------------------------------------------------------------------------------------------- headers


def _walk(body: Body, plain: bool) -> Walk:
    """With `plain` also loops that end before they start, which Triton gets wrong when it unrolls or fuses them."""
    sketch = body.sketch
    tile = sketch.pick(*_tile_sizes(body.habit.dtype))
    kinds: list[Callable[[Body, int], Walk]] = [_span, _span, _span, _count, _window, _strided, _diagonal, _constant]
    if plain and not sketch.fused:
        kinds += [_backwards, _cut_short]
    walk = sketch.pick(*kinds)(body, tile)
    bend = sketch.number(0, 11)
    if bend == 11:
        return _carried(sketch, walk, tile)
    if bend == 10 and walk.place.full is not None:
        return _paged(sketch, walk, tile)
    if bend == 9 and walk.place.full is not None:
        return _mirrored(sketch, walk, tile)
    return walk


def _tile_sizes(dtype: str) -> tuple[int, ...]:
    return (64, 32, 64, 128) if dtype in ("fp8e4nv", "fp8e5", "i8") else (64, 32, 64, 32, 16, 128)


def _place(sketch: Sketch, tile: int, offset: Expr, trips: str, cut: int = 0, loose: bool = False) -> Dim:
    """A dimension of trips * tile elements, less a cut; `loose` if tiles may stick out further."""
    full = Extent(((trips, tile),), 0, tile)
    extent = Extent(((trips, tile),), -cut, 16) if cut else full
    return Dim(sketch.name("walk"), tile, offset, extent, None if loose else full)


def _loop_variable(sketch: Sketch) -> Var:
    return Var(sketch.name("i"), I32)


def _span(body: Body, tile: int) -> Walk:
    """Over the elements, a tile at a time; the last one may stick out."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    trips, cut = sketch.knob("trips", *TRIPS), sketch.pick(0, 16)
    high = sketch.scalar("k", Extent(((trips, tile),), -cut, 0) if cut else Extent(((trips, tile),)))
    return Walk(i, integer(0), high, integer(tile), _place(sketch, tile, i, trips, cut=cut))


def _cut_short(body: Body, tile: int) -> Walk:
    """As `_span`; where there is no tile the end is below 0."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    trips = sketch.knob("trips", *TRIPS)
    high = sketch.scalar("k", Extent(((trips, tile),), -16))
    return Walk(i, integer(0), high, integer(tile), _place(sketch, tile, i, trips, cut=16))


def _count(body: Body, tile: int) -> Walk:
    """Over the number of tiles."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    trips = sketch.knob("trips", *TRIPS)
    high = sketch.scalar("count", Extent(((trips, 1),)))
    return Walk(i, integer(0), high, integer(1), _place(sketch, tile, Bin("*", i, integer(tile)), trips))


def _constant(body: Body, tile: int) -> Walk:
    """As often as the source says."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    count = sketch.pick(2, 3, 5, 1)
    trips = sketch.knob("trips", count)
    return Walk(i, integer(0), integer(count * tile), integer(tile), _place(sketch, tile, i, trips))


def _window(body: Body, tile: int) -> Walk:
    """From an argument, or from the program's row, on."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    trips, first = sketch.knob("trips", *TRIPS), sketch.knob("first", 0, 1, 2)
    low = sketch.scalar("low", Extent(((first, tile),)))
    high = sketch.scalar("high", Extent(((trips, tile), (first, tile))))
    full = Extent(((trips, tile), (first, tile)), 0, tile)
    return Walk(i, low, high, integer(tile), Dim(sketch.name("walk"), tile, i, full, full))


def _strided(body: Body, tile: int) -> Walk:
    """By a step that is an argument: tiles may overlap or leave gaps."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    trips, step = sketch.knob("trips", *TRIPS), sketch.knob("step", 2, 1, 3)
    high = sketch.scalar("k", Extent(((trips, tile),)))
    by = sketch.scalar("step", Extent(((step, max(16, tile // 2)),)))
    return Walk(i, integer(0), high, by, _place(sketch, tile, i, trips, loose=True))


def _diagonal(body: Body, tile: int) -> Walk:
    """Up to the program's rows: another number of iterations for each."""
    sketch, i, row = body.sketch, _loop_variable(body.sketch), body.frame.row
    trips = sketch.knob("trips", *TRIPS)
    end = sketch.scalar("k", Extent(((trips, tile),)))
    high = Bin("min", Bin("+", row.offset, integer(row.size)), end)
    return Walk(i, integer(0), high, integer(tile), _place(sketch, tile, i, trips))


def _backwards(body: Body, tile: int) -> Walk:
    """From the end to the start."""
    sketch, i = body.sketch, _loop_variable(body.sketch)
    trips = sketch.knob("trips", *TRIPS)
    low = sketch.scalar("last", Extent(((trips, tile),), -tile))
    return Walk(i, low, integer(-1), integer(-tile), _place(sketch, tile, i, trips))


# ------------------------------------------------------------------------------- places that move otherwise


def _carried(sketch: Sketch, walk: Walk, tile: int) -> Walk:
    """The place is a variable that the loop moves on, and perhaps sets back."""
    at = Var(sketch.name("at"), I32)
    walk.place = replace(walk.place, offset=at, full=None)
    walk.moving = at
    walk.after.append(Assign(at.name, Bin("+", at, integer(tile))))
    if sketch.chance(2):
        limit = sketch.scalar("limit", Extent(((sketch.knob("limit", 2, 1), tile),)))
        walk.after.append(If(Bin(">=", at, limit), (Assign(at.name, integer(0)),)))
    return walk


def _paged(sketch: Sketch, walk: Walk, tile: int) -> Walk:
    """A table in memory says which tile comes when."""
    full = walk.place.full
    assert full is not None
    pages = _pages(full, tile)
    table = sketch.buffer("table", Buffer("", "i32", (pages,), "pointer", below=pages), False)
    page = Var(sketch.name("page"), I32)
    index = walk.place.offset if tile == 1 else Bin("//", walk.place.offset, integer(tile))
    walk.before.append(Assign(page.name, PtrLoad(table.name, index, "i32")))
    walk.place = replace(walk.place, offset=Bin("*", page, integer(tile)))
    return walk


def _pages(full: Extent, tile: int) -> Extent:
    """How many tiles there are."""
    return Extent(tuple((name, factor // tile) for name, factor in full.terms), full.constant // tile, 1)


def _mirrored(sketch: Sketch, walk: Walk, tile: int) -> Walk:
    """The last tile first."""
    full = walk.place.full
    assert full is not None
    at = Var(sketch.name("at"), I32)
    last = sketch.scalar("end", full)
    walk.before.append(Assign(at.name, Bin("-", Bin("-", last, walk.place.offset), integer(tile))))
    walk.place = replace(walk.place, offset=at)
    return walk


def _conditions(sketch: Sketch, walk: Walk) -> list[Expr]:
    """Truths that change with the loop."""
    i, place = walk.variable, walk.place
    flag = sketch.scalar("flag", Extent(((sketch.knob("flag", 1, 0, 2), place.size),)))
    halves = Bin("//", i, integer(place.size))
    found: list[Expr] = [
        Bin("<", i, flag),
        Bin("==", Bin("%", halves, integer(2)), integer(0)),
        Bin("!=", i, flag),
    ]
    if place.full is not None and sketch.chance(3):
        found.append(_marked(sketch, place, place.full))
    return found


def _marked(sketch: Sketch, place: Dim, full: Extent) -> Expr:
    """A table in memory says for which tiles something is done."""
    like = Buffer("", "i32", (_pages(full, place.size),), "pointer", below=Extent(constant=2))
    marks = sketch.buffer("marks", like, False)
    return Bin(">", PtrLoad(marks.name, Bin("//", place.offset, integer(place.size)), "i32"), integer(0))


# ---------------------------------------------------------------------------------------------------- bodies


def fill(body: Body) -> None:
    """The body of a loop: dots, what is done with what they yield, branches, loops inside."""
    sketch = body.sketch
    for _ in range(sketch.pick(1, 1, 2, 2, 3)):
        _piece(body)
    if body.level.depth == 1 and sketch.chance(6):
        loop(body)
    if sketch.chance(4):
        _extra(body)
    _use_up(body)


def _piece(body: Body) -> None:
    """A dot and what follows from it, perhaps in a branch."""
    if body.sketch.chance(5):
        branch(body, _straight)
    else:
        _straight(body)


def _straight(body: Body) -> None:
    tile = dot(body)
    if tile is None:
        return
    tile = transformed(body.sketch, body.level, tile)
    body.level.tiles.append(tile)
    if tile.rows.key == "row" and body.sketch.chance(3):
        tile = soften(body, tile)


def branch(body: Body, piece: Callable[[Body], None]) -> None:
    """The piece under a condition; with an else or without."""
    sketch, level = body.sketch, body.level
    then, orelse = Level(level, True), Level(level, True)
    truth = condition(sketch, level)
    then_body = replace(body, level=then)
    piece(then_body)
    _use_up(then_body)
    if sketch.chance(2):
        otherwise = replace(body, level=orelse)
        (piece if sketch.chance(2) else _shrink_states)(otherwise)
        _use_up(otherwise)
    level.statements.append(If(truth, tuple(then.statements), tuple(orelse.statements)))


def _shrink_states(body: Body) -> None:
    """Halve something that is carried."""
    known = [s for s in body.level.all_states() if s.var.of.dtype == "fp32"]
    if known:
        state = body.sketch.pick(*known)
        body.sketch.update(body.level, state, Bin("*", state.var, Lit(0.5)))


def _extra(body: Body) -> None:
    """Something beside the dots."""
    kind = body.sketch.number(0, 3)
    if kind == 0:
        peek(body)
    elif kind == 1 and body.place is not None:
        addend(body, body.frame.row, body.place)
    elif kind == 2:
        branch(body, _shrink_states)
    else:
        addend(body, body.frame.row, body.frame.column)


def _use_up(body: Body) -> None:
    """Do something with the last tile of a level that nothing of the level has used."""
    if body.level.tiles:
        react(body, body.level.tiles[-1])


def gather(level: Level) -> None:
    """After a loop what it carried is there to be used."""
    for state in level.states:
        if len(state.dims) == 2:
            value: Expr = state.var if state.var.of.dtype == "fp32" else Cast(state.var, "fp32")
            tile = Tile(value, state.dims[0], state.dims[1])
            level.tiles += [] if tile in level.tiles else [tile]
