"""What a command works on: files and kernels. And every way to get them wrong."""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.helpers import ATTENTION, ELEMENTWISE, KERNEL, done, refused, wspec
from tests.support import kernels
from wspec.bridge import text
from wspec.bridge.versions import INSTALLED
from wspec.cli import child
from wspec.cli.inputs import open_input
from wspec.cli.parser import make_parser
from wspec.diagnostics import WspecError
from wspec.ir import read
from wspec.ir.stages import views_are_whole
from wspec.kernels import attention
from wspec.specs.kernel_file import load_kernel

SCRIPT = """
import triton
import triton.language as tl

print("imported")

@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr = 64, TYPE: tl.constexpr = tl.float32):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, (tl.load(x_ptr + i, mask=i < n) * 2).to(TYPE), mask=i < n)

@triton.jit
def _helper(x):
    return x
"""
DOUBLE = "x_ptr=*fp32:16, n=i32"


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "types.py").write_text(SCRIPT)  # a name the standard library has
    return str(tmp_path / "types.py")


# --------------------------------------------------------------------------------------- files and kernels


def test_a_script(script: str) -> None:
    said = wspec("plan", f"{script}:double", "--sig", DOUBLE, "--const", "TYPE=tl.float16")
    assert said.code == 0 and "TYPE=fp16" in said.out and "BLOCK=64" in said.out
    assert said.err == "imported\n" and "types" not in said.out.split("(")[0]
    assert "double" in done("plan", script, "--sig", DOUBLE)  # the only public kernel
    assert sys.modules["types"].__file__ != script


def test_a_file_of_a_package_is_imported_as_part_of_it() -> None:
    assert load_kernel(ATTENTION).module.__name__ == "kernels.attention"


def test_a_module() -> None:
    kernel = load_kernel("wspec.kernels.attention:attention_fwd")
    assert kernel.function is attention.attention_fwd and kernel.file.name == "attention.py"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import nothing_like_this", "line 1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
        ("x = 1", "defines no Triton kernel"),
    ],
)
def test_files_that_cannot_be_used(body: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(body)
    assert message in refused("compile", f"{tmp_path}/broken.py:f")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py:f"], "there is no file nowhere.py"),
        (["nowhere.ttgir"], "cannot read nowhere.ttgir: No such file"),
        (["no.such.module:f"], "no file and no module no.such.module"),
        (["what?"], "neither a Python file nor a module"),
        ([f"{ELEMENTWISE}:softmax"], "no kernel 'softmax'; did you mean softmax_kernel?"),
        ([ELEMENTWISE], "defines several kernels"),
        ([KERNEL, "--variant", "fp32"], "no variant 'fp32'"),
        ([KERNEL, "--spec", "nowhere.toml"], "nowhere.toml"),
        ([KERNEL, "--sig", "q_desc"], "--sig: 'q_desc' is not NAME=VALUE"),
        ([KERNEL, "--sig", "q=i32"], "has no parameter 'q'"),
        ([KERNEL, "--sig", "keys=i32"], "no type or value for parameter 'q_desc'"),
        ([KERNEL, "--arg", "keys=int"], "'int' is not a type"),
        ([KERNEL, "--arg", "M=i32"], "parameter 'M' is a constexpr"),
        ([KERNEL, "--const", "M=many"], "--const M: 'many' is no literal"),
        ([KERNEL, "--const", "D=64"], "Triton does not compile attend"),
        ([KERNEL, "--arg", "q_desc=i32"], "Triton does not compile attend"),
        ([KERNEL, "--num-warps", "x"], "argument --num-warps: invalid int value: 'x'"),
        ([KERNEL, "--num-warps", "4096"], "attend: num_warps=4096: a block has 32 warps at most"),
        ([KERNEL, "--depth", "99"], "option 'depth' (WSPEC_DEPTH, --depth): 99 is not allowed"),
        ([KERNEL, "--consumers", "two"], "'two' is not allowed"),
        ([KERNEL, "--machine", "h300"], "no machine description 'h300'"),
        ([KERNEL, "--dept", "2"], "unrecognized arguments: --dept 2"),
        ([], "the following arguments are required: INPUT"),
    ],
)
def test_what_compile_refuses(arguments: list[str], message: str) -> None:
    assert message in refused("compile", *arguments)


def test_the_line_that_triton_does_not_compile() -> None:
    said = refused("plan", KERNEL, "--arg", "q_desc=i32")
    assert "tour_kernel.py:13:9: error: Triton does not compile attend: " in said
    assert "\n      q = q_desc.load([row, 0])\n" in said


def test_a_kernel_that_triton_itself_does_not_compile(tmp_path: Path) -> None:
    """What is left alone is compiled by Triton; where its passes fail that is said, not that wspec has an error."""
    source = inspect.getsource(kernels.flattened.fn)
    (tmp_path / "flat.py").write_text(f"import triton\nimport triton.language as tl\n\n\n{source}")
    tiles = ", ".join(f"{name}_desc=tensordesc<fp16[128, 64]>" for name in "qkvo")
    kernel = [f"{tmp_path}/flat.py:flattened", "--num-warps", "8", "--enabled", "0"]
    said = refused("compile", *kernel, "--sig", f"{tiles}, tiles=i32, length=i32, BM=128, BN=128, D=64")
    assert "flat.py:6:1: error: Triton does not compile flattened as it is: its passes fail" in said
    assert "'scf.if' op" in said and "bug in wspec" not in said


