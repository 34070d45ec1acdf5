"""The kernels that come with wspec, at the variants of their specs, before they are specialized."""

from __future__ import annotations

import functools

from tests.support.goldens import ROOT
from wspec import bridge
from wspec.api import Offline
from wspec.bridge import KernelSource
from wspec.cli.inputs import open_kernel
from wspec.cli.parser import make_parser
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.numbering import number
from wspec.options import Options
from wspec.planner.decide import function_of


@functools.cache
def offline(kernel: str, variant: str, *flags: str) -> Offline:
    """The compiler and the source, as the command line has them."""
    args = make_parser().parse_args(["plan", f"{ROOT}/kernels/{kernel}", "--variant", variant, *flags])
    return open_kernel(args).offline


def shipped_source(kernel: str, variant: str) -> KernelSource:
    """`kernel` is FILE.py:KERNEL in the folder of kernels."""
    return offline(kernel, variant).source


def shipped_options(kernel: str, variant: str) -> Options:
    """Those of the compiler that the variant has."""
    return offline(kernel, variant).compiler.options


@functools.cache
def _text(kernel: str, variant: str) -> str:
    return bridge.lower(shipped_source(kernel, variant))[1]


def shipped(kernel: str, variant: str) -> Operation:
    """A fresh module."""
    return read(_text(kernel, variant))


def numbered_function(module: Operation) -> Operation:
    """The module's function, its operations numbered."""
    found = function_of(module)
    number(found)
    return found
