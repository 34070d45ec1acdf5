"""What is shown of the PTX of a specialized kernel: LLVM's follows the TTGIR, and ours is as good as LLVM's."""

from __future__ import annotations

from wspec import ir
from wspec.bridge.ptx.skeleton import show_order
from wspec.ptx.errors import PtxError
from wspec.ptx.parser import read
from wspec.ptx.validation.validate import Validation, validate_modules


def shown(final: str, emitted: str, edited: str, constant: int | None) -> Validation:
    """Never raises.

    `final`: the TTGIR that was compiled, in generic form; `emitted`: the PTX of it, as LLVM writes it; `constant`: the
    number of the argument that points to what no kernel writes.
    """
    try:
        before = read(emitted)
        function = next(op for op in ir.read(final).walk() if op.name == "tt.func")
        show_order(function, before.entry())
    except (PtxError, ir.ReadError) as error:
        return Validation("PTX: not shown to follow the TTGIR", str(error))
    order = "PTX: synchronizes in the order of the TTGIR"
    if emitted == edited:
        return Validation(order)
    try:
        said = validate_modules(before, read(edited), constant)
    except PtxError as error:
        return Validation("PTX: the edits are not proved", str(error))
    return said if said.refusal else Validation(f"{order}; {said.summary.removeprefix('PTX: ')}")
