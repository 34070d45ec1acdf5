"""`kernel[grid]` once more: the driver is given what an ordinary launch gives it, on a card that does nothing."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_card import Card as Ground
from tests.support.aliased_kernels import added_in_place, pointer_product
from tests.support.host_card import Card
from tests.support.host_card import card as host_card
from wspec import api, bridge
from wspec.bridge import cuda, launcher, ready, repeated
from wspec.bridge import promoted as promoted_launches
from wspec.bridge.overlap_guard import Guard
from wspec.bridge.recording import recording
from wspec.lab.bench import pointer_kernels
from wspec.lab.bench.loaded_kernels import packed_attention

BLOCKS = {"BM": 128, "BN": 64, "BK": 64, "num_warps": 8}
PACKED = {"D": 128, "SHARED": 2, "CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}
STRIDED = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3}
OPTIONS: dict[str, Any] = {"gate": "off", "persistent": False, "remarks": "off"}
Given = tuple[int, bytes]  # of the driver: the function, and the memory with how it is launched and its arguments


class Asked:
    """The kernel that decides every launch anew, and the one that does not; what the driver is given of each."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        card: Card,
        kernel: Any,
        blocks: Mapping[str, int],
        first: Any,
        options: Mapping[str, Any] = OPTIONS,
    ) -> None:
        """`first`: arguments and grid of a launch, at which the one is compiled; None: there is only the other."""
        self.blocks = blocks
        self.decided = 0
        self.given: list[Given] = []
        self._blocks: list[Any] = []
        monkeypatch.setattr(card, "launch", self._launch)
        made, ranges = launcher.Block.__init__, Guard.ranges

        def init(block: Any, *args: Any) -> None:
            made(block, *args)
            self._blocks.append(block)

        def looked(guard: Guard, rest: Any) -> Any:
            self.decided += 1
            return ranges(guard, rest)

        monkeypatch.setattr(launcher.Block, "__init__", init)
        monkeypatch.setattr(Guard, "ranges", looked)
        self.ours = wspec.compile(kernel, **options)
        if first is None:
            return
        with monkeypatch.context() as once:
            once.setattr(bridge, "decided_once", lambda kernel, *_: kernel, raising=False)
            self.anew = wspec.compile(kernel, **options)
            self.of(self.anew, *first)

    def _launch(self, config: int, function: int, parameters: int, extra: None) -> int:
        attributes, said = cuda.Config.attributes, cuda.Config.from_address(config).attributes
        (block,) = (one for one in self._blocks if one.attribute == said)
        assert list((ctypes.c_uint64 * len(block.offsets)).from_address(parameters)) == [
            config + offset for offset in block.offsets
        ]
        found = bytearray(ctypes.string_at(config, block.size))
        found[attributes.offset : attributes.offset + attributes.size] = bytes(attributes.size)  # each has its own
        self.given.append((function, bytes(found)))
        return 0

    def of(self, kernel: Any, arguments: tuple[Any, ...], grid: Any = (4, 2)) -> tuple[list[bytes], int]:
        """What the driver is given, and how often a launch was decided meanwhile."""
        self.given.clear()
        self.decided = 0
        kernel[grid](*arguments, **self.blocks)
        return [memory for _, memory in self.given], self.decided

    def is_same(self, arguments: tuple[Any, ...], grid: Any = (4, 2)) -> int:
        """Is what the driver is given the same for both kernels? How often the launch was decided."""
        expected, often = self.of(self.anew, arguments, grid)
        found, decided = self.of(self.ours, arguments, grid)
        assert found == expected and len(found) == 1 and often == 1
        return decided


class Operands:
    """Of a product of rows x depth and depth x columns, added to what is there."""

    def __init__(self, rows: int = 512, columns: int = 128, depth: int = 256) -> None:
        a, b = torch.zeros(rows, depth, dtype=torch.float16), torch.zeros(depth, columns, dtype=torch.float16)
        self.a, self.b = TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 64])
        self.sums = torch.zeros(rows, columns)
        self.columns, self.depth, self.grid = columns, depth, (rows // 128, columns // 64)

    def arguments(self) -> tuple[Any, ...]:
        return self.a, self.b, self.sums, self.columns, self.depth


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    monkeypatch.setattr(api, "_announced", set())
    return host_card(monkeypatch)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, card: Card) -> Asked:
    operands = Operands()
    return Asked(monkeypatch, card, added_in_place, BLOCKS, (operands.arguments(), operands.grid))


