"""Kernels that wspec did not make: Triton's own and hand-written ones, right and wrong, with the verdict each must get.

A case called `family/fault` is a kernel with one thing wrong. `card` says what a GPU does with it, as far as that is
known beforehand: what is wrong need not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from tests.outside import launch as launches
from tests.outside.build import Edited, invalidated
from tests.outside.launch import Launch
from wspec.bridge.versions import INSTALLED

Verdict = Literal["ok", "error", "undecided"]
Card = Literal["right", "wrong", "hang", "luck"]
"""luck: right, wrong or hanging, as it happens. wrong: wrong numbers or NaN, perhaps only in some launches."""


@dataclass(frozen=True, slots=True)
class Case:
    """`make(device)` gives the launch. One of the codes found (wspec.check.findings.CODES) must be among `codes`."""

    name: str
    make: Callable[[str], Launch]
    verdict: Verdict = "ok"
    codes: frozenset[str] = frozenset()
    card: Card = "right"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: the kernel's name for it, what the checker must say, what the card does, and what it takes."""

    name: str
    codes: str  # separated by spaces
    card: Card
    needs: dict[str, Any] | None = None
    verdict: Verdict = "error"


def cases() -> list[Case]:
    """Every case, by unique name."""
    found = [*_triton(), *_triton_specialized(), *_host_descriptors(), *_gluon()]
    assert len({one.name for one in found}) == len(found)
    return found


# ------------------------------------------------------------------------------------------------ Triton


def _triton() -> Iterator[Case]:
    """Triton's pipeliner, without specialization."""
    for stages in (1, 2, 3, 4):
        yield Case(f"triton-gemm-s{stages}", partial(launches.triton_gemm, tile=(128, 128, 64), stages=stages))
    yield Case("triton-gemm-w8", partial(launches.triton_gemm, tile=(128, 256, 64), stages=3, warps=8))
    yield Case("triton-persistent", partial(launches.triton_persistent, stages=3, ws=False))
    for mask in ("full", "causal"):
        for head_dim, stages, warps in ((64, 2, 4), (64, 3, 4), (128, 2, 8)):
            make = partial(
                launches.triton_attention, head_dim=head_dim, block_n=64, stages=stages, mask=mask, warps=warps
            )
            yield Case(f"triton-attention-{mask}-d{head_dim}-s{stages}", make)
    for stages in (2, 3, 4):
        # Up to 3.8 Triton puts no proxy fence between cp.async and wgmma; 3.9 does (triton-lang/triton pull 9610). The
        # checker does not decide whether the card needs it.
        unfenced = Case(
            f"triton-pointers-s{stages}", partial(launches.triton_pointers, stages=stages, warps=4), "undecided",
            frozenset(("missing-fence",)), "luck",
        )  # fmt: skip
        yield Case(unfenced.name, unfenced.make) if INSTALLED.release == "3.9" else unfenced


def _triton_specialized() -> Iterator[Case]:
    """Triton's own specialization, descriptors made on the device.

    It leaves barriers behind that are initialized and never used nor invalidated, and the allocator gives their memory
    to a ring that TMA fills. On an H200 attention with three and more stages gives NaN; with the barriers invalidated
    it is right, and a proxy fence does not help.
    """
    codes = frozenset(("barrier-setup",))
    for name, make in _specialized_launches():
        yield Case(f"triton-ws-{name}", make, "error", codes, "luck")
        given_up = f"triton-ws-{name}-invalidated", partial(_invalidated, make)
        both = name.startswith("gemm-64")
        yield Case(*given_up, "undecided", frozenset(("global-order",))) if both else Case(*given_up)


def _invalidated(make: Callable[[str], Launch], device: str) -> Launch:
    launch = make(device)
    return replace(launch, kernel=Edited(launch.kernel, invalidated))


