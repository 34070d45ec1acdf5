"""wspec's IR: a small typed form of TTGIR, read from and written to MLIR's generic text."""

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, replace_uses, uses
from wspec.ir.cursor import ReadError
from wspec.ir.ops import OpInfo, info, is_pure
from wspec.ir.printer import print_module
from wspec.ir.reader import read

__all__ = [
    "Block",
    "Builder",
    "OpInfo",
    "Operation",
    "ReadError",
    "Region",
    "Value",
    "info",
    "is_pure",
    "print_module",
    "read",
    "replace_uses",
    "uses",
]
