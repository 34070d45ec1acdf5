"""Dominators of the blocks of a region."""

from __future__ import annotations

from wspec.ir.core import Block, Region


def successors(block: Block) -> list[Block]:
    """Where control goes after the block (what is not of its region, in broken IR, left out)."""
    following = block.ops[-1].successors if block.ops else []
    return [child for child in following if child.parent is block.parent]


def reverse_postorder(region: Region) -> list[Block]:
    """The blocks control can reach from the first one, every block before those it leads to, loops aside."""
    order: list[Block] = []
    seen: set[Block] = set()
    stack: list[tuple[Block, int]] = [(region.blocks[0], 0)] if region.blocks else []
    seen.update(block for block, _ in stack)
    while stack:
        block, next_child = stack.pop()
        following = successors(block)
        if next_child == len(following):
            order.append(block)
            continue
        stack.append((block, next_child + 1))
        child = following[next_child]
        if child not in seen:
            seen.add(child)
            stack.append((child, 0))
    return order[::-1]


def dominator_tree(region: Region) -> tuple[dict[Block, list[Block]], list[Block]]:
    """The blocks each block immediately dominates, and the blocks control never reaches.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
    """
    order = reverse_postorder(region)
    number = {block: index for index, block in enumerate(order)}
    before: dict[Block, list[Block]] = {block: [] for block in order}
    for block in order:
        for child in successors(block):
            before[child].append(block)
    parent = _immediate_dominators(order, number, before)
    children: dict[Block, list[Block]] = {block: [] for block in order}
    for index, block in enumerate(order[1:], start=1):
        children[order[parent[index]]].append(block)
    return children, [block for block in region.blocks if block not in number]


def _immediate_dominators(order: list[Block], number: dict[Block, int], before: dict[Block, list[Block]]) -> list[int]:
    """For each block by its place in `order`, the place of its immediate dominator."""
    parent = [0] + [-1] * (len(order) - 1) if order else []
    changed = True
    while changed:
        changed = False
        for index, block in enumerate(order[1:], start=1):
            candidates = [number[other] for other in before[block] if parent[number[other]] >= 0]
            common = candidates[0]
            for other in candidates[1:]:
                common = _meet(parent, common, other)
            if parent[index] != common:
                parent[index], changed = common, True
    return parent


def _meet(parent: list[int], a: int, b: int) -> int:
    """The nearest common ancestor; a dominator's place is before those of the blocks it dominates."""
    while a != b:
        if a > b:
            a = parent[a]
        else:
            b = parent[b]
    return a
