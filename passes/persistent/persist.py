"""persist: let as many blocks as fit on the GPU walk through the tiles, instead of one block for each.

    body(program_id x, y, z)    =>    %n, %x, %y, %z = first entry of this block in %wspec_tiles
                                      for %i = 0 to %n iter_args(%entry, %x, %y, %z):
                                        loops of body(%x, %y, %z)
                                        %next = %entry + 8; %nx, %ny, %nz = load %next
                                        rest of body
                                        yield %next, %nx, %ny, %nz

The user's grid stays what it was: the launcher turns it into a table of tiles (wspec/tile_scheduler/table.py), which
says what
each block does and in which order. The next entry is loaded behind the last loop, where registers are free and what
follows hides the latency. Inside the loop the rest of the compiler sees an ordinary kernel with an outer loop: rings
and their phases go on over tiles, the producer fetches the next tile's operands while the consumers finish this one.

The table is `[entries, gx, gy, gz]`, how many entries each block has and the grid, four zeros, and the entries of one
block after the other: eight int32 `(x, y, z, n, first, end, from, to)`, with `n` the number of the block's tiles in its
first entry. So the way from one entry to the next is a constant and takes no register. The last four say which
iterations of a tile's loop the block does; only kernels that divide tiles read them (divide_tiles). Runs before the
plan is made.
"""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, functions, replace_uses
from wspec.ir.types import I32, i32
from wspec.plan.graph import BARRIERS
from wspec.plan.tile_table import POINTER, add_pointer, load_number
from wspec.tile_scheduler.names import TABLE

ENTRY = 8  # int32 of one entry, and of the header
PLACE = (0, 1, 2)  # x, y, z in an entry
PART = (4, 5, 6, 7)  # first iteration, end, the slot that sums are taken from and the one they go to


def obstacle(function: Operation) -> tuple[str, Operation] | None:
    """What keeps a kernel from walking through tiles: (why, where), or None."""
    for op in function.walk():
        if op.name == "tt.make_tensor_descriptor":
            return "it makes tensor descriptors on the device, in memory that belongs to a block", op
        if op.name.startswith("tt.atomic"):
            return "it uses atomic operations, which may be how its blocks wait for each other", op
        if op.name in BARRIERS:
            return "its threads wait for each other between stores and loads of the same memory", op
    if not any(op.name == "tt.get_program_id" for op in function.walk()):
        return "it does not ask which program it is", function
    return None


def persist(module: Operation, *, parts: bool = False) -> Operation:
    """Wrap the kernel's body into the loop over tiles, in place; `parts`: it carries the entries' PART as well."""
    fields = (*PLACE, *PART) if parts else PLACE
    function = functions(module)[0]
    table = add_pointer(function, TABLE)
    body = function.regions[0].block
    inside = [op for op in body.ops[:-1] if op.name != "arith.constant"]
    region = Region()
    loop_block = region.add_block()
    counter = loop_block.add_arg(I32, function.location)
    assert counter.index == 0
    entry = loop_block.add_arg(POINTER, function.location)
    ids = [loop_block.add_arg(I32, function.location) for _ in fields]
    body.ops[:-1] = [op for op in body.ops[:-1] if op.name == "arith.constant"]
    before = Builder(body, len(body.ops) - 1, function.location)
    first, count = _first_entry(before, table)
    within = Builder(loop_block, None, function.location)
    loops = [at for at, op in enumerate(inside) if op.regions]
    behind = loops[-1] + 1 if loops else 0
    for op in inside[:behind]:
        loop_block.append(op)
    following = within.offset(entry, within.constant(ENTRY))
    next_ids = [load_number(within, following, at) for at in fields]
    for op in inside[behind:]:
        loop_block.append(op)
    loop_block.append(Operation.create("scf.yield", [following, *next_ids], location=function.location))
    start = [load_number(before, first, at) for at in fields]
    before.create(
        "scf.for",
        [before.constant(0), count, before.constant(1), first, *start],
        [POINTER, *(I32 for _ in fields)],
        regions=[region],
    )
    _answer(loop_block, inside, ids[:3], table)
    return module


def _first_entry(build: Builder, table: Value) -> tuple[Value, Value]:
    """(pointer to the block's first entry, number of its tiles)."""
    block = build.create("tt.get_program_id", [], [I32], {"axis": i32(0)}).result
    before = build.binary("arith.muli", block, load_number(build, table, 0))
    size = build.constant(ENTRY)
    mine = build.binary("arith.addi", build.binary("arith.muli", before, size), size)
    first = build.offset(table, mine)
    return first, load_number(build, first, 3)


def _answer(block: Block, inside: list[Operation], ids: list[Value], table: Value) -> None:
    """Program ids are those of the tile, the grid is the user's."""
    for op in (inner for top in inside for inner in top.walk()):
        if op.name not in ("tt.get_program_id", "tt.get_num_programs") or op.parent is None:
            continue
        axis = op.int_attr("axis") or 0
        if op.name == "tt.get_program_id":
            value = ids[axis]
            value.location = op.location
        else:
            value = load_number(Builder.before(op), table, 1 + axis)
        replace_uses(block, {op.result: value})
        op.erase()
