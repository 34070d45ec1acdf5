"""What is shown of the PTX of a specialized kernel: LLVM's follows the TTGIR, and ours is as good as LLVM's."""

from __future__ import annotations

from collections.abc import Callable

from wspec import ir
from wspec.bridge.collector import collector_paused
from wspec.bridge.ptx.side_by_side import show_order
from wspec.bridge.shared_memory import placement
from wspec.bridge.text import BridgeError, words_go_with_others
from wspec.ptx.errors import PtxError
from wspec.ptx.parser import read
from wspec.ptx.syntax import Module
from wspec.ptx.validation.validate import Validation, validate_modules


@collector_paused()
def shown(
    final: str, emitted: str, edited: str, constant: int | None, read: Callable[[str], Module] = read
) -> Validation:
    """Never raises.

    `final`: the TTGIR that was compiled, in generic form; `emitted`: the PTX of it, as LLVM writes it; `constant`: the
    number of the argument that points to what no kernel writes; `read` may remember what it has read.
    """
    try:
        before = read(emitted)
        unknown = show_module(ir.read(final), before)
    except (PtxError, ir.ReadError, BridgeError) as error:
        return Validation("PTX: not shown to follow the TTGIR", str(error))
    order = "PTX: synchronizes as the TTGIR does" + ("; where copies begin is not compared" if unknown else "")
    if emitted == edited:
        return Validation(order)
    try:
        said = validate_modules(before, read(edited), constant)
    except PtxError as error:
        return Validation("PTX: the edits are not proved", str(error))
    return said if said.refusal else Validation(f"{order}; {said.summary.removeprefix('PTX: ')}")


def show_module(final: ir.Operation, emitted: Module) -> str:
    """As `show_order`. Raises BridgeError where libtriton refuses the TTGIR."""
    function = next(op for op in final.walk() if op.name == "tt.func")
    with words_go_with_others():
        placed = placement(final)
    return show_order(function, emitted.entry(), placed)
