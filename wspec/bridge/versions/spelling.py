"""Generic text as wspec writes it, in the words of a version of Triton.

wspec's IR has one form for all versions, that of 3.6: the reader (`wspec/ir`) takes what newer ones print into it, and
here it becomes theirs again, line by line, so that a line of a diagnostic is the same line. Text that libtriton printed
itself stays as it is, in generic form or in Triton's own.
"""

from __future__ import annotations

import re

_DESCRIPTOR = "!tt.tensordesc<tensor<"
# In Triton's own syntax.
_MADE = re.compile(r"(tt\.make_tensor_descriptor [^\n]*: <[^\n]*>, )<tensor<([^\n]*?)>>(?=\s)")
_OUTER = re.compile(r'^(?P<indent> *)(?P<head>.*"ttg\.warp_specialize")\((?P<captures>%[^()]*)\)(?P<rest>.*)$')
_INNER = re.compile(r'^(?P<indent> *)"ttg\.warp_specialize\.partitions"\(\)(?P<rest>.*)$')
_LOAD = re.compile(r'("ttng\.async_tma_copy_global_to_local"\()([^()]*)\) <\{(?!.*operandSegmentSizes)')
_END = re.compile(r"^ *\}\)(?P<attributes>.*?) : \((?P<types>.*)\) -> (?P<rest>.*)$")


def descriptors_of_shapes(text: str) -> str:
    """`!tt.tensordesc<tensor<64x64xbf16, #shared>>` as `!tt.tensordesc<64x64xbf16, #shared>` (from 3.8)."""
    text = _MADE.sub(r"\1<\2>", text)
    head, *pieces = text.split(_DESCRIPTOR)
    return head + "".join(f"!tt.tensordesc<{_without_bracket(piece)}" for piece in pieces)


def _without_bracket(text: str) -> str:
    """The text without the bracket that closes one opened before it."""
    depth = 1
    for match in re.finditer(r"->|[<>]", text):
        depth += {"<": 1, ">": -1}.get(match.group(), 0)
        if depth == 0:
            return text[: match.start()] + text[match.end() :]
    return text


def segments_of_loads(text: str) -> str:
    """How many of a TMA load's operands are what (from 3.7): descriptor, coordinates, no offsets, and three others."""

    def said(load: re.Match[str]) -> str:
        coordinates = load[2].count(",") - 3
        return f"{load[1]}{load[2]}) <{{operandSegmentSizes = array<i32: 1, {coordinates}, 0, 1, 1, 1>, "

    return _LOAD.sub(said, text)


def captures_of_partitions(text: str) -> str:
    """What partitions capture as operands of `ttg.warp_specialize.partitions`, inside the other one (from 3.7)."""
    if '"ttg.warp_specialize"(%' not in text:
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        outer = _OUTER.match(line)
        if outer is None:
            continue
        last = _end_of(lines, number, outer["indent"])
        inner = next((at for at in range(number, last) if _INNER.match(lines[at])), last)
        found, end = _INNER.match(lines[inner]), _END.match(lines[last])
        if found is None or end is None:
            continue
        inner_last = _end_of(lines, inner, found["indent"])
        lines[number] = f"{outer['indent']}{outer['head']}(){outer['rest']}"
        lines[last] = f"{outer['indent']}}}){end['attributes']} : () -> {end['rest']}"
        partitions = f'"ttg.warp_specialize.partitions"({outer["captures"]})'
        lines[inner] = f"{found['indent']}{partitions}{found['rest']}"
        lines[inner_last] = lines[inner_last].replace(" : () -> ()", f" : ({end['types']}) -> ()", 1)
    return "\n".join(lines)


def _end_of(lines: list[str], start: int, indent: str) -> int:
    """The line that ends an operation with regions."""
    return next((at for at in range(start + 1, len(lines)) if lines[at].startswith(indent + "})")), start)
