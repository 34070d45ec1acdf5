"""Products through pointers, written at random: rows that begin again, masks of all kinds, strides that do not fit.

`draw` writes a kernel as its author might, `same` runs it and its promoted form in the executor on launches drawn for
it. What the original may not do (read outside of its tensors) the promoted kernel need not do either.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tests.support.verified import specialize
from wspec import bridge
from wspec.api import offline
from wspec.execute.descriptor import Descriptor
from wspec.execute.errors import ExecutionError
from wspec.execute.launch import Kernel
from wspec.execute.memory import GlobalMemory
from wspec.execute.replay import ProgramError
from wspec.host_descriptors import Made, Promotion
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.options import Options
from wspec.passes.pointer_promotion.promote import Promoted, promote

NAMES = ("M", "N", "K", "sam", "sak", "sbk", "sbn", "scm", "scn", "saz", "start")
ROWS = ("{v}", "{v} % {end}", "tl.where({v} < {end}, {v}, 0)", "tl.minimum({v}, {end} - 1)", "({v}) % ({end} + 0)")
BEFORE = """import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, {names},
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
"""


@dataclass(frozen=True)
class Trap:
    """A kernel's source, and what of it a launch must know."""

    source: str
    transposed_a: bool
    transposed_b: bool
    batches: int


def draw(seed: int) -> Trap:
    """A kernel; equal seeds give equal ones."""
    pick = random.Random(seed)

    def chance(part: float) -> bool:
        return pick.random() < part

    def joined(parts: list[str]) -> str:
        return f", mask={' & '.join(f'({one})' for one in parts)}{other}" if parts else ""

    rows, columns = pick.choice(ROWS), pick.choice(ROWS)
    masked_rows, masked_columns = chance(0.4), chance(0.4)
    carried, wide, batched = chance(0.5), chance(0.3), chance(0.3)
    by_step = not carried and chance(0.4)
    other = pick.choice([", other=0.0"] * 6 + ["", ", other=1.0"])
    causal, above = chance(0.1), chance(0.25)
    unmasked = chance(0.2)
    lines = [
        "pid = tl.program_id(0)",
        "pm = pid // tl.cdiv(N, BN)",
        "pn = pid % tl.cdiv(N, BN)",
        "m = pm * BM + tl.arange(0, BM)",
        "n = pn * BN + tl.arange(0, BN)",
        f"rm = {rows.format(v='m', end='M')}",
        f"rn = {columns.format(v='n', end='N')}",
        "kk = tl.arange(0, BK)" + (" + start" if chance(0.15) else ""),
    ]
    if wide:
        lines += ["rm = rm.to(tl.int64)", "rn = rn.to(tl.int64)"]
    base = "a_ptr + tl.program_id(1) * saz" if batched else "a_ptr"
    a, b = f"{base} + rm[:, None] * sam + {{k}}[None, :] * sak", "b_ptr + {k}[:, None] * sbk + rn[None, :] * sbn"
    if carried:
        lines += [f"a_at = {a.format(k='kk')}", f"b_at = {b.format(k='kk')}"]
    lines.append("acc = tl.zeros((BM, BN), dtype=tl.float32)")
    loop = "for i in range(0, K, BK):" if by_step else "for i in range(0, tl.cdiv(K, BK)):"
    lines.append(loop)
    begin = "i" if by_step else "i * BK"
    more = random.Random(f"{seed}: an integer that the loop carries")  # of its own: the other kernels stay as they are
    counts = not carried and not by_step and more.random() < 0.5
    if counts:
        begin = "at"
        lines.insert(-1, more.choice(["at = 0", "at = tl.program_id(2).to(tl.int64)", "at = start - start"]))
    k = f"(kk + {begin})"
    left = pick.choice(
        [f"{{kk}} < K - {begin}", f"{begin} + {{kk}} < K", f"K > {{kk}} + {begin}", f"{{kk}} + {begin} <= K - 1"]
    )
    a_mask = [] if unmasked else [left.format(kk="kk[None, :]")]
    b_mask = [] if unmasked else [left.format(kk="kk[:, None]")]
    a_mask += ["m[:, None] < M"] * masked_rows + ["m[:, None] >= kk[None, :]"] * causal
    a_mask += [pick.choice(["m[:, None] >= 0", "m[:, None] > -1", "m[:, None] >= 3", "m[:, None] > 0"])] * above
    b_mask += ["n[None, :] < N"] * masked_columns
    where_a, where_b = ("a_at", "b_at") if carried else (a.format(k=k), b.format(k=k))
    lines += [f"    a = tl.load({where_a}{joined(a_mask)})", f"    b = tl.load({where_b}{joined(b_mask)})"]
    lines.append("    acc = tl.dot(a, b, acc)")
    if carried:
        step = pick.choice(["BK", "BK", "BK", "BK // 2", "i"])
        lines += [f"    a_at += {step} * sak", f"    b_at += {step} * sbk"]
    if counts:
        lines.append(f"    at += {more.choice(['BK', 'BK', 'BK', 'BK', 'BK // 2', 'i', 'K'])}")
    if chance(0.1):
        lines.append("acc = acc + tl.sum(acc, axis=0)[None, :]")
    if chance(0.2):
        lines.append("acc = tl.where(acc > 0, acc, 0.5 * acc)")
    stored = ["m[:, None] < M", "n[None, :] < N"]
    if chance(0.1):
        stored[pick.randrange(2)] = pick.choice(["m[:, None] < M - 1", "n[None, :] <= N", "m[:, None] < N"])
    base = "c_ptr + tl.program_id(1) * M * scm" if batched else "c_ptr"
    mask = joined(stored).split(", other")[0]
    lines.append(f"tl.store({base} + m[:, None] * scm + n[None, :] * scn, acc.to(tl.float16){mask})")
    body = "".join(f"    {line}\n" for line in lines)
    source = BEFORE.format(names=", ".join(NAMES)) + body
    return Trap(source, chance(0.3), chance(0.3), 2 if batched else 1)


