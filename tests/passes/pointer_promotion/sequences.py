"""Products whose rows, columns of the reduction, experts and pages are numbers in memory, written at random.

Sequences that are empty, overlap or end inside of a tile; masks with one end more; pages and experts out of range that
a mask leaves out; numbers at which nothing can begin. `traps` has the products whose numbers are arguments. Offsets of
loaded numbers fit into the bits that they are computed in, which is taken for granted: where no mask leaves out experts
that do not exist, these are 64.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch

from tests.passes.pointer_promotion.traps import Count, Launch, differences, loaded

MOST = (1 << 31) - 1
PLACES = 4  # numbers in the table for each sequence: first row, rows, expert, columns of the reduction
BEFORE = """import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, t_ptr, p_ptr, N, K, total, pages, sam, sbe, sbk, scm, scz,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
"""


def draw(seed: int) -> str:
    """A kernel's source; equal seeds give equal ones."""
    pick = random.Random(seed)

    def chance(part: float) -> bool:
        return pick.random() < part

    wide = chance(0.4)
    paged, by_end, ended, own_k = chance(0.4), chance(0.4), chance(0.3), chance(0.25)
    guarded = paged or chance(0.4)  # an expert or page may be none
    lines = ["z = tl.program_id(1)"]
    for at, name in enumerate(("first", "length", "expert", "depth")):
        widened = wide or (name == "expert" and not guarded)
        lines.append(f"{name} = tl.load(t_ptr + {PLACES} * z + {at})" + (".to(tl.int64)" if widened else ""))
    if by_end:
        lines += ["end = first + length", "length = end - first"]
    lines += ["pm = tl.program_id(0) // tl.cdiv(N, BN)", "pn = tl.program_id(0) % tl.cdiv(N, BN)"]
    if chance(0.3):
        lines += ["if pm * BM >= length:", "    return"]
    lines += ["m = pm * BM + tl.arange(0, BM)", "n = pn * BN + tl.arange(0, BN)", "kk = tl.arange(0, BK)"]
    depth = "depth" if own_k else "K"
    rows = pick.choice(
        ["(first + m)[:, None] * sam", "first * sam + m[:, None] * sam", "(first * sam + m * sam)[:, None]"]
    )
    if chance(0.1):  # a number of elements, of which nobody knows what it is a multiple of
        rows = "expert * 8 + m[:, None] * sam"
    if chance(0.1):
        rows = "(first + m % length)[:, None] * sam"
    inside = pick.choice(["m[:, None] < length", "length > m[:, None]", "m[:, None] <= length - 1"])
    if by_end and chance(0.5):
        inside = "first + m[:, None] < end"
    seen = [inside] * (not chance(0.15))
    more = ["(first + m)[:, None] < total", "m[:, None] < total"]
    seen += [pick.choice(more)] if ended else []
    seen += [pick.choice(["m[:, None] >= 0", "m[:, None] >= 1", "m[:, None] >= first"])] * chance(0.1)
    columns = [] if chance(0.1) else [f"k[None, :] < {depth}"]
    behind = f"k[:, None] < {depth}"
    which = "page" if paged else "expert"
    valid = [pick.choice([f"({which} >= 0)", f"({which} >= 0) & ({which} < pages)"])] * guarded
    if chance(0.2):
        seen = [f"tl.where({one}, 1, 0).to(tl.int1)" for one in seen]
    other = pick.choice([", other=0.0"] * 8 + [", other=1.0"])
    a_mask = " & ".join(f"({one})" for one in (*seen, *columns))
    b_mask = " & ".join(f"({one})" for one in (behind, *["n[None, :] < N"] * (not chance(0.2)), *valid))
    a_mask = f", mask={a_mask}{other}" if a_mask else ""
    lines.append("acc = tl.zeros((BM, BN), dtype=tl.float32)")
    lines.append(f"for i in range(0, tl.cdiv({depth}, BK)):")
    lines.append("    k = i * BK + kk")
    if paged:
        lines.append("    page = tl.load(p_ptr + z * 8 + i)" + (".to(tl.int64)" if wide else ""))
        b = "b_ptr + page * sbe + kk[:, None] * sbk + n[None, :]"
    else:
        b = "b_ptr + expert * sbe + k[:, None] * sbk + n[None, :]"
    lines.append(f"    a = tl.load(a_ptr + {rows} + k[None, :]{a_mask})")
    lines.append(f"    b = tl.load({b}, mask={b_mask}, other=0.0)")
    lines.append("    acc = tl.dot(a, b, acc)")
    stored = [pick.choice([inside, inside, "m[:, None] < length"]), "n[None, :] < N"]
    where = pick.choice(["z * scz + m[:, None] * scm", "z * scz + (first + m)[:, None] * scm"])
    mask = " & ".join(f"({one})" for one in stored)
    lines.append(f"tl.store(c_ptr + {where} + n[None, :], acc.to(tl.float16), mask={mask})")
    return BEFORE + "".join(f"    {line}\n" for line in lines)