def test_a_module_from_a_file_is_for_the_installed_back_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's own does not say what a front end's says of it: here that it wants views of whole buffers."""
    path = tmp_path / "kernel.ttgir"
    path.write_text("module {\n  tt.func @nothing() {\n    tt.return\n  }\n}\n")
    for whole in (False, True):
        monkeypatch.setattr(text, "INSTALLED", replace(INSTALLED, whole_views=whole))
        subject = open_input(make_parser().parse_args(["plan", str(path)]))
        module = read(subject.front.stages["ttgir"])
        assert views_are_whole(next(op for op in module.walk() if op.name == "tt.func")) == whole


USES = """
import triton, triton.language as tl

@triton.jit
def product(a, b, out, k, BLOCK: tl.constexpr, SCALE: tl.constexpr = 1.0):
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for at in range(0, k, BLOCK):
        acc = tl.dot(a.load([0, at]), b.load([at, 0]), acc)
    rows = out + tl.arange(0, BLOCK)[:, None] * BLOCK
    tl.store(rows + tl.arange(0, BLOCK)[None, :], acc)
"""


def test_a_hint_can_be_followed(tmp_path: Path) -> None:
    """Types are guessed from how the source uses a parameter, whatever its name."""
    (tmp_path / "uses.py").write_text(USES)
    said = refused("explain", f"{tmp_path}/uses.py:product")
    hint = said.partition('--sig "')[2].partition('"')[0]
    tile = "tensordesc<bf16[128, 128]>"
    assert hint == f"a={tile}, b={tile}, out=*bf16:16, k=i32, BLOCK=128"
    done("explain", f"{tmp_path}/uses.py:product", "--sig", hint, "--num-warps", "8")


def test_no_signature(script: str) -> None:
    said = refused("compile", f"{script}:double")
    assert 'give one, for example --sig "x_ptr=*bf16:16, n=i32", or write ' in said


def test_signature_of_a_module() -> None:
    assert "--sig says how to compile a kernel, but - is TTGIR" in refused("compile", "-", "--sig", "x=i32")


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSPEC_DEPTH", "2")
    monkeypatch.setenv("WSPEC_GATE", "off")
    assert "k            2" in done("plan", KERNEL)
    assert "k            3" in done("plan", KERNEL, "--depth", "3")
    monkeypatch.setenv("WSPEC_DEPTH", "deep")
    assert "WSPEC_DEPTH" in refused("plan", KERNEL)


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in refused("dump", KERNEL, "--stage", "plan", "-o", f"{tmp_path}/file/x")


# ------------------------------------------------------------------------------------------------ grammar


@pytest.mark.parametrize(
    "command", ["compile", "plan", "explain", "check", "dump", "graph", "run", "opt", "bench", "demo"]
)
def test_help(command: str) -> None:
    out = done(command, "--help")
    assert out.startswith(f"usage: wspec {command}")
    assert ("--producer-registers" in out) == (command not in ("bench", "demo"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["compil"], "invalid choice: 'compil'"),
        (["dump", KERNEL], "one of the arguments --stage --list --diff is required"),
        (["dump", KERNEL, "--stage", "nothing"], "attend has no stage 'nothing'"),
        (["graph", KERNEL, "--format", "png"], "invalid choice: 'png'"),
        (["bench", "softmax"], "invalid choice: 'softmax'"),
        (["demo", "--head-dim", "96"], "invalid choice: 96"),
    ],
)
def test_wrong_commands(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_version() -> None:
    assert done("--version").startswith("wspec 0.")


@pytest.mark.parametrize("name", ["attention", "matmul", "launch"])
def test_bench_without_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refused("bench", name).startswith("error: no CUDA GPU is visible")


def test_help_of_a_benchmark() -> None:
    assert "--head-dims" in done("bench", "attention", "--help")


# ---------------------------------------------------------------------------------------------- bugs of ours


def test_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("wspec.cli.plan_command.open_input", broken)
    said = wspec("plan", KERNEL)
    assert said.code == 1 and said.err.startswith(
        "error: internal error: ZeroDivisionError: of ours\nnote: this is a bug"
    )
    assert "Traceback" in wspec("--traceback", "plan", KERNEL).err


def test_a_pass_that_fails(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    """The kernel is left alone, the failure told, and a reproducer written."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("wspec.pipeline.specialize", broken)
    said = wspec("compile", f"{ELEMENTWISE}:add_kernel")
    assert said.code == 1 and "[internal-error]" in said.out and "wspec-reproducers" in said.out


def test_a_child_that_dies() -> None:
    with pytest.raises(WspecError, match="libtriton died of this module \\(SIGABRT\\)"):
        child.in_child(os.abort, "x.ttgir")
    assert child.in_child(lambda: 3, "x.ttgir") == 3
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        child.in_child(lambda: 1 // 0, "x.ttgir")
