"""What a size that was never seen costs the host, and what is launched, on a card that does nothing."""

from __future__ import annotations

import gc
import random
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import wspec
from tests.support import host_card
from tests.support.host_card import Card
from wspec import api
from wspec.bridge import direct, fill_table, launcher, persistent
from wspec.bridge.alike import Alike
from wspec.kernels import attention as attention_kernels
from wspec.kernels import matmul as matmul_kernels
from wspec.kernels import quantized as quantized_kernels
from wspec.kernels.arguments import special
from wspec.kernels.attention import attention, default_config
from wspec.kernels.matmul import matmul
from wspec.kernels.quantized import matmul_int4_weights, matmul_int8_weights

pytestmark = pytest.mark.skipif(direct.library() is None, reason="needs a C compiler and Python's headers")
HEADS = 2
MOST_CALLS = 30  # of Python functions, for a size that was never seen beside another: some 23, 7 of them the card's
MOST_FAR_CALLS = 60  # of another grid: some 44
MOST_US = 1000.0  # the same in time, of the quickest of many; about 80 on a machine that does nothing else


def _takes_a_number(number):  # type: ignore[no-untyped-def]
    pass


@pytest.fixture(scope="module")
def kernel() -> Any:
    return wspec.compile(attention_kernels.attention_fwd, remarks="off")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> Iterator[Card]:
    made = host_card.card(monkeypatch)
    monkeypatch.setattr(api, "_announced", set())
    monkeypatch.setattr(attention_kernels, "attention_fwd_ws", lambda team=1: kernel)
    kernels = kernel, fill_table.fill_table
    for one in kernels:
        one.device_caches.clear()
    kernel.__dict__.pop("wspec_alike", None)
    yield made
    for one in kernels:
        one.device_caches.clear()


def inputs(length: int, head_dim: int, batch: int = 1) -> list[torch.Tensor]:
    return [torch.zeros(batch, HEADS, length, head_dim, dtype=torch.bfloat16) for _ in range(3)]


def calls_of(work: Callable[[], Any]) -> int:
    count = 0

    def see(_frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("head_dim", [64, 128])
def test_a_size_is_known_once_it_was_launched(card: Card, head_dim: int) -> None:
    """The first launch behind the writing of a table does not start early; one made again does."""
    first, *others = [inputs(length, head_dim) for length in (300, 301, 700)]
    attention(*first)
    fill, ours = card.launched()
    assert fill == ("fill_table", False) and not ours[1]
    attention(*first)
    assert card.launched() == [(ours[0], True)]
    attention(*others[0])
    assert card.launched() == [(ours[0], True)], "tables of equal grids and order are one"
    maps = card.maps
    attention(*others[1])
    assert card.launched() == [fill, ours]
    assert card.maps == maps, "they are written, not encoded"
    attention(*others[0])
    attention(*others[1])
    assert card.launched() == [(ours[0], True)] * 2


@pytest.mark.parametrize(("head_dim", "causal"), [(64, True), (128, False)])
def test_a_new_size_costs_little(card: Card, head_dim: int, causal: bool) -> None:
    run = lambda given: attention(*given, causal=causal)  # noqa: E731
    chosen = {default_config(head_dim, length, causal, heads=HEADS): length for length in range(300, 1200)}
    for length in (100, 611, 600, *chosen.values()):  # in each tile that a length may have
        run(inputs(length, head_dim))
    given = [inputs(length, head_dim) for length in range(300, 400)]
    counts = [calls_of(lambda one=one: run(one)) for one in given[::10]]
    assert sorted(counts)[len(counts) // 2] <= MOST_CALLS
    assert max(counts[1:]) <= MOST_FAR_CALLS, "the first may be the first of its kind"
    gc.collect()
    gc.disable()
    try:
        times = []
        for one in given:
            start = time.perf_counter_ns()
            run(one)
            times.append((time.perf_counter_ns() - start) / 1e3)
    finally:
        gc.enable()
    assert min(times[11:20] + times[21:30] + times[31:40]) < MOST_US


LENGTHS = (300, 301, 333, 640, 641, 1000, 1500, 1501, 1502, 2200, 2999, 3000)


def of_attention(head_dim: int, causal: bool) -> Callable[[int], Any]:
    q, k, v = inputs(3000, head_dim)
    return lambda length: attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], causal=causal)


