"""Chains of three tasks and more on the CPU: plain, specialized and float64 agree, in every order."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch

from tests.execute.test_machine_kernels import Subject, bits
from tests.planner.test_chain import MODULES, ODD, narrow, text_of
from tests.support.compiling import lowered
from tests.support.goldens import ROOT
from tests.support.verified import specialize
from wspec.execute import FirstReady, Kernel, Priorities, Random, Schedule
from wspec.execute import one_thread as executor_thread
from wspec.ir import print_module, read
from wspec.lab.persistent_launch import even_launch
from wspec.options import Options
from wspec.specs.variants import variant_signature

Which = tuple[str, str, str]
CHAINS: tuple[Which, ...] = (
    ("quantized", "int8_weights_kernel", "m64"),
    ("quantized", "int8_weights_kernel", "parts"),
    ("quantized", "int8_weights_kernel", "wide"),
    ("quantized", "int4_weights_kernel", "m16"),
    ("persistent", "matmul_persistent_kernel", "square"),
    ("attention", "attention_fwd", "d64_causal"),
)
MORE: tuple[Which, ...] = (
    *CHAINS,
    ("quantized", "int8_weights_kernel", "m16"),
    ("quantized", "int8_weights_kernel", "m256"),
    ("quantized", "int4_weights_kernel", "m64"),
    ("quantized", "int4_weights_kernel", "wide"),
    ("persistent", "matmul_persistent_kernel", "bf16"),
    ("attention", "attention_fwd", "d64"),
)
TILED: tuple[Which, ...] = (
    ("quantized", "int8_weights_kernel", "m256"),
    ("quantized", "int4_weights_kernel", "wide"),
    ("matmul", "matmul_descriptor_kernel", "bf16"),
    ("persistent", "matmul_persistent_kernel", "bf16"),
    ("attention", "attention_fwd", "d64_causal"),
)
FOUR: tuple[Which, ...] = (
    ("quantized", "int8_weights_kernel", "m64"),
    ("quantized", "int8_weights_kernel", "wide"),
    ("quantized", "int4_weights_kernel", "m16"),
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with executor_thread():
        yield


@functools.cache
def subject(which: Which, persistent: bool | None = None, chain: str = "on") -> Subject:
    file, kernel, variant = which
    signature = variant_signature(ROOT / "kernels" / f"{file}.toml", kernel, variant, vars(MODULES[file]))
    text = text_of(*which)
    made = specialize(read(text), Options(chain=chain, persistent=persistent))
    assert made.module is not None and made.plan is not None and made.plan.helpers
    assert made.plan.persistent or not persistent
    assert chain != "all" or [task.name for task in made.plan.computing] == ["convert", "mma", "store"]
    return Subject(signature, Kernel(read(text)), print_module(made.module))


def check(
    which: Which, seed: int, schedules: Iterator[Schedule], persistent: bool | None = None, chain: str = "on"
) -> None:
    """Plain within the bounds, and specialized the same bits in every order."""
    one = subject(which, persistent, chain)
    example = one.example(seed)
    shares = one.run(one.plain, example)
    assert all(value <= 1 for value in shares.values()), shares
    expected = bits(example)
    for schedule in schedules:
        example = one.example(seed)
        one.run(one.specialized, example, schedule)
        same = [torch.equal(a, b) for a, b in zip(bits(example), expected, strict=True)]
        assert all(same), (schedule.name, same)


@pytest.mark.parametrize("which", CHAINS, ids="-".join)
@pytest.mark.parametrize("seed", range(2))
def test_plain_chain_and_float64_agree(which: Which, seed: int) -> None:
    some = subject(which).specialized.adversaries[seed::4]
    check(which, seed, iter((FirstReady(), Random(seed), Priorities(seed), *some)))


@pytest.mark.parametrize("which", TILED, ids="-".join)
def test_chains_in_loops_over_tiles_agree(which: Which) -> None:
    some = subject(which, True).specialized.adversaries[::4]
    check(which, 0, iter((FirstReady(), Random(0), Priorities(0), *some)), True)


@pytest.mark.parametrize("which", FOUR, ids="-".join)
def test_load_convert_multiply_store_agree(which: Which) -> None:
    """Four tasks: tiles are loaded, made operands of, multiplied and stored by warps of their own."""
    some = subject(which, True, "all").specialized.adversaries[::3]
    check(which, 0, iter((FirstReady(), Random(0), Priorities(0), *some)), True, "all")


def test_five_tasks_agree() -> None:
    """Three products that feed each other, each by a task of its own between one that loads and one that stores."""
    text = lowered(narrow(ODD["three_dots"]))
    made = specialize(read(text), Options(chain="all", gate="off", persistent=True))
    assert made.module is not None and made.plan is not None and len(made.plan.tasks) == 5
    specialized = Kernel(read(print_module(made.module)))
    expected = three_dots(Kernel(read(text)), FirstReady())
    assert expected.abs().max() > 0
    for schedule in (FirstReady(), Random(0), Priorities(0), *specialized.adversaries[::4]):
        assert torch.equal(three_dots(specialized, schedule), expected), schedule.name


def three_dots(kernel: Kernel, schedule: Schedule) -> torch.Tensor:
    """Three tiles of it by two blocks where they walk through tiles."""
    draw = torch.Generator().manual_seed(0)
    q, k, w, v = (0.1 * torch.randn(rows, 64, generator=draw) for rows in (192, 256, 64, 256))
    out = torch.zeros(192, 64, dtype=torch.float16)
    tiles = {"q_desc": q.half(), "k_desc": k.half(), "w_desc": w.half(), "v_desc": v.half(), "o_desc": out}
    names = [parameter.name for parameter in kernel.parameters]
    grid, hidden = even_launch(names, (3, 1, 1), 2)
    tables = {name: torch.from_numpy(numbers) for name, numbers in hidden.items()}
    kernel.run(grid, {**tiles, "n": 256, **tables}, schedule=schedule)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("which", MORE, ids="-".join)
def test_many_seeds(which: Which) -> None:
    adversaries = subject(which).specialized.adversaries
    for seed in range(100):
        check(which, seed, iter((Random(seed), Priorities(seed), adversaries[seed % len(adversaries)])))


@pytest.mark.parametrize("kernel", ["int8_weights_kernel", "int4_weights_kernel"])
def test_wrong_weights_exceed_the_bounds(kernel: str) -> None:
    one = subject(("quantized", kernel, "m16"))
    example = one.example(0)
    weights = example.arguments["w_desc"]
    weights[:, :64] = weights[:, 64:128].clone()
    assert max(one.run(one.plain, example).values()) > 2
