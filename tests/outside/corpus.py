"""`python -m tests.outside.corpus FOLDER`: what wspec makes of other people's kernels, compiled and not run.

FOLDER holds modules as they stand right before Triton's own pipeliner (`*.pre.ttgir`, in folders), beside the TTIR that
they were made of (`*.ttir`), of which Triton compiles the plain kernel to count spills. Every kernel has a process and
a limit of its own. Those without a product on the tensor core are passed over. Exits with 1 if one crashes or takes too
long.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wspec.ir.core import Operation

LIMIT_S = 240.0  # by the clock, which other work on the machine stretches
DOT = "warp_group_dot"
LOOPS = ("scf.for", "scf.while")


@dataclass
class Row:
    """What became of one kernel."""

    name: str
    in_loop: bool = False
    kind: str = ""
    verdict: str = "crashed"  # "specialized", the code of the reason, "crashed" or "too slow"
    why: str = ""
    where: str = ""  # the line of the module that the reason names
    promoted: int = 0
    pointers: int = 0  # tiles that stay pointers
    operands: int = 0  # tiles that come through pointers and go to products
    boxes: int = 0  # of those that became boxes of descriptors
    proof: str = ""
    spills: int = 0  # bytes
    plain_spills: int = 0
    seconds: float = 0.0  # of processor time, ptxas and nvdisasm included

    @property
    def is_specialized(self) -> bool:
        return self.verdict == "specialized"

    @property
    def is_good(self) -> bool:
        """Specialized, proved, and without spills beyond the plain kernel's."""
        return self.is_specialized and self.spills <= self.plain_spills


def judged(path: Path, gate: str) -> Row:
    """Compile one module to a cubin, in this process."""
    from triton.compiler import make_backend

    from wspec import bridge, ir
    from wspec.bridge import cache
    from wspec.bridge.compile import compile_lowered
    from wspec.bridge.files import Elsewhere
    from wspec.bridge.frontend import HOPPER, KernelSource
    from wspec.bridge.plain import PlainSpills
    from wspec.bridge.sass.ptxas_log import spill_bytes
    from wspec.bridge.text import reparse
    from wspec.ir.loc import FileLoc
    from wspec.options import Options
    from wspec.proof import prove
    from wspec.verdict import Judge

    row = Row(name_of(path))
    module = bridge.for_back_end(ir.read(bridge.generic_text(reparse(path.read_text()))))
    text = ir.print_module(module)
    dots = [op for op in module.walk() if DOT in op.name]
    row.in_loop = any(one.name in LOOPS for dot in dots for one in dot.ancestors())
    row.kind = kind_of(dots)
    row.operands, row.boxes = operands_of(text)
    launch = {"num_warps": module.int_attr("ttg.num-warps") or 4, "num_stages": stages_of(path)}
    source = KernelSource(
        Elsewhere(path.name.split(".")[0], FileLoc(str(path), 1, 0), (str(path),)),
        make_backend(HOPPER).parse_options(launch), HOPPER,
    )  # fmt: skip
    options = Options(gate=gate)
    ttir = path.with_name(path.name.replace(".pre.ttgir", ".ttir"))
    before = ttir.read_text() if ttir.exists() else ""
    key = cache.sha256(str(path))
    result, _ = compile_lowered(source, before, text, options, Judge(options), prove, key)
    row.verdict = "specialized" if result.specialized else result.reason.code if result.reason else "unknown"
    row.why = "" if result.specialized or result.reason is None else result.reason.message
    row.where = "" if result.specialized or result.reason is None else str(result.reason.location).rpartition("/")[2]
    row.pointers = sum(remark.code == "not-promoted" for remark in result.remarks)
    if result.promotion is not None:
        row.promoted = len(result.promotion.descriptors)
    row.proof, row.spills = result.proof, spill_bytes(result.ptxas_log)
    row.seconds = sum(os.times()[:4])
    if result.specialized and row.spills:
        row.plain_spills = PlainSpills(source, before).bytes
    return row


def kind_of(dots: Sequence[Operation]) -> str:
    """What the kernel's products are like."""
    around = {dot: [one for one in dot.ancestors() if one.name in LOOPS] for dot in dots}
    hot = list(dict.fromkeys(loops[0] for loops in around.values() if loops))
    if not hot:
        return "products, no loop"
    if any(len(loops) > 1 for loops in around.values()):
        return "loops in loops"
    if len(hot) > 1:
        return "several loops"
    inside = [dot for dot, loops in around.items() if loops]
    if len(inside) == 1:
        return "one product in a loop"
    return f"{'two or three' if len(inside) < 4 else 'four or more'} products in a loop"


