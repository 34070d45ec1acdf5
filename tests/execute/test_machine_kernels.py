"""Whole kernels on the CPU: plain, specialized and float64 agree, in every order; and what is broken is found."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.support.goldens import ROOT
from tests.support.verified import specialize
from wspec import bridge
from wspec.execute import ExecutionError, FirstReady, Kernel, Priorities, ProgramError, Random, Schedule
from wspec.execute import one_thread as executor_thread
from wspec.ir import print_module, read
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, replace_uses
from wspec.kernels import attention, elementwise, examples, matmul
from wspec.lab.persistent_launch import even_launch
from wspec.options import Options
from wspec.specs.signature import Signature
from wspec.specs.variants import variant_signature
from wspec.tile_scheduler import PARTIALS, TABLE, TileLoop, divided_launch, partials_words
from wspec.tile_scheduler.names import SLOTS, WORDS

MODULES = {"attention": attention, "matmul": matmul, "elementwise": elementwise}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """References of small tensors are quicker so, above all where other tests run beside."""
    with executor_thread():
        yield


@dataclass(frozen=True, eq=False)
class Subject:
    """A kernel of a spec, ready to run both ways."""

    signature: Signature
    plain: Kernel
    text: str  # of the specialized module; "" when the kernel is left alone
    coarsening: int = 1
    tiles: TileLoop | None = None  # how blocks take tiles, where they walk through them

    @functools.cached_property
    def specialized(self) -> Kernel:
        return Kernel(read(self.text))

    def example(self, seed: int, sizes: Mapping[str, int] | None = None) -> examples.Example:
        make = getattr(examples, self.signature.example.removeprefix("examples."))
        made: examples.Example = make(self.signature.types, self.signature.values, seed, **(sizes or {}))
        return made

    def run(
        self, kernel: Kernel, example: examples.Example, schedule: Schedule | None = None, blocks: int = 2
    ) -> dict[str, float]:
        """The largest share of what its bound allows, by output; so many blocks where they walk through tiles."""
        names = [parameter.name for parameter in kernel.parameters]
        arguments = {name: value for name, value in example.arguments.items() if name in names}
        grid, hidden = even_launch(names, example.grid, blocks, self.coarsening)
        arguments |= {name: torch.from_numpy(numbers) for name, numbers in hidden.items()}
        kernel.run(grid, arguments, schedule=schedule)
        return {name: share(output) for name, output in example.outputs.items()}


def share(output: examples.Output) -> float:
    actual = output.tensor.double()
    error = torch.where(actual == output.expected, 0.0, (actual - output.expected).abs())
    return float(torch.where(error == 0, 0.0, error / output.bound).nan_to_num(nan=torch.inf).max())


@functools.cache
def subject(file: str, kernel: str, variant: str, **options: Any) -> Subject:
    signature = variant_signature(ROOT / "kernels" / f"{file}.toml", kernel, variant, vars(MODULES[file]))
    return _made(file, kernel, signature, options)


def _made(file: str, kernel: str, signature: Signature, options: Mapping[str, Any]) -> Subject:
    source = bridge.from_signature(
        getattr(MODULES[file], kernel), signature.types, {**signature.values, **signature.options}
    )
    text = bridge.ttgir(source)
    outcome = specialize(read(text), Options(**{"gate": "off", "persistent": False, "promote": False, **options}))
    made = "" if outcome.module is None else print_module(outcome.module)
    tiles = None if outcome.plan is None else outcome.plan.tile_loop
    return Subject(signature, Kernel(read(text)), made, options.get("coarsening", 1), tiles)


FAST = (
    ("attention", "attention_fwd", "d64"),
    ("attention", "attention_fwd", "d64_causal"),
    ("matmul", "matmul_descriptor_kernel", "bf16"),
    ("matmul", "matmul_descriptor_kernel", "bf16_transposed"),
)
SLOW = (
    *FAST,
    ("attention", "attention_fwd", "d128"),
    ("attention", "attention_fwd", "d128_causal"),
    ("attention", "attention_fwd", "d256"),
    ("attention", "attention_fwd", "d256_causal"),
    ("matmul", "matmul_descriptor_kernel", "fp16"),
)
LEFT_ALONE = (
    ("elementwise", "add_kernel", "fp32"),
    ("elementwise", "softmax_kernel", "fp32"),
    ("elementwise", "layer_norm_kernel", "fp32"),
)


def bits(example: examples.Example) -> list[torch.Tensor]:
    return [output.tensor.clone() for output in example.outputs.values()]


TEAMS = [
    ("d64", 2),
    ("d64_causal", 3),
    ("d64_causal", 4),
    *(pytest.param(variant, team, marks=pytest.mark.slow) for variant, team in (("d64", 3), ("d64_causal", 2))),
]
QUERIES = [64, 321, *(pytest.param(length, marks=pytest.mark.slow) for length in (130, 640))]
"""One tile, more tiles than members; fewer, and whole ones."""


@pytest.mark.parametrize(("variant", "coarsening"), TEAMS)
@pytest.mark.parametrize("queries", QUERIES)
def test_a_team_on_neighbouring_tiles(variant: str, coarsening: int, queries: int) -> None:
    """The same bits as the plain kernel, whatever part of a team has tiles, however long each member's loops are."""
    one = subject("attention", "attention_fwd", variant, persistent=True, coarsening=coarsening)
    for keys in (queries, 96):
        sizes = {"seqlen_q": queries, "seqlen_k": keys}
        example = one.example(queries, sizes)
        one.run(one.plain, example)
        expected = bits(example)
        for schedule in (FirstReady(), Random(queries), *one.specialized.adversaries[::7]):
            example = one.example(queries, sizes)
            shares = one.run(one.specialized, example, schedule)
            assert all(value <= 1 for value in shares.values()), shares
            assert all(map(torch.equal, bits(example), expected)), (schedule.name, keys)