def of_matmul() -> Callable[[int], Any]:
    a, weight = torch.zeros(3000, 1024, dtype=torch.bfloat16), torch.zeros(2048, 1024, dtype=torch.bfloat16)
    return lambda length: matmul(a[:length], weight.T)


def of_views(causal: bool) -> Callable[[int], Any]:
    """Batches and heads beside each other in memory, several heads to a key head, which the log-sum-exp is asked of."""
    q = torch.zeros(2, 3000, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
    k, v = (torch.zeros(2, 3000, 2, 64, dtype=torch.bfloat16).transpose(1, 2) for _ in range(2))

    def run(length: int) -> Any:
        batch = 1 + length % 2
        given = q[:batch, :, : length // 2], k[:batch, :, :length], v[:batch, :, :length]
        return attention(*given, causal=causal, scale=0.25, return_lse=True)

    return run


def of_wholes() -> Callable[[int], Any]:
    """Tensors of their own."""
    return lambda length: attention(*inputs(length, 128, batch=2))


def of_odd_columns() -> Callable[[int], Any]:
    """Rows of the result are wider in memory."""
    a, b = torch.zeros(3000, 512, dtype=torch.bfloat16), torch.zeros(512, 1000, dtype=torch.bfloat16)[:, :999]
    return lambda length: matmul(a[:length], b, out_dtype=torch.float32)


def of_int4() -> Callable[[int], Any]:
    a, weight = torch.zeros(3000, 1024, dtype=torch.bfloat16), torch.zeros(2048, 512, dtype=torch.int8)
    return lambda length: matmul_int4_weights(a[:length], weight, torch.ones(8, 2048, dtype=torch.bfloat16))


def of_int8() -> Callable[[int], Any]:
    a, weight = torch.zeros(3000, 1024, dtype=torch.bfloat16), torch.zeros(2048, 1024, dtype=torch.int8)
    return lambda length: matmul_int8_weights(a[:length], weight, torch.ones(2048))


@pytest.mark.parametrize(
    ("of", "launches"),
    [
        *((lambda c=c: of_attention(64, c), attention_kernels) for c in (False, True)),
        (lambda: of_attention(128, False), attention_kernels),
        pytest.param(lambda: of_attention(128, True), attention_kernels, marks=pytest.mark.slow),
        *((lambda c=c: of_views(c), attention_kernels) for c in (False, True)),
        (of_wholes, attention_kernels),
        (of_matmul, matmul_kernels),
        (of_odd_columns, matmul_kernels),
        (of_int8, quantized_kernels),
        pytest.param(of_int4, quantized_kernels, marks=pytest.mark.slow),
    ],
)
def test_a_new_size_is_launched_as_the_ordinary_way_would(
    card: Card, monkeypatch: pytest.MonkeyPatch, of: Callable[[], Callable[[int], Any]], launches: Any
) -> None:
    """The same function, grid, maps, numbers and table; and C and Python have the parameters at the same places."""
    launched = _compared(card, monkeypatch, of(), LENGTHS, launches)
    assert launched >= len(LENGTHS) + 5, "the first of each binary goes the ordinary way"


def _compared(
    card: Card, monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], Any], cases: Sequence[Any], launches: Any
) -> int:
    """Twice with launches of any size, and twice with these made the ordinary way; how many of the former were."""
    card.note_blocks(monkeypatch)
    found: list[dict[Any, Any]] = []
    launched: list[bool] = []
    tables: dict[int, Any] = {}
    ours, written = Alike.launch, persistent.Tables._written

    def noted_tables(self: Any, kind: Any, *given: Any) -> Any:
        entry = written(self, kind, *given)
        _, _, first, many, step, what = kind
        for at in range(many):
            grid = [*first]
            if step is not None:
                grid[step[0]] += at * step[1]
            tables[entry.address + at * entry.apart] = grid, what
        return entry

    def noted(*given: Any) -> Any:
        launched.append(ours(*given))
        return launched[-1]

    monkeypatch.setattr(persistent.Tables, "_written", noted_tables)
    for way in (noted, lambda *_: False):
        monkeypatch.setattr(Alike, "launch", way)
        launches._launches.clear()
        found.append({})
        for again in (False, True):  # the second time each table is there
            for case in cases:
                card.given.clear()
                run(case)
                if again:
                    found[-1][case] = [_without_addresses(*one, tables) for one in card.given]
    one, other = found
    assert one == other and all(one.values())
    return sum(launched)


