"""Which card there is: as CUDA says where it has begun, else as NVML does."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from wspec import api
from wspec.bridge import card
from wspec.options import Options


class Nvml:
    """Two cards, or none."""

    def __init__(self, names: tuple[str, ...], begins: int = 0) -> None:
        self.names, self.begins, self.open = names, begins, 0

    def nvmlInit_v2(self) -> int:
        self.open += not self.begins
        return self.begins

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        if index >= len(self.names):
            return 2
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetName(self, handle: Any, name: Any, size: int) -> int:
        name.value = self.names[handle.value - 1].encode()[: size - 1]
        return 0


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    card._first_card.cache_clear()
    yield
    card._first_card.cache_clear()


@pytest.mark.parametrize(
    ("visible", "name"), [("", "NVIDIA H200"), ("1,0", "NVIDIA H100"), ("GPU-ab", "NVIDIA H200"), ("7", "")]
)
def test_the_first_card_that_is_visible(visible: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(("NVIDIA H200", "NVIDIA H100"))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert card.card_name() == name and nvml.open == 0


def test_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert card.card_name() == ""
    card._first_card.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Nvml((), begins=9))
    assert card.card_name() == ""


def test_the_current_one_where_cuda_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    assert card.card_name() == "NVIDIA H100 80GB HBM3"


def test_options_name_the_machine_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that name one; and so the cache tells kernels of both cards apart."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Nvml(("NVIDIA H100 80GB HBM3",)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    here = api.options_here(Options())
    assert (here.machine, api.options_here(Options(machine="h200")).machine) == ("h100", "h200")
    assert here.digest() != Options(machine="h200").digest()