def check(which: tuple[str, str, str], seed: int, schedules: Iterator[Schedule], **sizes: int) -> None:
    """Plain within the bounds, and specialized the same bits in every order."""
    one = subject(*which)
    example = one.example(seed, sizes)
    shares = one.run(one.plain, example)
    assert all(value <= 1 for value in shares.values()), shares
    expected = bits(example)
    for schedule in schedules:
        example = one.example(seed, sizes)
        one.run(one.specialized, example, schedule)
        same = [torch.equal(a, b) for a, b in zip(bits(example), expected, strict=True)]
        assert all(same), (schedule.name, same)


@pytest.mark.parametrize("which", FAST, ids="-".join)
@pytest.mark.parametrize("seed", range(2))
def test_plain_specialized_and_float64_agree(which: tuple[str, str, str], seed: int) -> None:
    kernel = subject(*which).specialized
    some = kernel.adversaries[seed::3]
    check(which, seed, iter((FirstReady(), Random(seed), Priorities(seed), *some)))


@pytest.mark.slow
@pytest.mark.parametrize("which", SLOW, ids="-".join)
def test_many_seeds(which: tuple[str, str, str]) -> None:
    kernel = subject(*which).specialized
    for seed in range(100):
        adversary = kernel.adversaries[seed % len(kernel.adversaries)]
        check(which, seed, iter((Random(seed), Priorities(seed), adversary)))


LENGTHS = ((1, 1), (64, 64), (65, 127), (100, 300), (200, 60))
"""Queries and keys; in the last, causal, rows that see no key."""


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), LENGTHS)
def test_lengths(seqlen_q: int, seqlen_k: int, causal: bool) -> None:
    which = ("attention", "attention_fwd", "d64_causal" if causal else "d64")
    check(which, 3, iter((Random(0), Priorities(1))), seqlen_q=seqlen_q, seqlen_k=seqlen_k, heads=1)


@pytest.mark.parametrize(("heads", "kv_heads", "batch"), [(1, 1, 2), (3, 3, 1), (4, 2, 1)])
def test_heads(heads: int, kv_heads: int, batch: int) -> None:
    which = ("attention", "attention_fwd", "d64_causal")
    sizes = {"seqlen_q": 70, "seqlen_k": 90, "heads": heads, "kv_heads": kv_heads, "batch": batch}
    check(which, 4, iter((Random(0),)), **sizes)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (128, 256, 64), (256, 272, 640)])
def test_products(m: int, n: int, k: int) -> None:
    check(("matmul", "matmul_descriptor_kernel", "bf16"), 5, iter((Random(0), Priorities(1))), m=m, n=n, k=k)


