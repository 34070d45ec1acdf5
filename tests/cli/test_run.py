"""`wspec run`: kernels on the CPU, from examples and from random tensors; failures that come back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from tests.check.script import kernel
from tests.cli.helpers import ATTENTION, ELEMENTWISE, KERNEL, done, refused, wspec
from tests.support.goldens import ROOT
from wspec.cli.run_command import given_memory
from wspec.execute import Kernel, ProgramError
from wspec.ir import print_module, read

D64 = (ATTENTION, "--variant", "d64")
SMALL = ("--sizes", "seqlen_q=64, seqlen_k=200, heads=1", "--seeds", "1")
MATMUL = f"{ROOT}/kernels/matmul.py:matmul_descriptor_kernel"
EVERYTHING = (
    "q_desc=1x1x64x64, k_desc=1x1x200x64, v_desc=1x1x200x64, o_desc=1x1x64x64, lse_ptr=64, scale_log2=0.18, "
    "seqlen_q=64, seqlen_k=200, heads=1, group=1"
)


def rows(out: str) -> dict[str, list[str]]:
    """Of the table: kernel -> the rest of its first row."""
    cells = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) > 8 and row[0] != "kernel" and row[0]}


def test_plain_and_specialized_are_compared() -> None:
    out = done("run", *D64, *SMALL)
    found = rows(out)
    assert found["plain"][0] == "1" and found["specialized, random"][0] == "2"
    assert int(found["specialized, adversarial"][0]) > 6
    _, output, error, relative, bound, share, operations, choices, seconds = found["specialized, random"]
    assert output == "o_desc" and 0 < float(error) <= float(bound) and 0 < float(share) < 1
    assert 0 < float(relative) < 0.1 and int(operations) > 100 and int(choices) > 10 and float(seconds) >= 0
    assert "specialized against plain: the same bits" in out and "wrong" not in out


def test_what_to_run() -> None:
    assert set(rows(done("run", *D64, *SMALL, "--plain-only"))) == {"plain"}
    only = done("run", *D64, *SMALL, "--specialized-only", "--schedule", "random")
    assert set(rows(only)) == {"specialized, random"} and "against plain" not in only
    assert set(rows(done("run", *D64, *SMALL, "--schedule", "first"))) == {"plain", "specialized, in order"}


def test_a_kernel_that_is_left_alone_runs_plain() -> None:
    out = done("run", f"{ELEMENTWISE}:add_kernel", "--seeds", "2")
    assert "left as it was" in out and "[no-loop]" in out and rows(out)["plain"][:2] == ["2", "out_ptr"]
    message = refused("run", f"{ELEMENTWISE}:add_kernel", "--specialized-only")
    assert "there is no specialized kernel of add_kernel to run" in message


def test_the_compilers_options_count() -> None:
    out = done("run", MATMUL, "--gate", "off", "--depth", "1", "--seeds", "1", "--schedule", "random")
    assert "c_desc" in out and "specialized, random" in rows(out)


def test_arguments_that_were_compiled_in_are_left_out() -> None:
    out = done("run", f"{ROOT}/kernels/matmul.py:matmul_pointer_kernel", "--seeds", "1", "--sizes", "m=32,n=32,k=64")
    assert rows(out)["plain"][1] == "c_ptr"


# ------------------------------------------------------------------------------------------------- failures


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The specialized kernel without the wait for V in its main loop."""
    module = read(done("dump", *D64, "--stage", "specialized"))
    waits = [op for op in module.walk() if op.name == "ttng.wait_barrier"]
    inside = [op for op in waits if op.parent_op is not None and op.parent_op.name == "scf.for"]
    loops = [op for op in module.walk() if op.name == "scf.for" and any(wait.parent_op is op for wait in inside)]
    main = next(op for op in loops if not any(inner is not op and inner.name == "scf.for" for inner in op.walk()))
    [wait for wait in inside if wait.parent_op is main][1].erase()
    path = tmp_path_factory.mktemp("broken") / "broken.ttgir"
    path.write_text(print_module(module))
    return path


def test_a_failure_is_written_and_comes_back(broken: Path, tmp_path: Path) -> None:
    sizes = EVERYTHING.replace("200", "512")
    record = tmp_path / "failure.json"
    said = wspec("run", str(broken), "--random", "--sizes", sizes, "--record", str(record))
    assert said.code == 1 and "error: ttng.warp_group_dot reads v[" in said.err and "being filled by a copy" in said.err
    assert f"note: to replay: the same command with --replay {record} (specialized kernel, seed 0)" in said.err
    kept = json.loads(record.read_text())
    assert kept["kernel"] == "specialized" and kept["program"] == [0, 0, 0] and kept["choices"][-1] > 0
    again = wspec("run", str(broken), "--random", "--replay", str(record))
    assert again.code == 1 and "error: ttng.warp_group_dot reads v[" in again.err
    assert "examples.attention has no size 'q_desc'" in refused("run", *D64, "--replay", str(record))


def test_a_replay_that_does_not_fail(tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    sizes = {"seqlen_q": 64, "seqlen_k": 100, "heads": 1}
    data = {"kernel": "specialized", "seed": 3, "sizes": sizes, "program": [0, 0, 0], "choices": [1, 1, 1]}
    path.write_text(json.dumps(data))
    assert "no failure: 1 programs" in done("run", *D64, "--replay", str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "a replay is a JSON object with program and choices"),
        ("[", "replay.json"),
        ('{"program": [0, 0, 0], "choices": []}', "a replay says which kernel, seed and sizes it is of"),
    ],
)
def test_replays_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    path.write_text(text)
    assert message in refused("run", *D64, "--replay", str(path))