@pytest.fixture
def promoted(monkeypatch: pytest.MonkeyPatch, card: Card) -> Asked:
    """A product through pointers, whose launches make the descriptors."""
    blocks = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8}
    return Asked(monkeypatch, card, pointer_product, blocks, (product(), (4, 2)))


def product(rows: int = 512, columns: int = 256, depth: int = 192, scale: float = 1.0) -> tuple[Any, ...]:
    """A begins behind 64 elements of others."""
    a = torch.zeros(64 + rows * depth, dtype=torch.float16)
    b, c = (torch.zeros(one, columns, dtype=torch.float16) for one in (depth, rows))
    return a, b, c, columns, depth, 64, scale


def test_a_launch_is_decided_once(asked: Asked) -> None:
    """And others have other addresses."""
    one, other = Operands(), Operands()
    assert [asked.is_same(case.arguments(), case.grid) for case in (one, one, other, one)] == [1, 0, 0, 0]


@pytest.mark.parametrize("what", ["grid", "number", "shape", "strides", "tensor"])
def test_what_decides_a_launch_is_looked_at(asked: Asked, what: str) -> None:
    """One launch after the other differs in it."""
    case = Operands()
    a, b, sums, n, k = case.arguments()
    assert [asked.is_same((a, b, sums, n, k)) for _ in range(2)] == [1, 0]
    rows, wide = torch.zeros(640, 256, dtype=torch.float16), torch.zeros(512, 512, dtype=torch.float16)[:, :256]
    cases: dict[str, tuple[tuple[Any, ...], Any]] = {
        "grid": ((a, b, sums, n, k), (2, 2)),
        "number": ((a, b, sums, n, 128), (4, 2)),
        "shape": ((TensorDescriptor.from_tensor(rows, [128, 64]), b, sums, n, k), (4, 2)),
        "strides": ((TensorDescriptor.from_tensor(wide, [128, 64]), b, sums, n, k), (4, 2)),
        "tensor": ((a, b, torch.zeros(1024, 128), n, k), (4, 2)),
    }
    arguments, grid = cases[what]
    assert [asked.is_same(arguments, grid) for _ in range(2)] == [1, 0]
    assert asked.is_same((a, b, sums, n, k)) == 0


def test_drawn_launches(asked: Asked) -> None:
    """Some of a few, in any order."""
    rng = random.Random(3)
    cases = [Operands(128 * rng.randint(1, 4), 64 * rng.randint(1, 3), 64 * rng.randint(1, 4)) for _ in range(12)]
    decided = sum(asked.is_same(case.arguments(), case.grid) for case in rng.choices(cases, k=120))
    assert decided <= len(cases)


def test_arguments_that_share_memory_get_the_plain_kernel_each_time(asked: Asked) -> None:
    """Of the same shapes as others that do not."""
    case = Operands()
    room = torch.zeros(2 * 512 * 128)
    inside = room.view(torch.float16)[: 512 * 256].view(512, 256)
    apart, over = room[512 * 128 :].view(512, 128), room[: 512 * 128].view(512, 128)
    a = TensorDescriptor.from_tensor(inside, [128, 64])
    for sums in (apart, apart, over, over, apart):
        given = (a, case.b, sums, case.columns, case.depth)
        expected, _ = asked.of(asked.anew, given)
        threads = _threads(expected)
        assert _threads(asked.of(asked.ours, given)[0]) == threads and threads == (256 if sums is over else 384)


def test_descriptors_that_launches_make_begin_at_other_addresses(promoted: Asked) -> None:
    """Pointers became descriptors, which lie behind the arguments."""
    one, other, wide = product(), product(), product(depth=256)
    assert [promoted.is_same(case) for case in (one, other, one, wide, other, wide)] == [1, 0, 0, 1, 0, 0]
    assert _threads(promoted.of(promoted.ours, one)[0]) > 256, "specialized"