def test_one_warp_group_does_what_eight_warps_did() -> None:
    """A narrow product in long steps."""
    bf16 = variant_signature(ROOT / "kernels" / "matmul.toml", "matmul_descriptor_kernel", "bf16", vars(matmul))
    boxes = {"a_desc": (128, 128), "b_desc": (128, 64), "c_desc": (128, 64)}
    types = {name: f"tensordesc<bf16[{rows}, {columns}]>" for name, (rows, columns) in boxes.items()}
    narrow = bf16.updated(Signature(types, {"BLOCK_N": 64, "BLOCK_K": 128}))
    assert narrow.options["num_warps"] == 8
    one = _made("matmul", "matmul_descriptor_kernel", narrow, {})
    assert len(ws.task_blocks(ws.find(read(one.text)))) == 2
    for schedule in (FirstReady(), Random(1), Priorities(1)):
        example = one.example(7, {"m": 144, "n": 96, "k": 320})
        one.run(one.plain, example)
        expected = bits(example)
        example = one.example(7, {"m": 144, "n": 96, "k": 320})
        shares = one.run(one.specialized, example, schedule)
        assert all(value <= 1 for value in shares.values()) and all(map(torch.equal, bits(example), expected))


@pytest.mark.parametrize("seed", range(2))
def test_loads_through_pointers(seed: int) -> None:
    """Rings that cp.async fills, in every order."""
    which = ("matmul", "matmul_pointer_kernel", "bf16")
    assert "ttg.async_copy_global_to_local" in subject(*which).text
    adversaries = subject(*which).specialized.adversaries[seed::3]
    check(which, seed, iter((FirstReady(), Random(seed), Priorities(seed), *adversaries)))


# ------------------------------------------------------------------------------- blocks walk through tiles


def check_walk(which: tuple[str, str, str], seed: int, blocks: int, sizes: Mapping[str, int], **options: Any) -> None:
    """Blocks that walk through tiles give the same bits as a plain block for each, in every order."""
    one = subject(*which, persistent=True, **options)
    assert TABLE in [parameter.name for parameter in one.specialized.parameters][-2:]
    example = one.example(seed, sizes)
    shares = one.run(one.plain, example)
    assert all(value <= 1 for value in shares.values()), shares
    expected = bits(example)
    adversaries = one.specialized.adversaries
    for schedule in (FirstReady(), Random(seed), Priorities(seed), *adversaries[seed % 3 :: 3]):
        example = one.example(seed, sizes)
        shares = one.run(one.specialized, example, schedule, blocks)
        assert all(value <= 1 for value in shares.values()), (schedule.name, shares)
        assert all(torch.equal(a, b) for a, b in zip(bits(example), expected, strict=True)), schedule.name


@pytest.mark.parametrize("which", FAST, ids="-".join)
@pytest.mark.parametrize(
    ("ping_pong", "epilogue_overlap"),
    [
        (False, False),
        (True, True),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((False, True), (True, False))),
    ],
)
def test_blocks_that_walk_through_tiles(which: tuple[str, str, str], ping_pong: bool, epilogue_overlap: bool) -> None:
    sizes = (
        {"seqlen_q": 200, "seqlen_k": 300, "heads": 2} if which[0] == "attention" else {"m": 272, "n": 528, "k": 208}
    )
    check_walk(which, 1, 2, sizes, ping_pong=ping_pong, epilogue_overlap=epilogue_overlap)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("epilogue_overlap", [False, True])