def _specialized_launches() -> Iterator[tuple[str, Callable[[str], Launch]]]:
    for stages in (1, 2, 3, 4):
        yield f"gemm-s{stages}", partial(launches.triton_gemm, tile=(128, 128, 64), stages=stages, ws=True)
    for tile in ((128, 256, 64), (64, 128, 64), (128, 128, 128), (64, 64, 64)):
        yield f"gemm-{'x'.join(map(str, tile))}", partial(launches.triton_gemm, tile=tile, stages=2, ws=True)
    for stages in (2, 3):
        yield f"persistent-s{stages}", partial(launches.triton_persistent, stages=stages, ws=True)
    attention = partial(launches.triton_attention, ws=True)
    for head_dim, block_n in ((64, 64), (64, 128), (128, 64), (128, 128)):
        for stages in (1, 2, 3, 4):
            if head_dim * block_n * stages <= 64 * 128 * 4:  # what shared memory has room for
                make = partial(attention, head_dim=head_dim, block_n=block_n, stages=stages)
                yield f"attention-d{head_dim}-n{block_n}-s{stages}", make
    for head_dim, stages in ((64, 2), (64, 3), (128, 2)):
        make = partial(attention, head_dim=head_dim, block_n=64, stages=stages, mask="masked")
        yield f"attention-masked-d{head_dim}-s{stages}", make
    make = partial(attention, head_dim=64, block_n=64, stages=3, dtype=launches.FP16)
    yield "attention-fp16", make


def _host_descriptors() -> Iterator[Case]:
    """Triton's own specialization halves a tile, but not the box of a descriptor that is an argument.

    A copy writes twice what its buffer holds, and the barrier counts half of it. Later Tritons refuse such IR
    (triton-lang/triton issue 11587).
    """
    codes = frozenset(("bytes",))
    for head_dim, block_n, stages in ((64, 64, 2), (64, 64, 3), (64, 128, 3), (128, 64, 2)):
        make = partial(launches.triton_attention, head_dim=head_dim, block_n=block_n, stages=stages, ws=True, host=True)
        yield Case(f"triton-ws-attention-host-d{head_dim}-n{block_n}-s{stages}", make, "error", codes, "luck")
    make = partial(launches.triton_gemm, tile=(128, 128, 64), stages=3, ws=True, host=True)
    yield Case("triton-ws-gemm-host", make, "error", codes, "luck")
    make = partial(launches.triton_gemm, tile=(64, 128, 64), stages=3, ws=True, host=True)
    whole = frozenset(("barrier-setup",))  # one consumer: nothing is halved
    yield Case("triton-ws-gemm-host-whole", make, "error", whole, "luck")


# ------------------------------------------------------------------------------------------------- Gluon


def _gluon() -> Iterator[Case]:
    yield from _family("gluon-gemm", launches.specialized_gemm, GEMM_RIGHT, GEMM_FAULTS)
    yield from _family("gluon-attention", launches.specialized_attention, ATTENTION_RIGHT, ATTENTION_FAULTS)
    yield from _family("gluon-single", launches.single_gemm, SINGLE_RIGHT, SINGLE_FAULTS)
    yield from _family("gluon-pointers", launches.pointer_gemm, POINTERS_RIGHT, POINTERS_FAULTS)
    yield from _family("gluon-copied", partial(launches.pointer_gemm, specialized=True), COPIED_RIGHT, COPIED_FAULTS)
    yield from _family("gluon-persistent", launches.persistent_gemm, PERSISTENT_RIGHT, PERSISTENT_FAULTS)
    yield from _family("gluon-rows", launches.scale_rows, ROWS_RIGHT, ROWS_FAULTS)


def _family(
    name: str, make: Callable[..., Launch], right: dict[str, dict[str, Any]], faults: tuple[Fault, ...]
) -> Iterator[Case]:
    for suffix, needs in right.items():
        yield Case(f"{name}-{suffix}" if suffix else name, partial(make, **needs))
    for fault in faults:
        wrong = partial(make, fault=fault.name, **(fault.needs or {}))
        codes = frozenset(fault.codes.split())
        yield Case(f"{name}/{fault.name.replace(' ', '-')}", wrong, fault.verdict, codes, fault.card)