def test_a_user_makes_such_a_launch_again(promoted: Asked) -> None:
    """Who gives none of the constants that stand between the kernel's arguments and its descriptors."""
    one, other = product(), product()
    expected, _ = promoted.of(promoted.anew, other)
    made = ready.launch(promoted.ours, (4, 2), one, promoted.blocks)
    assert made is not None
    for case, given in ((other, expected), (one, promoted.of(promoted.anew, one)[0])):
        promoted.given.clear()
        assert made(*(tensor.data_ptr() for tensor in case[:3]))
        assert [memory for _, memory in promoted.given] == given


def test_descriptors_that_must_begin_in_memory(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again they begin as far before other tensors, where there is memory; where there is none, all is decided."""
    memory = Ground()
    monkeypatch.setattr(promoted_launches, "grounds", lambda device: memory.grounds)
    asked = Asked(monkeypatch, card, packed_attention, PACKED, None)
    first, *others = [packed(300) for _ in range(4)]
    (found,), decided = asked.of(asked.ours, first, (4, 4, 2))
    assert decided == 1 and _threads([found]) > 128, "specialized"
    begin = {at: tensor.data_ptr() - _addresses(found, memory)[at] for at, tensor in enumerate(first[:3])}
    for case in (*others, first):
        (found,), decided = asked.of(asked.ours, case, (4, 4, 2))
        assert decided == 0
        begins = _addresses(found, memory)
        assert {at: tensor.data_ptr() - begins[at] for at, tensor in enumerate(case[:3])} == begin
    memory.ranges.clear()
    memory.pages.clear()
    monkeypatch.setattr(memory.grounds, "_ranges", [])
    monkeypatch.setattr(memory.grounds, "_mapped", set())
    assert [asked.of(asked.ours, first, (4, 4, 2))[1] for _ in range(2)] == [1, 0]


def _addresses(given: bytes, memory: Ground) -> list[int]:
    """The numbers in what the driver is given that are addresses where memory was put."""
    numbers = struct.unpack(f"<{len(given) // 8}Q", given[: len(given) // 8 * 8])
    return [one for one in numbers if memory.holds(one)]


def packed(rows: int) -> tuple[Any, ...]:
    q, k, v, out = (torch.zeros(rows, heads, 128).bfloat16() for heads in (4, 2, 2, 4))
    starts = torch.tensor([0, 100, rows], dtype=torch.int32)
    return q, k, v, out, starts, 0.1, q.stride(0), k.stride(0)


def test_a_plain_launch_is_decided_once_too(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are no multiple of 16 bytes apart have no descriptors, the kernel's own rows aside."""
    odd, other, even = strided(4), strided(4), strided(8)
    asked = Asked(monkeypatch, card, pointer_kernels.product, STRIDED, (odd, (8, 1)))
    assert [asked.is_same(case, (8, 1)) for case in (odd, other, even, odd, even)] == [1, 0, 1, 0, 0]
    plain, specialized = (_threads(asked.of(asked.ours, case, (8, 1))[0]) for case in (odd, even))
    assert plain == 256 < specialized


def test_launches_with_boxes_of_products_alone_are_decided_once(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of C cannot be stored as boxes: another binary, whose launches make two descriptors, and of other sizes
    the one that makes three."""
    uneven, other, even = strided(8, 4), strided(8, 4), strided(8)
    asked = Asked(monkeypatch, card, pointer_kernels.product, STRIDED, (uneven, (8, 1)))
    for case, often in ((uneven, True), (other, False), (even, True), (uneven, False), (even, False)):
        expected, _ = asked.of(asked.anew, case, (8, 1))
        found, decided = asked.of(asked.ours, case, (8, 1))
        assert found == expected and len(found) == 1 and bool(decided) is often
        assert _threads(found) > 256, "specialized"


def strided(more: int, more_of_c: int | None = None) -> tuple[Any, ...]:
    """A product whose rows have so many elements more; those of C may have others."""
    m, n, k = 256, 512, 128
    wider = more, more, more if more_of_c is None else more_of_c
    shapes = zip(((m, k), (k, n), (m, n)), wider, strict=True)
    a, b, c = (torch.zeros(rows, columns + one).bfloat16()[:, :columns] for (rows, columns), one in shapes)
    return a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()


def test_zeros_are_told_apart_by_their_sign(promoted: Asked) -> None:
    """They are equal, and the kernel may divide by them."""
    scales = (0.0, -0.0, 0.0, -0.0, math.nan, math.nan)
    assert [promoted.is_same(product(scale=scale)) for scale in scales] == [1, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("kernel", [pointer_product, added_in_place], ids=["pointers", "descriptors"])
def test_blocks_that_walk_have_the_same_table(card: Card, monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    """Of one kernel, as another one has tables of its own: a launch made again, and the same with all decided anew."""
    rng = random.Random(7)
    asked = Asked(monkeypatch, card, kernel, {**BLOCKS, "BN": 128}, None, {**OPTIONS, "persistent": True})
    ours = asked.ours
    sizes = [(128 * rng.randint(1, 40), 128 * rng.randint(1, 20), 64 * rng.randint(1, 4)) for _ in range(4)]
    for rows, columns, depth in (*sizes, *rng.choices(sizes, k=30)):
        grid = rows // 128, columns // 128
        before, arguments = (_walked(kernel, rows, columns, depth) for _ in range(2))
        asked.of(ours, before, grid)
        found, decided = asked.of(ours, arguments, grid)
        assert decided == 0
        with monkeypatch.context() as once:
            once.setattr(repeated.Memo, "get", lambda memo, key: None)
            assert asked.of(ours, arguments, grid) == (found, 1)


def _walked(kernel: Any, rows: int, columns: int, depth: int) -> tuple[Any, ...]:
    if kernel is pointer_product:
        return product(rows, columns, depth)
    case = Operands(rows, columns, depth)
    b = TensorDescriptor.from_tensor(case.b.base, [64, 128])
    return case.a, b, case.sums, columns, depth


def _threads(given: list[bytes]) -> int:
    (memory,) = given
    return cuda.Config.from_buffer_copy(memory[: ctypes.sizeof(cuda.Config)]).block_x


def test_who_wants_to_see_launches_is_asked_each_time(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    case, seen = Operands(), list[str]()
    asked.of(asked.ours, case.arguments())
    asked.ours.pre_run_hooks.append(lambda *_args, **_named: seen.append("before"))
    try:
        assert asked.of(asked.ours, case.arguments())[1] == 1 and seen == ["before"]
    finally:
        asked.ours.pre_run_hooks.clear()
    with monkeypatch.context() as hooked:
        hooked.setattr(knobs.runtime, "launch_enter_hook", lambda _: seen.append("hook"))
        with pytest.raises(AssertionError, match="Triton's launcher is asked"):
            asked.of(asked.ours, case.arguments())
    assert asked.of(asked.ours, case.arguments())[1] == 0


def test_a_grid_of_what_stands_for_numbers(asked: Asked) -> None:
    """It is no key: nothing of it is kept."""
    case = Operands()
    rows, columns = (torch.tensor(one) for one in case.grid)
    expected = asked.of(asked.anew, case.arguments(), case.grid)[0]
    for _ in range(2):
        assert asked.of(asked.ours, case.arguments(), (rows, columns)) == (expected, 1)


def test_launches_that_cannot_be_written_down_are_seldom_tried(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Triton launches."""
    launches: list[tuple[Any, ...]] = []
    tried: list[Callable[..., Any]] = []
    monkeypatch.setattr(cuda, "launch_call", lambda: None)
    monkeypatch.setattr(card, "launcher_cls", lambda *_: lambda *given: launches.append(given))
    on = recording.on

    def tries() -> Any:
        tried.append(on)
        return on()

    monkeypatch.setattr(type(recording), "on", lambda _: tries())
    kernel, case = wspec.compile(added_in_place, **OPTIONS), Operands()
    for _ in range(700):
        kernel[case.grid](*case.arguments(), **BLOCKS)
    assert len(launches) == 700 and 250 <= len(tried) < 260