def launch_of(pick: random.Random) -> Launch:
    """Sequences of all lengths, tables with numbers that no tensor has, pitches that fit and that do not."""
    blocks = 64, pick.choice((32, 64)), pick.choice((32, 64))
    count, n, k = 3, pick.choice((blocks[1], 2 * blocks[1] + 8)), pick.choice((blocks[2], 2 * blocks[2] + 8))
    lengths = [pick.choice((0, 1, 63, 64, 65, 136)) for _ in range(count)]
    firsts, rows = [], 0
    for length in lengths:
        firsts.append(rows if pick.random() < 0.7 else pick.randrange(rows + 1))
        rows = max(rows, firsts[-1] + length)
    experts, pages = 3, 5
    wrong = (-1, -7, experts, MOST, -MOST - 1)

    def one_of(valid: int) -> int:
        return pick.choice(wrong) if pick.random() < 0.2 else pick.randrange(valid)

    numbers = [
        (first, length if pick.random() < 0.9 else pick.choice((MOST, -MOST - 1, -5)), one_of(experts),
         pick.choice((0, 8, k, k, k - 1)))
        for first, length in zip(firsts, lengths, strict=True)
    ]  # fmt: skip
    table = torch.tensor(numbers, dtype=pick.choice((torch.int32, torch.int64))).reshape(-1)
    listed = torch.tensor([[one_of(pages) for _ in range(8)] for _ in range(count)], dtype=torch.int32).reshape(-1)
    fresh = torch.Generator().manual_seed(pick.randrange(1 << 30))

    def memory(length: int) -> torch.Tensor:
        return torch.randint(-3, 4, (length,), generator=fresh).half()

    def pitch(columns: int) -> int:
        return max(columns + -columns % 8, pick.choice((128, 128, 128, 0))) + pick.choice((*[0] * 12, 8, 8, 1))

    sam, sbk, scm = pitch(k), pitch(n), pitch(n)
    deep = max(k, blocks[2])
    total = pick.choice((rows, rows, max(rows - 3, 0), MOST))
    tensors = memory((rows + 200) * sam), memory(pages * deep * sbk), memory(count * (rows + 200) * scm)
    sizes = {
        "N": n, "K": k, "total": total, "pages": pages, "sam": sam, "sbe": deep * sbk, "sbk": sbk, "scm": scm,
        "scz": (rows + 200) * scm,
    }  # fmt: skip
    grid = -(-max(136, 64) // blocks[0]) * -(-n // blocks[1]), count, 1
    return Launch(tensors, sizes, grid, blocks, {"t_ptr": table, "p_ptr": listed})


def same(seed: int, folder: Path, count: Count, launches: int = 3, divided: bool = False) -> list[str]:
    """Differences between a drawn kernel and its promoted form, in launches drawn for it; and its specialized form."""
    source, pick = draw(seed), random.Random(seed + 1)
    kernel = loaded(source, folder, f"s{seed}")
    drawn = [launch_of(pick) for _ in range(launches)]
    return [f"seed {seed}, {found}\n{source}" for found in differences(kernel, drawn, count, divided)]
