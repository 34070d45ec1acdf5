"""A driver that records launches, so that Triton's own launch path runs on a machine without a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wspec.bridge import HOPPER


@dataclass
class Launch:
    """One call of the launcher: grid, and the arguments of the kernel."""

    kernel: str
    grid: tuple[int, int, int]
    stream: int
    packed_metadata: tuple[Any, ...]
    arguments: tuple[Any, ...]


@dataclass
class FakeDriver:
    """What JITFunction.run and CompiledKernel ask a driver for."""

    target: Any = HOPPER
    stream: int = 7
    launches: list[Launch] = field(default_factory=list)

    @property
    def utils(self) -> FakeDriver:
        return self

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return self.stream

    def get_current_target(self) -> Any:
        return self.target

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 232448, "multiprocessor_count": 132}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        return "module", name, 32, 0, 1024

    def unload_module(self, module: Any) -> None:
        """Triton 3.8 and later ask for it when a kernel is collected."""

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
            _launch_metadata, _enter, _exit, *arguments = rest
            self.launches.append(Launch(function, (x, y, z), stream, packed, tuple(arguments)))

        return launch
