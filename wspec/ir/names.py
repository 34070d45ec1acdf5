"""Names for the values and blocks of printed text."""

from __future__ import annotations

import re

from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import Location, value_name

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_$.]")


class Names:
    """`%0`, `%arg0`, `%1#2`, `^bb0` for everything inside an operation, in the order of the text.

    Numbers run through a whole function, its nested regions and isolated partitions included, so that a name means one
    value in a message; every top-level operation of a module starts again. With `source` values are called as in the
    person's program where their location says so.
    """

    def __init__(self, source: bool = False) -> None:
        self.values: dict[Value, str] = {}
        self.blocks: dict[Block, str] = {}
        self._source = source
        self._taken: set[str] = set()
        self._undefined = 0
        self._restart()

    def _restart(self) -> None:
        self._next_value = self._next_arg = self._next_block = 0
        self._taken.clear()

    # ---- handing out names

    def add_module(self, module: Operation) -> None:
        """Name everything in `module`."""
        if any(op.results for block in module.blocks for op in block.ops):
            self.add(module)  # not only functions: what is at the top is visible inside
            return
        for region in module.regions:
            self._add_blocks(region)
            for block in region.blocks:
                for op in block.ops:
                    self._restart()
                    self.add(op)

    def add(self, op: Operation) -> None:
        """Name the results of `op` and everything in its regions."""
        results = op.results
        if results:
            base = self._fresh(op.location)
            if len(results) == 1:
                self.values[results[0]] = base
            else:
                self.values.update((value, f"{base}#{index}") for index, value in enumerate(results))
        for region in op.regions:
            self._add_region(region)

    def _add_region(self, region: Region) -> None:
        self._add_blocks(region)
        for block in region.blocks:
            for op in block.ops:
                self.add(op)

    def _add_blocks(self, region: Region) -> None:
        for block in region.blocks:
            self.blocks[block] = f"^bb{self._next_block}"
            self._next_block += 1
            for arg in block.args:
                self.values[arg] = self._fresh(arg.location, argument=True)

    def _fresh(self, location: Location, argument: bool = False) -> str:
        if self._source and (known := value_name(location)) is not None:
            return "%" + self._unique(_NOT_IN_NAMES.sub("_", known))
        if argument:
            self._next_arg += 1
            return f"%arg{self._next_arg - 1}"
        self._next_value += 1
        return f"%{self._next_value - 1}"

    def _unique(self, name: str) -> str:
        """`name`, or with a number after it when another value, or the numbering, has it already."""
        name = f"_{name}" if not name or name[0].isdigit() or re.fullmatch(r"arg\d+", name) else name
        candidate, number = name, 0
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        return candidate

    # ---- asking

    def value(self, value: Value) -> str:
        """The name of a value. One that nothing printed defines (broken IR) is called so, not an exception."""
        name = self.values.get(value)
        if name is None:
            name = self.values[value] = f"%undefined{self._undefined}"
            self._undefined += 1
        return name

    def block(self, block: Block) -> str:
        """The name of a block."""
        return self.blocks.get(block) or self.blocks.setdefault(block, f"^undefined{len(self.blocks)}")
