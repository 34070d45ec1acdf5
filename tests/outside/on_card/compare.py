"""Are two results of a kernel the same numbers?

Compared is all memory that a launch could reach, each element by itself. Bits are equal, or differences are of the size
that rounding explains, or the plain kernel differs as much from itself when it runs twice, or they are different.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Verdict = Literal["equal", "rounding", "races", "close", "different", "no information"]
"""races: the plain kernel differs as much from itself. close: 32 bits that agree as far as 16 bits would. no
information: the plain kernel wrote nothing that is a finite number other than 0."""

WORST: tuple[Verdict, ...] = ("no information", "equal", "rounding", "races", "close", "different")

CHUNK = 1 << 24  # elements looked at together
ROUNDING = {
    torch.float64: 2.0**-40, torch.float32: 2.0**-16, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6,
    torch.float8_e4m3fn: 2.0**-2, torch.float8_e5m2: 2.0**-1,
}  # fmt: skip
"""Of a type: the largest difference, over the sum of what is expected and its root mean square, that rounding explains.
Two units in the last place of a result; for 32 bits what another order of some thousand additions gives."""

CLOSE = 2.0**-7
"""For 32 bits: what one operand of 16 bits that is rounded the other way can do."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one tensor or of several: how far ours is from the plain kernel's."""

    verdict: Verdict
    written: int = 0  # elements that the plain kernel changed
    informative: int = 0  # of these, finite and not 0
    unequal: int = 0  # elements whose bits differ
    largest: float = 0.0  # difference over expected plus root mean square; inf where one of the two is a number
    noise: float = 0.0  # the same of two runs of the plain kernel


def agreement(before: Tensor, plain: Tensor, again: Tensor, ours: Tensor) -> Agreement:
    """What four flat tensors of one type and length say: memory as it was, after the plain kernel, after the plain
    kernel once more from the same start, and after ours."""
    written = informative = unequal = 0
    largest = noise = 0.0
    scale = _root_mean_square(plain, before)
    for at in range(0, plain.numel(), CHUNK):
        part = slice(at, at + CHUNK)
        was, expected, second, got = (_bits(one[part]) for one in (before, plain, again, ours))
        changed = was != expected
        written += int(changed.sum())
        informative += int((changed & _tells(plain[part])).sum())
        for found, other in ((got, ours), (second, again)):
            differs = found != expected
            count = int(differs.sum())
            if not count:
                continue
            far = _distance(*(one.view(-1)[differs].view(plain.dtype) for one in (expected, _bits(other[part]))), scale)
            if other is ours:
                unequal, largest = unequal + count, max(largest, far)
            else:
                noise = max(noise, far)
    limit = ROUNDING.get(plain.dtype, 0.0)
    verdict: Verdict
    if not unequal or largest == 0.0:
        verdict = "equal" if informative else "no information"
    elif largest <= limit:
        verdict = "rounding"
    elif largest <= 2 * noise:
        verdict = "races"
    elif plain.dtype == torch.float32 and largest <= CLOSE:
        verdict = "close"
    else:
        verdict = "different"
    return Agreement(verdict, written, informative, unequal, largest, noise)


def together(found: Sequence[Agreement]) -> Agreement:
    """Of all tensors of a launch: the worst of them; those that were not written say nothing."""
    if not found:
        return Agreement("no information")
    verdict = max((one.verdict for one in found), key=WORST.index)
    return Agreement(
        verdict,
        sum(one.written for one in found),
        sum(one.informative for one in found),
        sum(one.unequal for one in found),
        max(one.largest for one in found),
        max(one.noise for one in found),
    )


def _bits(tensor: Tensor) -> Tensor:
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(kinds[tensor.element_size()]) if tensor.dtype != torch.bool else tensor.to(torch.int8)


def _tells(tensor: Tensor) -> Tensor:
    """Which elements are finite and not 0."""
    if not tensor.is_floating_point():
        return torch.ones_like(tensor, dtype=torch.bool)
    values = tensor.float()
    return values.isfinite() & (values != 0)


def _root_mean_square(plain: Tensor, before: Tensor) -> float:
    """Of the finite elements that were written."""
    if not plain.is_floating_point():
        return 0.0
    total, count = 0.0, 0
    for at in range(0, plain.numel(), CHUNK):
        part = slice(at, at + CHUNK)
        values = plain[part].float()
        kept = values[(_bits(plain[part]) != _bits(before[part])) & values.isfinite()]
        total, count = total + float(kept.double().square().sum()), count + kept.numel()
    return float((total / max(1, count)) ** 0.5)


def _distance(expected: Tensor, found: Tensor, scale: float) -> float:
    """The largest difference over what is expected and the scale; NaN is equal to NaN, and infinities to themselves.

    Integers are equal or infinitely far.
    """
    if not expected.is_floating_point():
        return float("inf") if bool((expected != found).any()) else 0.0
    one, other = expected.double(), found.double()
    same = (one == other) | (one.isnan() & other.isnan())
    apart = ((one - other).abs() / (one.abs() + scale)).masked_fill(same, 0.0)
    return float(apart.nan_to_num(float("inf"), float("inf")).max())


Memory = dict[int, Tensor]
"""Every piece of memory that tensors of a launch lie in, by its address: flat, of the type of the tensors."""


def memory_of(tensors: Sequence[Tensor]) -> Memory:
    """Where these tensors lie: whole storages, of the type of the first tensor in them."""
    found: Memory = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address and address not in found:
            length = storage.nbytes() // tensor.element_size()
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            found[address] = flat.set_(storage, 0, (length,), (1,))
    return found


def compared(memory: Memory, plain: Callable[[], object], ours: Sequence[Callable[[], object]]) -> list[Agreement]:
    """Run the plain kernel twice, then each of the others, always from the same memory; how far each is from the first.

    Leaves what the plain kernel wrote. A call that raises leaves memory as it was.
    """
    before = {address: flat.clone() for address, flat in memory.items()}
    try:
        first = _changed(memory, before, plain)
        second = _changed(memory, before, plain)
        results = []
        for other in ours:
            third = _changed(memory, before, other)
            touched = {*first, *second, *third}
            results.append(
                together([
                    agreement(*(state.get(at, before[at]) for state in (before, first, second, third)))
                    for at in touched
                ])
            )  # fmt: skip
            del third
    except BaseException:
        _restore(memory, before)
        raise
    for address, flat in first.items():
        memory[address].copy_(flat)
    return results


def _changed(memory: Memory, before: Memory, run: Callable[[], object]) -> Memory:
    """What a run changed, which is then undone."""
    run()
    found = {address: flat.clone() for address, flat in memory.items() if not _same(flat, before[address])}
    _restore({address: memory[address] for address in found}, before)
    return found


def _same(one: Tensor, other: Tensor) -> bool:
    return all(torch.equal(_bits(one[at : at + CHUNK]), _bits(other[at : at + CHUNK]))
               for at in range(0, one.numel(), CHUNK))  # fmt: skip


def _restore(memory: Memory, before: Memory) -> None:
    for address, flat in memory.items():
        flat.copy_(before[address])
