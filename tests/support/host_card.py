"""A card that does nothing, with tensors of the host for its own: what a launch costs a host, and what is launched."""

from __future__ import annotations

import ctypes
import struct
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.nvidia import driver as nvidia

from tests.bridge.fake_driver import FakeDriver
from wspec.bridge import again, cuda, launcher, persistent
from wspec.kernels import attention, attention_inputs, matmul, quantized
from wspec.kernels.front import Calls

STREAM = 7


class Launcher:
    """Stands for Triton's, which a launch should not need."""

    def __init__(self, *_: Any) -> None:
        self.num_ctas, self.launch_cooperative_grid, self.launch_pdl = 1, False, False
        self.global_scratch_size = self.profile_scratch_size = 0

    def __call__(self, *_: Any) -> None:
        raise AssertionError("Triton's launcher is asked")


class Card(FakeDriver):
    """Counts what it is asked for: `calls`, launches with how they start and which function; `maps`, made of shapes."""

    def __init__(self) -> None:
        super().__init__(stream=STREAM)
        self.calls: list[tuple[int, int]] = []
        self.maps = 0
        self.functions: list[str] = []
        self.blocks: dict[int, launcher.Block] = {}  # by the address of what it says of how blocks start
        self.given: list[tuple[launcher.Block, bytes]] = []  # of each launch whose block is known what it held

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return Launcher()

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        self.functions.append(name)
        return "module", len(self.functions), 32, 0, 1024

    def fill_tma_descriptor(self, address: int, swizzle: int, size: int, kind: int, box: Any, *of: Any) -> bytes:
        shape, strides, *_ = of
        return self.map(address, kind, shape[::-1], [size * one for one in strides[-2::-1]], box[::-1], swizzle)

    def encode(self, memory: Any, kind: Any, rank: Any, address: Any, *given: Any) -> int:
        """Stands for cuTensorMapEncodeTiled."""
        sizes, strides, box, *_ = given
        count = rank.value
        there = (ctypes.c_uint64 * (count - 1)).from_address(strides.value)
        made = self.map(address.value, kind.value, sizes[:count], there[:], box[:], given[5].value)
        ctypes.memmove(memory.value, made, len(made))
        return 0

    def map(self, address: int, kind: int, sizes: Any, strides: Any, box: Any, swizzle: int) -> bytes:
        """In some order; the upper bits of strides stand together, by themselves."""
        self.maps += 1
        words = [kind << 8 | swizzle << 4 | len(sizes), *(one >> 4 & 0xFFFFFFFF for one in strides)]
        words.append(sum(one >> 36 << 4 * at for at, one in enumerate(strides)))
        words += [*(one - 1 for one in sizes), *box]
        return struct.pack(f"<Q{len(words)}I", address, *words).ljust(cuda.MAP_BYTES, b"\0")

    fill_tma_descriptor_tiled = fill_tma_descriptor  # as newer versions of Triton call it

    def launch(self, config: int, function: int, parameters: int, extra: None) -> int:
        said = cuda.Config.from_address(config)
        self.calls.append((function, said.attribute_count))
        block = self.blocks.get(said.attributes)
        if block is not None:
            pointers = (ctypes.c_uint64 * len(block.offsets)).from_address(parameters)
            assert list(pointers) == [config + offset for offset in block.offsets]
            self.given.append((block, ctypes.string_at(config, block.size)))
        return 0

    def note_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on what is launched from blocks that are made is kept."""
        ours = launcher.Block.__init__

        def noted(block: launcher.Block, *args: Any) -> None:
            ours(block, *args)
            self.blocks[block.attribute] = block

        monkeypatch.setattr(launcher.Block, "__init__", noted)

    def launched(self) -> list[tuple[str, bool]]:
        """Of each launch since this was asked last: the kernel, and whether it started early."""
        found = [(self.functions[function - 1], bool(early)) for function, early in self.calls]
        self.calls.clear()
        return found


def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """One that is there until the test is over; the functions of `kernels` take tensors of the host."""
    made = Card()
    monkeypatch.setattr(triton.runtime.driver, "_active", made)
    monkeypatch.setattr(nvidia, "CudaLauncher", Launcher)
    called = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(lambda *given: made.launch(*given))
    monkeypatch.setattr(cuda, "launch_call", lambda: called)
    monkeypatch.setattr(cuda, "encode_call", lambda: made.encode)
    monkeypatch.setattr(cuda, "Mark", lambda: SimpleNamespace(record=lambda _: None, is_over=lambda: True))
    monkeypatch.setattr(launcher, "_map_bytes", lambda encoded: encoded)
    monkeypatch.setattr(launcher, "address_of", lambda one: one if isinstance(one, int) else one.data_ptr())
    state = SimpleNamespace(
        current_device=lambda: 0,
        is_current_stream_capturing=lambda: False,
        current_stream=lambda _: SimpleNamespace(cuda_stream=STREAM),
    )
    names = {"int32": torch.int32, "Tensor": torch.Tensor, "empty": torch.empty, "from_numpy": torch.from_numpy}
    stand_in = SimpleNamespace(cuda=state, device=lambda *_: torch.device("cpu"), **names)
    monkeypatch.setattr(persistent, "torch", stand_in)
    monkeypatch.setattr(persistent, "multiprocessors", lambda _: 132)
    for cached in (persistent.mark, persistent.filler):
        monkeypatch.setattr(persistent, cached.__name__, _anew(cached))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    monkeypatch.setattr(again, "has_card", lambda: False)
    sums = torch.zeros(1, dtype=torch.int32)
    monkeypatch.setattr(persistent, "partials_of", lambda *_: sums)
    monkeypatch.setattr(quantized, "starts_early", lambda _: True)
    monkeypatch.setattr(attention_inputs, "check_cuda", lambda *_: None)
    for module in (attention, matmul, quantized):
        monkeypatch.setattr(module, "are_alike", lambda _: True)
        monkeypatch.setattr(module, "check_cuda", lambda *_: None)
        monkeypatch.setattr(module, "current_stream", lambda _: STREAM)
        monkeypatch.setattr(module, "on_device", lambda _: nullcontext())
        monkeypatch.setattr(module, "_calls", Calls())
        monkeypatch.setattr(module, "_launches", module._calls.launches)
    return made


def _anew(cached: Any) -> Any:
    """The function, which remembers nothing of other tests."""
    known: dict[Any, Any] = {}

    def made(*at: int) -> Any:
        if at not in known:
            known[at] = cached.__wrapped__(*at)
        return known[at]

    return made
