"""A kernel that returns early has its rest under an if: what follows sees blocks inside blocks, and no jumps.

    cond_br %idle, ^a, ^b                    if %idle { first } else { rest }
    ^a: first; return                   =>   return
    ^b: rest; return

Runs before a plan is made. Jumps that come together again are left as they are.
"""

from __future__ import annotations

from wspec.ir.core import Block, Operation, Region


def nest_returns(module: Operation) -> None:
    """Do so in the module's kernel, in place, where all ways through its blocks part and none meet."""
    functions = [op for op in module.walk() if op.name == "tt.func"]
    if len(functions) != 1 or len(functions[0].regions[0].blocks) == 1:
        return
    blocks = functions[0].regions[0].blocks
    targets = [target for block in blocks for target in block.terminator.successors]
    meets = len(targets) != len(set(targets)) or any(target.args for target in targets)
    known = all(block.terminator.name in ("cf.cond_br", "cf.br", "tt.return") for block in blocks)
    if meets or not known or blocks[0] in targets or {*targets, blocks[0]} != set(blocks):
        return
    _nest(blocks[0])
    del blocks[1:]


def _nest(block: Block) -> None:
    """Let a block end by returning, with all that it jumped to inside it."""
    end = block.terminator
    if end.name == "tt.return":
        return
    ways = list(end.successors)
    for way in ways:
        _nest(way)
    del block.ops[-1]
    last = Operation.create("tt.return", location=ways[0].terminator.location)
    if len(ways) == 1:
        for op in ways[0].ops:
            block.append(op)
        return
    regions = [Region(), Region()]
    for region, way in zip(regions, ways, strict=True):
        inside = region.add_block()
        for op in way.ops[:-1]:
            inside.append(op)
        inside.append(Operation.create("scf.yield", location=way.terminator.location))
    block.append(Operation.create("scf.if", end.operands[:1], regions=regions, location=end.location))
    block.append(last)