def loaded(source: str, folder: Path, name: str) -> Any:
    """The kernel of a source, as a function of a module in that folder."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"traps_{name}", path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.kernel


@dataclass(frozen=True)
class Launch:
    """Tensors and numbers of one launch; the kernel writes to the third tensor."""

    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    numbers: Mapping[str, int]
    grid: tuple[int, int, int]
    blocks: tuple[int, int, int]
    tables: Mapping[str, torch.Tensor] = field(default_factory=dict)  # of integers that the kernel loads


def launch_of(trap: Trap, pick: random.Random, blocks: tuple[int, int, int]) -> Launch:
    """Sizes that fit the blocks or stick out, pitches that are multiples of 16 bytes or are not."""
    m, n, k = (pick.choice([1, side - 1, side, side + 1, 2 * side, 2 * side + 8]) for side in blocks)
    fresh = torch.Generator().manual_seed(pick.randrange(1 << 30))

    def matrix(rows: int, columns: int, copies: int = 1) -> tuple[torch.Tensor, int]:
        pitch = columns + pick.choice([-columns % 8, -columns % 8, -columns % 8, -columns % 8 + 8, 0, 1])
        length = copies * rows * pitch + 8
        return torch.randint(-3, 4, (length,), generator=fresh).half(), pitch

    a, pitch_a = matrix(k, m, trap.batches) if trap.transposed_a else matrix(m, k, trap.batches)
    b, pitch_b = matrix(n, k) if trap.transposed_b else matrix(k, n)
    c, pitch_c = matrix(m, n, trap.batches)
    numbers = {
        "M": m, "N": n, "K": k, "sam": 1 if trap.transposed_a else pitch_a, "sak": pitch_a if trap.transposed_a else 1,
        "sbk": 1 if trap.transposed_b else pitch_b, "sbn": pitch_b if trap.transposed_b else 1, "scm": pitch_c,
        "scn": 1, "saz": pitch_a * (k if trap.transposed_a else m), "start": pick.choice([0, 0, 8, 3]),
    }  # fmt: skip
    grid = -(-m // blocks[0]) * -(-n // blocks[1]), trap.batches, 1
    return Launch((a, b, c), numbers, grid, blocks)


def lowered(kernel: Any, launch: Launch) -> Operation:
    """The kernel's module before it is promoted, for the values of a launch as Triton specializes them."""

    def hint(value: int) -> str:
        return "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"

    types = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16:16")
    types |= {name: f"*{str(table.dtype).replace('torch.int', 'i')}:16" for name, table in launch.tables.items()}
    types |= {name: hint(value) for name, value in launch.numbers.items()}
    made = offline(kernel, types, dict(zip(("BM", "BN", "BK"), launch.blocks, strict=True)), num_warps=4, num_stages=2)
    return read(bridge.lower(made.source)[1])