def test_odd_lengths_of_tiles(seqlen_q: int, seqlen_k: int, causal: bool, epilogue_overlap: bool) -> None:
    """One block walks through all tiles: loops of no, one and some iterations, one after the other."""
    which = ("attention", "attention_fwd", "d64_causal" if causal else "d64")
    check_walk(which, 2, 1, {"seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "heads": 3}, epilogue_overlap=epilogue_overlap)


@pytest.mark.parametrize("blocks", [1, 2, 7, 12])
def test_blocks_with_several_tiles_one_and_none_that_finish_late(blocks: int) -> None:
    """The last tile of a block has no next one, the first none before it, and a block may have no tile."""
    sizes = {"seqlen_q": 130, "seqlen_k": 70, "heads": 3, "kv_heads": 3, "batch": 1}
    check_walk(("attention", "attention_fwd", "d64_causal"), 5, blocks, sizes, epilogue_overlap=True)


# ---------------------------------------------------------------------------------------- tiles of two blocks


@dataclass(frozen=True, eq=False)
class Divided:
    """A launch of a product whose last tiles are divided among so many blocks."""

    subject: Subject
    example: examples.Example
    hidden: dict[str, torch.Tensor]
    blocks: int

    @staticmethod
    def of(tiles: tuple[int, int], trips: int, blocks: int, **options: Any) -> Divided:
        one = subject("matmul", "matmul_descriptor_kernel", "bf16", persistent=True, stream_k=True, **options)
        m, n = 128 * tiles[0] - 48, 256 * tiles[1] - 16
        k, walk = 64 * trips - 16, one.tiles
        assert walk is not None and walk.stream_k.value is not None
        values = dict(zip(walk.parameters, (m, n, k), strict=True))
        launched = divided_launch(walk, (tiles[0] * tiles[1], 1, 1), values, blocks)
        assert launched is not None and launched[0] == blocks
        memory = torch.zeros(partials_words(walk.stream_k.value, blocks), dtype=torch.int32)
        hidden = {TABLE: torch.from_numpy(launched[1]), PARTIALS: memory}
        return Divided(one, one.example(3, {"m": m, "n": n, "k": k}), hidden, blocks)

    def run(self, schedule: Schedule | None = None, programs: Sequence[int] | None = None) -> None:
        kernel = self.subject.specialized
        names = [parameter.name for parameter in kernel.parameters]
        arguments = {name: value for name, value in self.example.arguments.items() if name in names} | self.hidden
        order = None if programs is None else [(block, 0, 0) for block in programs]
        kernel.run((self.blocks, 1, 1), arguments, schedule=schedule, programs=order)


@pytest.mark.parametrize(
    ("tiles", "trips", "blocks"), [((3, 1), 8, 2), ((2, 2), 9, 3), ((1, 5), 8, 3), ((5, 1), 8, 4), ((7, 1), 8, 3)]
)
def test_tiles_that_two_blocks_share(tiles: tuple[int, int], trips: int, blocks: int) -> None:
    """The bits of a plain block a tile, and the memory in between as it was, whatever the order of a block's tasks."""
    divided = Divided.of(tiles, trips, blocks)
    divided.subject.run(divided.subject.plain, divided.example)
    expected = bits(divided.example)
    for schedule in (FirstReady(), Random(1)):
        for output in divided.example.outputs.values():
            output.tensor.fill_(torch.nan)
        divided.run(schedule)
        assert all(torch.equal(a, b) for a, b in zip(bits(divided.example), expected, strict=True)), schedule.name
        assert not divided.hidden[PARTIALS][: SLOTS * WORDS].any(), (
            "the words that say that sums are there are clear again"
        )


def test_a_block_that_is_started_before_the_one_it_waits_for() -> None:
    divided = Divided.of((3, 1), 8, 2)
    with pytest.raises(ExecutionError, match="no program before it has set"):
        divided.run(programs=(1, 0))


def test_sums_that_are_lost_on_the_way_are_missed() -> None:
    """What the second block finds is what it goes on with."""
    divided = Divided.of((3, 1), 8, 2)
    divided.subject.run(divided.subject.plain, divided.example)
    expected = bits(divided.example)
    divided.run(programs=(0,))
    divided.hidden[PARTIALS][SLOTS * WORDS :] = 0
    divided.run(programs=(1,))
    assert not all(torch.equal(a, b) for a, b in zip(bits(divided.example), expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("which", SLOW, ids="-".join)
@pytest.mark.parametrize("ping_pong", [False, True])
@pytest.mark.parametrize("epilogue_overlap", [False, True])
def test_many_seeds_of_tiles(which: tuple[str, str, str], ping_pong: bool, epilogue_overlap: bool) -> None:
    for seed in range(20):
        check_walk(which, seed, 1 + seed % 4, {}, ping_pong=ping_pong, epilogue_overlap=epilogue_overlap)


@pytest.mark.parametrize("which", LEFT_ALONE, ids="-".join)
def test_kernels_that_are_left_alone(which: tuple[str, str, str]) -> None:
    one = subject(*which)
    assert one.text == ""
    for seed in range(2):
        shares = one.run(one.plain, one.example(seed))
        assert all(value <= 1 for value in shares.values()), shares


# ---------------------------------------------------------------------------------------------- the bounds


@pytest.mark.parametrize("which", FAST[:3], ids="-".join)
def test_bounds_are_not_generous(which: tuple[str, str, str]) -> None:
    one = subject(*which)
    shares = one.run(one.plain, one.example(0))
    assert max(shares.values()) > 0.1, shares


def wrong_attention(example: examples.Example, what: str) -> None:
    """Change inputs behind the reference's back, as a kernel would that takes the wrong tile."""
    k, v = example.arguments["k_desc"], example.arguments["v_desc"]
    if what == "a tile of V twice":
        v[:, :, 64:128] = v[:, :, :64]
    elif what == "a tile of K of the next":
        k[:, :, :64] = k[:, :, 64:128]
    elif what == "a row of V":
        v[:, :, 70] = v[:, :, 71]
    else:
        k[:, :, -1] = 0


@pytest.mark.parametrize("what", ["a tile of V twice", "a tile of K of the next", "a row of V", "the last key"])
def test_wrong_tiles_exceed_the_bounds(what: str) -> None:
    one = subject("attention", "attention_fwd", "d64")
    example = one.example(0)
    wrong_attention(example, what)
    assert one.run(one.plain, example)["o_desc"] > 2


def test_wrong_products_exceed_the_bounds() -> None:
    one = subject("matmul", "matmul_descriptor_kernel", "bf16")
    example = one.example(0)
    example.arguments["a_desc"][:, :64] = example.arguments["a_desc"][:, 64:128]
    assert one.run(one.plain, example)["c_desc"] > 10


# ---------------------------------------------------------------------------------------------- what is found


def without(text: str, name: str, index: int) -> Operation:
    """The module without the `index`-th of the operations of that name inside the tasks."""
    module = read(text)
    [tasks] = [op for op in module.walk() if op.name == "ttg.warp_specialize"]
    op = [op for op in tasks.walk() if op.name == name][index]
    replace_uses(module, dict(zip(op.results, op.operands, strict=False)))
    op.erase()
    return module


BROKEN = (
    ("ttng.wait_barrier", 0, "reads q"),
    ("ttng.wait_barrier", 1, "which is being filled"),
    ("ttng.wait_barrier", 3, "which is being filled"),
    ("ttng.warp_group_dot_wait", 2, "no wait has covered"),  # 1 and 4 have nothing to wait for (pipeline_loops)
    ("ttng.warp_group_dot_wait", 3, "no wait has covered"),
    ("ttng.arrive_barrier", 1, "deadlock"),
    ("ttng.fence_async_shared", 0, "did not fence"),
    ("ttng.async_tma_store_wait", 0, "never waited for"),
    ("ttng.barrier_expect", 1, "deadlock"),
    ("ttng.async_tma_copy_global_to_local", 2, "deadlock"),
    ("ttng.wait_barrier", -4, "more arrivals|but the phase waits|overwrites"),
    ("ttng.wait_barrier", -3, "overwrites"),
)


@pytest.mark.parametrize(("name", "index", "message"), BROKEN)
def test_broken_kernels_are_found(name: str, index: int, message: str) -> None:
    one = subject("attention", "attention_fwd", "d64")
    kernel = Kernel(without(one.text, name, index))
    sizes = {"heads": 1, "seqlen_q": 64, "seqlen_k": 1024}
    with pytest.raises(ProgramError, match=message):
        for schedule in (FirstReady(), *kernel.adversaries):
            one.run(kernel, one.example(0, sizes), schedule)


def test_a_program_costs_little() -> None:
    """256 queries and keys of one head, 64 wide: the tests that run thousands of programs rely on it."""
    one = subject("attention", "attention_fwd", "d64")
    sizes: dict[str, Any] = {"heads": 1, "seqlen_q": 256, "seqlen_k": 256}
    example = one.example(0, sizes)
    result = one.specialized.run(example.grid, example.arguments)
    assert result.programs == 4 and result.seconds < 3.0
