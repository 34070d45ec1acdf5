"""What is particular to a version of Triton, as one value; and how a pass of libtriton is named and added."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from triton._C import libtriton

Arguments = Callable[[int, Any], tuple[Any, ...]]


def _none(_arch: int, _options: Any) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Pass:
    """One of libtriton's passes: `ttgpuir.coalesce`, or `nvidia.ttnvgpuir.plan_cta` where it is the back end's own."""

    name: str
    arguments: Arguments = _none  # behind the pass manager, of the architecture (90) and the backend's options

    def add(self, manager: Any, arch: int, options: Any = None) -> None:
        """Put it on a pass manager. Raises AttributeError where libtriton has no such pass."""
        *vendor, group, name = self.name.split(".")
        found: Any = libtriton
        for part in (*vendor, "passes", group, f"add_{name}"):
            found = getattr(found, part)
        found(manager, *self.arguments(arch, options))


def to_arch(arch: int, _options: Any) -> tuple[Any, ...]:
    """For passes that are told the architecture and nothing else."""
    return (arch,)


def in_place_of(passes: Iterable[Pass], name: str, *others: Pass) -> tuple[Pass, ...]:
    """The list with `others` where the pass of that name stood. Raises ValueError where it stands not once."""
    listed = tuple(passes)
    (place,) = [index for index, one in enumerate(listed) if one.name == name]
    return (*listed[:place], *others, *listed[place + 1 :])


@dataclass(frozen=True, slots=True)
class Version:
    """What wspec knows of a minor version of Triton. Tests compare each list of passes with the installed sources."""

    release: str  # "3.8"
    to_ttgir: tuple[Pass, ...]  # of `make_ttgir` on sm_90, up to and without `add_hopper_warpspec`
    finishing: tuple[Pass, ...]  # run on the specialized module
    memory: tuple[Pass, ...]  # the beginning of `make_llir`, as far as shared memory is given out and fences are put
    spelling: tuple[Callable[[str], str], ...] = ()  # what makes wspec's generic text this version's
    ptxas_flags: tuple[str, ...] = ()  # that `make_cubin` passes besides those of its options
    whole_views: bool = False  # must a view of a buffer as another type have all its bytes?
    columns_of_files: bool = False  # are a location's columns those of the file, from 1?
    gathers_before_waits: bool = True
    """Does the back end put a `bar.sync` of a task's warps before its wait on an mbarrier? Before a task's arrival all
    versions do, where the task has read or written shared memory since the last one."""

    def spelled(self, text: str) -> str:
        """Generic text that wspec printed, as this version writes it; other text as it is."""
        for change in self.spelling:
            text = change(text)
        return text

    def add_ttgir_passes(self, manager: Any, arch: int, options: Any) -> None:
        """From TTIR to TTGIR with layouts chosen and nothing pipelined."""
        for one in self.to_ttgir:
            one.add(manager, arch, options)

    def add_finishing_passes(self, manager: Any, arch: int) -> None:
        """All of `finishing`."""
        for one in self.finishing:
            one.add(manager, arch)

    def add_memory_passes(self, manager: Any, arch: int) -> None:
        """All of `memory`."""
        for one in self.memory:
            one.add(manager, arch)