def test_drawn_calls_are_launched_as_the_ordinary_way_would(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all layouts that descriptors take: heads beside each other, parts of longer tensors, single rows and heads."""
    draw = random.Random(7)

    def tensor(batch: int, heads: int, rows: int, head_dim: int) -> torch.Tensor:
        more = [one + draw.choice([0, 0, 3]) for one in (batch, heads, rows)]
        order = draw.choice([(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1)])
        made = torch.zeros(*(more[at] for at in order), head_dim + draw.choice([0, 8]), dtype=torch.bfloat16)
        back = [order.index(at) for at in range(3)]
        return made.permute(*back, 3)[:batch, :heads, :rows, :head_dim]

    def drawn() -> tuple[Any, ...]:
        head_dim, kv_heads, batch = draw.choice([64, 128]), draw.choice([1, 2, 3]), draw.choice([1, 1, 2, 3])
        rows, keys = (draw.choice([1, draw.randint(2, 64), draw.randint(65, 1500)]) for _ in range(2))
        q = tensor(batch, kv_heads * draw.choice([1, 2]), rows, head_dim)
        shape = batch, kv_heads, keys, head_dim
        return q, tensor(*shape), tensor(*shape), draw.random() < 0.5, draw.random() < 0.3

    calls = [drawn() for _ in range(40)]

    def run(at: int) -> None:
        q, k, v, causal, return_lse = calls[at]
        attention(q, k, v, causal=causal, return_lse=return_lse)

    assert _compared(card, monkeypatch, run, range(len(calls)), attention_kernels) >= 1.5 * len(calls)


def _without_addresses(block: launcher.Block, contents: bytes, tables: dict[int, Any]) -> tuple[bytes, list[Any]]:
    """Beside what is there but for them what tables are of: a grid may have two. Other addresses that nobody gives
    stay."""
    made, known, places = bytearray(contents), [], block.layout.places()
    hidden = max(at for at, kind in enumerate(block.layout.kinds) if kind == "constexpr")
    for at, place in enumerate(places):
        if place < 0:
            continue
        table = tables.get(int.from_bytes(made[place : place + 8], "little"))
        known += [table] if table is not None else []
        if table is not None or at < hidden:
            made[place : place + 8] = bytes(8)
    return bytes(made), known


def test_a_launch_that_would_read_what_it_writes_is_left_alone(card: Card) -> None:
    """The guard holds of launches of any size: the result in the place of a part of K."""
    attention(*inputs(300, 128))
    attention(*inputs(301, 128))
    (alike,) = attention_kernels.attention_fwd_ws().__dict__["wspec_alike"].values()
    q, k, v = inputs(302, 128)
    lse = torch.zeros(1, HEADS, 302)
    memory = torch.zeros(2 * k.numel(), dtype=torch.bfloat16)

    def launch(begin: int) -> bool:
        out = memory[begin : begin + k.numel()].view(k.shape)
        inside = memory[: k.numel()].view(k.shape)
        rows = default_config(128, 302, False, heads=HEADS).block_m
        described = [(one, one.shape, one.stride()) for one in (q, inside, v, out)]
        given = (*described, lse, 0.1, 302, 302, HEADS, 1)
        return bool(alike.launch((-(-302 // rows), HEADS, 1), given, (0, host_card.STREAM)))

    assert launch(k.numel())
    assert not launch(k.numel() - 8) and not launch(0)


@pytest.mark.parametrize("of", [lambda: of_attention(64, True), lambda: of_attention(128, False), of_matmul, of_int8])
def test_few_far_sizes_write_tables(
    card: Card, monkeypatch: pytest.MonkeyPatch, of: Callable[[], Callable[[int], Any]]
) -> None:
    """Grids differ by a step, on whichever axis: tables of a row of them are written at once."""
    run, written = of(), []
    ours = persistent.Tables._written
    monkeypatch.setattr(persistent.Tables, "_written", lambda *given: written.append(given[1]) or ours(*given))
    for length in (300, 304, 2001, 2000):
        run(length)
    written.clear()
    lengths = range(429, 3000, 43)
    for length in lengths:
        run(length)
    assert len(written) <= len(lengths) // 6


@pytest.mark.parametrize(
    ("head_dim", "causal", "most"),
    [(64, True, 6), *(pytest.param(128, causal, 6, marks=pytest.mark.slow) for causal in (False, True))],
)
def test_few_long_lengths_write_tables_and_all_stay(card: Card, head_dim: int, causal: bool, most: int) -> None:
    """Of 20 between 16,384 and 131,072 with four heads; nor do those between them write more. Once all were launched
    each is known: nothing was thrown out."""
    q, k, v = (torch.empty(1, 4, 131072, head_dim, dtype=torch.bfloat16) for _ in range(3))

    def run(length: int) -> None:
        attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], causal=causal)

    lengths = [round(16384 * 8 ** (at / 19)) for at in range(20)]
    run(16000)
    card.launched()
    for length in lengths[1::2] + lengths[::2]:
        run(length)
    assert sum(name == "fill_table" for name, _ in card.launched()) <= most, "17 to 19 where rows have two megabytes"
    for length in range(16385, 131072, 997):
        run(length)
    assert sum(name == "fill_table" for name, _ in card.launched()) <= 1
    for alike in attention_kernels.attention_fwd_ws().__dict__["wspec_alike"].values():
        for binary in alike._binaries.values():
            assert binary.tables.memory.bytes <= persistent.KEPT_BYTES
    card.launched()
    for length in lengths:
        run(length)
    assert all(name != "fill_table" and early for name, early in card.launched())


def test_who_wants_to_see_launches_is_asked_each_time(card: Card, kernel: Any) -> None:
    """Also about sizes like others, whose binary is known without Triton."""
    seen: list[int] = []
    attention(*inputs(300, 128))
    attention(*inputs(301, 128))
    kernel.pre_run_hooks.append(lambda *_args, **_named: seen.append(1))
    try:
        attention(*inputs(302, 128))
        attention(*inputs(302, 128))
    finally:
        kernel.pre_run_hooks.clear()
    attention(*inputs(302, 128))
    assert len(seen) == 2 and len(card.launched()) == 6, "five, and a table"


def test_without_a_compiler_launches_go_the_ordinary_way(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "library", lambda: None)
    given = [inputs(length, 128) for length in (300, 301, 300, 302)]
    for one in given * 2:
        attention(*one)
    assert len([name for name, _ in card.launched() if name != "fill_table"]) == 2 * len(given)


def test_a_call_that_is_wrong_spoils_nothing(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is the first after the kernel was compiled: those behind it go the short way."""
    q, k, v = inputs(300, 128)
    attention(q, k, v)
    shifted = torch.zeros(q.numel() + 4, dtype=q.dtype)[4:].view(q.shape)
    with pytest.raises(ValueError, match=r"^q: "):
        attention(shifted, k, v)
    card.launched()
    monkeypatch.setattr(attention_kernels, "_attention", lambda *_: pytest.fail("the ordinary way"))
    attention(q, k, v)
    assert len(card.launched()) == 1


def test_what_nobody_reads_gets_no_memory(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log-sum-exp of a launch that is made again goes where those of others went; one that is asked for is the
    caller's own."""
    made: list[torch.Tensor] = []
    given, empty = inputs(300, 128), torch.empty

    def counted(*args: Any, **named: Any) -> torch.Tensor:
        made.append(empty(*args, **named))
        return made[-1]

    attention(*given)
    monkeypatch.setattr(torch, "empty", counted)
    attention(*given)
    assert made == []
    _, lse = attention(*given, return_lse=True)
    assert len(made) == 1 and lse is made[0]
    monkeypatch.setattr(attention_kernels, "UNREAD_ROWS", HEADS * 300 - 1)
    card.launched()
    attention(*given)
    assert len(made) == 2 and made[1].shape == (1, HEADS, 300), "more than there is a place for"
    monkeypatch.setattr(attention_kernels, "_attention", lambda *_: pytest.fail("the ordinary way"))
    attention(*given)
    assert len(card.launched()) == 2


def test_numbers_that_triton_tells_apart() -> None:
    assert special(16, 48, 4096) == special(32, 16, 16) != special(17, 48, 4096)
    assert special(1) != special(17) == special(18) and special(1 << 32) != special(16) != special((1 << 31) + 16)


def test_triton_tells_no_other_numbers_apart(card: Card) -> None:
    """Numbers of which `special` says the same have one key in Triton."""
    seen: dict[Any, set[Any]] = {}
    binder = fill_table.fill_table.__class__(_takes_a_number).device_caches[0][-1]
    for number in [*range(-40, 400), *((1 << bits) + more for bits in (15, 30, 31, 32, 40) for more in range(-17, 18))]:
        _, specialization, _ = binder(number)
        seen.setdefault(special(number), set()).add(str(specialization))
    assert all(len(found) == 1 for found in seen.values()), seen


def test_what_is_wrong_is_said_of_other_sizes_too(card: Card) -> None:
    """Once sizes are launched past what was looked at."""
    a, weight, scale = (
        torch.zeros(64, 256, dtype=torch.bfloat16),
        torch.zeros(128, 256, dtype=torch.int8),
        torch.ones(128),
    )
    b = torch.zeros(256, 128, dtype=torch.bfloat16)
    q, k, v = inputs(300, 64)
    for rows in (64, 63, 62):
        matmul(a[:rows], b)
        matmul_int8_weights(a[:rows], weight, scale)
        attention(q[:, :, :rows], k[:, :, :rows], v[:, :, :rows])
    for wrong in (
        lambda: matmul(a[:61, :240], b),
        lambda: matmul(a[:61], b[0]),
        lambda: matmul(a[0], b),
        lambda: matmul(a[:61, ::2], b[:128]),
        lambda: matmul_int8_weights(a[:61, :240], weight, scale),
        lambda: matmul_int8_weights(a[:0, :0], weight[:0, :0], scale),
        lambda: matmul_int8_weights(a[:61], weight, scale[:64]),
        lambda: attention(q[:, :, :61], k[:, :, :61], v[:, :, :60]),
        lambda: attention(q[:, :, :61], k[:, :1, :61, :32], v[:, :1, :61, :32]),
        lambda: attention(q[:, :, :61], k[:, :, :61], v[0, :, :61]),
        lambda: attention(q[..., 1:][:, :, :61, :32], k[:, :, :61], v[:, :, :61]),
    ):
        with pytest.raises(ValueError, match=r"^(a|b|weight|scale|q|k|v): "):
            wrong()
    assert attention(q[:, :, :61], k[:, :, :0], v[:, :, :0]).shape[2] == 61
    assert matmul(a[:0], b).shape == (0, 128)


@pytest.mark.parametrize("of", [of_matmul, of_int8, lambda: of_attention(64, True)])
def test_no_tensor_is_kept(card: Card, of: Callable[[], Callable[[int], Any]]) -> None:
    """By what makes launches again: sizes come and go, and memory of each would add up."""
    run = of()
    kept = [weakref.ref(run(length)) for length in LENGTHS for _ in range(2)]
    gc.collect()
    assert not [one for one in kept if one() is not None]
    seen: set[int] = set()
    modules = attention_kernels, matmul_kernels, quantized_kernels
    todo: list[Any] = [launch for module in modules for launch in module._launches.values()]
    while todo:
        one = todo.pop()
        if id(one) in seen or not isinstance(one, tuple | list):
            continue
        seen.add(id(one))
        assert not any(isinstance(each, torch.Tensor) for each in one)
        todo += one


def test_a_size_beside_another_asks_nobody(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a binary nor for a table; one whose grid is another does, and so does one whose table was given
    back."""
    asked: list[Any] = []
    launched = persistent.Tables.launched

    def noted(self: Any, *given: Any) -> Any:
        asked.append(given)
        return launched(self, *given)

    monkeypatch.setattr(persistent.Tables, "launched", noted)
    run = of_attention(128, True)
    for length in (1000, 1001):
        run(length)
    asked.clear()
    for length in (1002, 1010, 1024, 997):
        run(length)
    assert not asked
    run(1025)
    assert len(asked) == 1
    tables = next(iter(attention_kernels.attention_fwd_ws().__dict__["wspec_alike"].values()))
    for binary in tables._binaries.values():
        binary.tables.entries.clear()
    gc.collect()
    run(1003)
    assert len(asked) == 2