def arguments(launch: Launch) -> list[Any]:
    """What the compiled function takes: ones are constants of it."""
    tensors = [tensor.clone() for tensor in (*launch.tensors, *launch.tables.values())]
    return [*tensors, *(v for v in launch.numbers.values() if v != 1)]


def executed(module: Operation, launch: Launch, promotion: Promotion | None) -> torch.Tensor | str | None:
    """What comes to stand in the third tensor; None where the kernel may not run so; why it would not be promoted."""
    given = arguments(launch)
    memory = GlobalMemory()
    if promotion is not None:
        values = {at: value for at, value in enumerate(given) if isinstance(value, int)}
        made = promotion.of(launch.grid, values)
        if isinstance(made, str):
            return made
        given += described(promotion, made, given, memory)
    try:
        Kernel(module).run(launch.grid, given, memory=memory)
    except (ExecutionError, ProgramError):
        return None
    result = given[2]
    assert isinstance(result, torch.Tensor)
    return result


def described(
    promotion: Promotion, made: Sequence[Made], given: Sequence[Any], memory: GlobalMemory
) -> list[Descriptor]:
    """The descriptors, as the executor has them."""
    return [
        Descriptor(memory.register(given[one.argument], "") + at.offset, at.shape, at.strides, one.block, torch.float16)
        for one, at in zip(promotion.descriptors, made, strict=True)
    ]


@dataclass
class Count:
    """What became of kernels and launches."""

    kernels: int = 0
    promoted: int = 0
    loads: int = 0
    launches: int = 0
    compared: int = 0
    guarded: int = 0
    wrong: int = 0
    specialized: int = 0  # launches in which the specialized kernel was compared too
    left: dict[str, int] = field(default_factory=dict)  # why tiles stay pointers
    guards: dict[str, int] = field(default_factory=dict)  # why a launch runs the plain kernel


def same(seed: int, folder: Path, count: Count, launches: int = 3) -> list[str]:
    """Differences between a drawn kernel and its promoted form, in launches drawn for it."""
    trap, pick = draw(seed), random.Random(seed + 1)
    kernel = loaded(trap.source, folder, f"n{seed}")
    blocks = list(itertools.product((64,), (32, 64), (32, 64)))
    drawn = [launch_of(trap, pick, pick.choice(blocks)) for _ in range(launches)]
    return [f"seed {seed}, {found}\n{trap.source}" for found in differences(kernel, drawn, count)]


OPTIONS = Options(gate="off", persistent=False)


def differences(kernel: Any, launches: Sequence[Launch], count: Count, divided: bool = False) -> list[str]:
    """The launches in which a kernel and its promoted form differ; or where it is `divided` into tasks as well.

    Tensors hold small integers, so that no sum is rounded.
    """
    count.kernels += 1
    found: list[str] = []
    promoted_once = False
    for number, launch in enumerate(launches):
        plain = lowered(kernel, launch)
        changed = plain.clone({})
        made: Promoted = promote(changed)
        for _, why in made.left:
            count.left[why] = count.left.get(why, 0) + 1
        count.launches += 1
        if made.promotion is None:
            continue
        promoted_once = True
        count.loads += len(made.done)
        after = executed(changed, launch, made.promotion)
        if isinstance(after, str):
            count.guarded += 1
            count.guards[after] = count.guards.get(after, 0) + 1
            continue
        before = executed(plain, launch, None)
        if before is None:
            continue
        count.compared += 1
        assert isinstance(before, torch.Tensor)
        if divided and (outcome := specialize(plain, OPTIONS)).module is not None:
            count.specialized += 1
            found_too = executed(outcome.module, launch, outcome.promotion)
            after = found_too if isinstance(found_too, torch.Tensor) and torch.equal(found_too, before) else None
        if after is None or not torch.equal(before.view(torch.int16), after.view(torch.int16)):
            count.wrong += 1
            tables = {name: table.tolist() for name, table in launch.tables.items()}
            found.append(f"launch {number}: {dict(launch.numbers)} {tables}, blocks {launch.blocks}")
    count.promoted += promoted_once
    return found