def operands_of(text: str) -> tuple[int, int]:
    """The tiles of a module that come through pointers and go to products, and those of them that become boxes."""
    from wspec import ir
    from wspec.diagnostics import Declined
    from wspec.options import Options
    from wspec.pipeline import prepare
    from wspec.plan.graph import Dataflow
    from wspec.plan.partition import feeds_dot
    from wspec.planner.decide import function_of

    module = ir.read(text)
    try:
        promoted = prepare(module, Options())
        flow = Dataflow(function_of(module))
    except Declined:
        return 0, 0
    left = sum(bool(op.results) and feeds_dot(flow, op) for op, _ in promoted.left)
    done = sum(bool(op.results) and feeds_dot(flow, op) for op in promoted.done)
    return left + done, done


def stages_of(path: Path) -> int:
    """The kernel's num_stages, which the plain one is pipelined with."""
    told = path.with_name("result.json")
    kernels = json.loads(told.read_text())["kernels"] if told.exists() else []
    stem = path.name.removesuffix(".pre.ttgir")
    return next((int(one["num_stages"]) for one in kernels if one.get("stem") == stem), 3)


def name_of(path: Path) -> str:
    """entry/kernel."""
    return f"{path.parent.name}/{path.name.removesuffix('.pre.ttgir')}"


def apart(path: Path, gate: str) -> Row:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "tests.outside.corpus", "--one", str(path), "--gate", gate]
        try:
            done = subprocess.run(
                command, env={**os.environ, "TRITON_CACHE_DIR": cache}, capture_output=True, text=True, timeout=LIMIT_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Row(name_of(path), verdict="too slow", seconds=LIMIT_S)
    if done.returncode != 0:
        return Row(name_of(path), why=(done.stderr.strip().splitlines() or ["no message"])[-1])
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def shown(rows: Sequence[Row], screen: Console) -> None:
    """The table, and totals."""
    table = Table("kernel", "loop", "verdict", "boxes", "pointers", "spills (plain)", "s", "why", box=None)
    for row in rows:
        spills = f"{row.spills} ({row.plain_spills})" if row.spills else ""
        table.add_row(
            row.name, "yes" if row.in_loop else "", row.verdict, str(row.promoted or ""), str(row.pointers or ""),
            spills, f"{row.seconds:.1f}", f"{row.where} {row.why}"[:90],
        )  # fmt: skip
    screen.print(table)
    for title, part in (("wgmma in a loop", [row for row in rows if row.in_loop]), ("all with wgmma", list(rows))):
        screen.print(f"{title}: {_share(part)}")
    by_kind = Table("kind", "kernels", "specialized and proved", "without more spills", "operands", "boxes", box=None)
    for kind in sorted({row.kind for row in rows}):
        part = [row for row in rows if row.kind == kind]
        counts = (sum(row.is_specialized for row in part), sum(row.is_good for row in part))
        tiles = (sum(row.operands for row in part), sum(row.boxes for row in part))
        by_kind.add_row(kind, str(len(part)), *map(str, (*counts, *tiles)))
    screen.print(by_kind)
    operands, boxes = sum(row.operands for row in rows), sum(row.boxes for row in rows)
    screen.print(f"tiles through pointers that go to products: {boxes} of {operands} became boxes")
    screen.print(", ".join(f"{code} {count}" for code, count in Counter(row.verdict for row in rows).most_common()))


def _share(rows: Iterable[Row]) -> str:
    rows = list(rows)
    specialized, good = sum(row.is_specialized for row in rows), sum(row.is_good for row in rows)
    return f"{specialized} of {len(rows)} specialized and proved, {good} without spills beyond the plain kernel's"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside.corpus", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the modules are")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gate", default="off", help="off: all that can be specialized; model: what should pay")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the rows there too")
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(asdict(judged(given.one, given.gate))))
        return 0
    if given.folder is None or not given.folder.is_dir():
        parser.error("FOLDER must be a folder with *.pre.ttgir")
    paths = [path for path in sorted(given.folder.rglob("*.pre.ttgir")) if DOT in path.read_text()]
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(lambda path: apart(path, given.gate), paths))
    shown(rows, Console(width=200))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return int(any(row.verdict in ("crashed", "too slow", "internal-error") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