GEMM_RIGHT: dict[str, dict[str, Any]] = {
    "": {},
    "d1": {"depth": 1},
    "d4-lag": {"depth": 4, "lag": True},
    "two": {"consumers": 2},
    "two-lag": {"consumers": 2, "lag": True},
}
GEMM_FAULTS = (
    Fault("few bytes", "bytes unwritten arrivals", "luck"),
    Fault("many bytes", "bytes deadlock", "hang"),
    Fault("producer phase", "deadlock", "hang"),
    Fault("no acquire", "race arrivals", "luck"),
    Fault("consumer phase", "race unwritten phase", "wrong"),
    Fault("no wait", "race unwritten", "wrong"),
    Fault("ring index", "race unwritten", "wrong"),
    Fault("release before", "race", "luck"),
    Fault("release while running", "race", "luck", {"lag": True, "depth": 2}),
    Fault("no release", "deadlock", "hang"),
    Fault("one releases", "race", "luck", {"consumers": 2}),
    Fault("empty count", "deadlock", "hang"),
    Fault("full count", "deadlock", "hang"),
    Fault("result runs", "in-flight", "luck", {"lag": True}),
    Fault("no fence", "missing-fence", "luck"),
    Fault("no store wait", "in-flight", "luck"),
)

ATTENTION_RIGHT: dict[str, dict[str, Any]] = {
    "": {},
    "d1": {"depth": 1},
    "d3": {"depth": 3},
    "p": {"p_shared": True},
}
ATTENTION_FAULTS = (
    Fault("order", "deadlock", "hang", {"depth": 1}),
    Fault("no acquire", "race arrivals", "luck"),
    Fault("no q wait", "race unwritten in-flight", "luck"),
    Fault("early k release", "race", "luck", {"depth": 1}),
    Fault("early v release", "race", "luck", {"depth": 1}),
    Fault("no k release", "deadlock", "hang"),
    Fault("v phase", "race unwritten phase", "wrong"),
    Fault("no p fence", "missing-fence", "luck", {"p_shared": True}),
    Fault("shared p", "race", "wrong", {"p_shared": True}),
)

SINGLE_RIGHT: dict[str, dict[str, Any]] = {"": {}, "d2": {"depth": 2}, "d4": {"depth": 4}, "w8": {"warps": 8}}
SINGLE_FAULTS = (
    Fault("few bytes", "bytes unwritten arrivals", "luck"),
    Fault("phase", "race unwritten phase deadlock", "luck"),
    Fault("no wait", "race unwritten", "luck"),
    Fault("asks early", "race", "luck"),
    Fault("asks one further", "deadlock", "hang"),
    Fault("no fence", "missing-fence", "luck"),
)

# Whether the tensor core needs a proxy fence after cp.async the checker does not decide: Triton 3.6 does without.
POINTERS_RIGHT: dict[str, dict[str, Any]] = {"": {}, "d4": {"depth": 4}}
POINTERS_FAULTS = (
    Fault("waits for too few", "race unwritten", "luck"),
    Fault("copies early", "race unwritten", "wrong"),
    Fault("no commit", "race unwritten", "luck"),
    Fault("no fence", "missing-fence", "luck", verdict="undecided"),
)

COPIED_RIGHT: dict[str, dict[str, Any]] = {"": {}, "d2": {"depth": 2}}
COPIED_FAULTS = (
    Fault("no acquire", "race arrivals", "luck"),
    Fault("arrives early", "race unwritten", "wrong"),
    Fault("increments", "deadlock", "hang"),
    Fault("phase", "race unwritten phase", "wrong"),
    Fault("no fence", "missing-fence", "luck", verdict="undecided"),
    Fault("early release", "race", "luck"),
    Fault("no release", "deadlock", "hang"),
)

PERSISTENT_RIGHT: dict[str, dict[str, Any]] = {"": {}, "d2": {"depth": 2}}
PERSISTENT_FAULTS = (
    Fault("ring restarts", "race unwritten phase deadlock arrivals", "luck"),
    Fault("overwrites", "race", "luck"),
    Fault("no fence", "missing-fence", "luck", verdict="undecided"),
    Fault("store phase", "race unwritten phase arrivals", "wrong"),
    Fault("stores early", "race unwritten", "wrong"),
    Fault("frees early", "race", "luck"),
    Fault("never frees", "deadlock", "hang"),
)

ROWS_RIGHT: dict[str, dict[str, Any]] = {"": {}, "d1": {"depth": 1}, "d4": {"depth": 4}}
ROWS_FAULTS = (
    Fault("early release", "race", "luck"),
    Fault("no read fence", "missing-fence", "luck"),
    Fault("no write fence", "missing-fence", "luck"),
    Fault("overwrites", "race in-flight", "luck"),
)

CASES = {case.name: case for case in cases()}