def test_wrong_numbers_are_an_error(tmp_path: Path) -> None:
    """An example whose reference is another function."""
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "k.py").write_text(
        "import torch\nimport triton\nimport triton.language as tl\nfrom types import SimpleNamespace\n\n\n"
        "@triton.jit\ndef double(x_ptr, BLOCK: tl.constexpr):\n    at = x_ptr + tl.arange(0, BLOCK)\n"
        "    tl.store(at, tl.load(at) * 2)\n\n\n"
        "def triple(types, constexprs, seed, *, factor=3):\n"
        "    x = torch.ones(constexprs['BLOCK'])\n"
        "    out = SimpleNamespace(tensor=x, expected=x.double() * factor, bound=x.double() * 0.125)\n"
        "    return SimpleNamespace(grid=(1,), arguments={'x_ptr': x}, outputs={'x_ptr': out})\n"
    )
    (folder / "k.toml").write_text(
        '[double.small]\nexample = "triple"\nconstexprs = { BLOCK = 16 }\nsignature = { x_ptr = "*fp32:16" }\n'
    )
    said = wspec("run", f"{folder}/k.py:double", "--seeds", "1")
    assert said.code == 1 and "wrong: x_ptr of the plain kernel is off by 1 at [0], where 0.125 is allowed" in said.out
    assert done("run", f"{folder}/k.py:double", "--seeds", "1", "--sizes", "factor=2")


# --------------------------------------------------------------------------------------------------- random


def test_random_tensors(tmp_path: Path) -> None:
    path = tmp_path / "plain.ttgir"
    path.write_text(done("dump", *D64, "--stage", "ttgir"))
    out = done("run", str(path), "--random", "--sizes", EVERYTHING, "--seeds", "1", "--schedule", "random")
    assert "errors against the plain kernel" in out and "specialized against plain: the same bits, 2 runs" in out
    assert "q_desc" not in out, "only what the kernel writes"
    assert rows(out)["specialized, random"][1:3] == ["o_desc", "0"]


def test_a_module_needs_to_be_told() -> None:
    text = done("dump", *D64, "--stage", "ttgir")
    assert "error: - has no example of inputs" in wspec("run", "-", stdin=text).err
    said = wspec("run", "-", "--random", stdin=text)
    assert said.code == 2 and "--random needs a size or value of q_desc" in said.err
    assert 'for example --sizes "q_desc=2x2x128x128' in said.err and "scale_log2=0.125" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*D64, "--sizes", "length=3"), "examples.attention has no size 'length'"),
        ((*D64, "--sizes", "seqlen_q"), "--sizes: 'seqlen_q' is not NAME=SIZE"),
        ((*D64, "--sizes", "seqlen_q=many"), "--sizes: 'seqlen_q=many' is not NAME=SIZE"),
        ((*D64, "--sizes", "heads=3, kv_heads=2"), "examples.attention: ValueError: k: 2 heads do not divide q's 3"),
        ((*D64, "--grid", "2"), "--grid goes with --random"),
        ((*D64, "--seeds", "0"), "--seeds: 0 runs nothing"),
        ((MATMUL, "--sizes", "m=17"), "the kernel relies on a multiple of 16, got 17"),
        ((KERNEL, "--seeds", "1"), "there is no example of inputs for attend"),
        ((*D64, "--random", "--sizes", EVERYTHING + ", more=1"), "the kernel has no argument 'more'"),
        ((*D64, "--random", "--sizes", EVERYTHING.replace("64x64", "64")), "q_desc needs a shape, such as 2x2x"),
        ((*D64, "--random", "--sizes", EVERYTHING.replace("heads=1", "heads=1x1")), "heads needs a number"),
        ((*D64, "--random", "--sizes", EVERYTHING, "--grid", "a"), "--grid: 'a' is not one to three sizes"),
    ],
)
def test_what_cannot_be_run(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("run", *arguments)


def test_an_example_that_is_not_there(tmp_path: Path) -> None:
    spec = tmp_path / "attention.toml"
    text = (ROOT / "kernels" / "attention.toml").read_text()
    spec.write_text(text.replace("examples.attention", "examples.atention"))
    message = refused("run", *D64, "--spec", str(spec))
    assert "examples.py has no function 'atention'; did you mean attention" in message


def test_tasks_are_run_with_the_memory_that_triton_gives_them() -> None:
    """Barriers in use are under the tile, as Triton's allocator takes them for done with."""
    text = """
def kernel(n):
    done = barriers(1)
    arrive(done[0])
    wait(done[0], 0)
    tile, full = buffer(64, 64), barriers(1)
    with specialize():
        with task(4):
            wait(full[0], 0)
            keep(load(tile))
        with task(1):
            expect(full[0], 8192)
            copy(tile, full[0])
"""
    made = Kernel(given_memory(print_module(kernel(text)), final=True))
    with pytest.raises(ProgramError, match="overwrites a barrier that is in use"):
        made.run(1, [2, torch.ones(1, dtype=torch.float16), torch.ones(64, 64, dtype=torch.float16)])
