"""What random mutants are made of: the kernels of `goldens.py`, every shipped variant, small programs of a grammar.

Each has launches that are small enough to execute: those of `goldens.py`, the examples that the specs of the shipped
kernels name, and for programs some numbers and tensors of ones.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from tests.check.script import kernel
from tests.mutants.goldens import Golden, Launch, goldens
from tests.mutants.running import Runner
from tests.ptx.shipped_ptx import variants
from tests.support.goldens import ROOT
from wspec import bridge
from wspec.cli.inputs import is_ir, open_kernel, signature_of
from wspec.cli.parser import make_parser
from wspec.cli.run_inputs import example_maker
from wspec.execute import ExecutionError, Kernel
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.types import PointerType, TensorDescType
from wspec.lab.persistent_launch import descriptors_of, executed_launch
from wspec.specs.kernel_file import load_kernel

PROGRAM = "programs"
SHIPPED = "shipped"
SIZES: Mapping[str, Mapping[str, Any]] = {"attention.py:attention_fwd": {"heads": 1}}
NUMBERS = (0, 1, 2, 5)  # what programs are given for every integer


@dataclass(eq=False)
class Subject:
    """A module that is right, or nearly, and what it does."""

    golden: Golden

    @property
    def name(self) -> str:
        return self.golden.name

    def module(self) -> Operation:
        """A fresh one."""
        return self.golden.module()

    @cached_property
    def runner(self) -> Runner:
        """Knows what the unchanged module gives; raises ExecutionError when that goes wrong."""
        return Runner(self.golden)


def subjects() -> list[str]:
    """Their names; programs as often as all kernels together."""
    kernels = [*goldens(), *(f"{SHIPPED} {file} {variant}" for file, variant in variants())]
    return [*kernels, *[PROGRAM] * len(kernels)]


def subject(name: str, text: str = "") -> Subject | None:
    """The one of that name; a program has a text. None of a kernel that is left alone, and of a program that nobody
    can run."""
    if name == PROGRAM:
        return _program(text)
    return _kernel(name)


@functools.cache
def _kernel(name: str) -> Subject | None:
    if name in goldens():
        return Subject(goldens()[name])
    _, file, variant = name.split(" ", 2)
    return _shipped(name, file, variant)


def _shipped(name: str, file: str, variant: str) -> Subject | None:
    args = make_parser().parse_args(["run", f"{ROOT}/kernels/{file}", "--variant", variant])
    assert not is_ir(args.input)
    front, source = open_kernel(args).front, open_kernel(args).offline.source
    if "specialized" not in front.stages:
        return None
    text = bridge.final_ttgir(front.stages["specialized"], source)

    def launches() -> list[Launch]:
        own = load_kernel(args.input)
        trial = example_maker(signature_of(args, own), own, SIZES.get(file, {}))(0)
        parameters = Kernel(read(text)).parameters
        made = descriptors_of(front.promotion, parameters, trial.grid, trial.arguments)
        grid, hidden = executed_launch(front.plan, parameters, trial.grid, trial.arguments)
        given = {**trial.arguments, **made, **{key: torch.from_numpy(value) for key, value in hidden.items()}}
        outputs = tuple(one.tensor for one in trial.outputs.values())
        return [Launch("the example", grid, tuple(given[one.name] for one in parameters), outputs)]

    return Subject(Golden(name, lambda: text, launches))


def _program(text: str) -> Subject | None:
    """A script; what it is given is the same for every run of it."""
    module = print_module(kernel(text))
    try:
        Kernel(read(module))
    except ExecutionError:
        return None

    def launches() -> list[Launch]:
        return [_launch(module, number) for number in NUMBERS]

    return Subject(Golden(PROGRAM, lambda: module, launches))


def _launch(text: str, number: int) -> Launch:
    arguments: list[Any] = []
    for parameter in Kernel(read(text)).parameters:
        if isinstance(parameter.type, TensorDescType):
            arguments.append(torch.ones(tuple(parameter.type.block.shape), dtype=torch.float16))
        elif isinstance(parameter.type, PointerType) and str(parameter.type.pointee) == "i32":
            arguments.append(torch.full((1,), number, dtype=torch.int32))
        elif isinstance(parameter.type, PointerType):
            arguments.append(torch.ones(1, dtype=torch.float16))
        else:
            arguments.append(number)
    outputs = tuple(one for one in arguments if isinstance(one, torch.Tensor))
    return Launch(f"n = {number}", (1,), tuple(arguments), outputs)
