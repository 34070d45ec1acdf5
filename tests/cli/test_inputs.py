"""What a command works on: files, kernels, signatures, specs. And every way to get them wrong."""

from __future__ import annotations

import inspect
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import ATTENTION, ELEMENTWISE, KERNEL, done, refused, wspec
from tests.support import kernels
from tests.support.goldens import ROOT
from wspec.cli import child
from wspec.diagnostics import WspecError
from wspec.kernels import attention, matmul
from wspec.specs.kernel_file import load_kernel
from wspec.specs.signature import Signature, from_flags, split_items
from wspec.specs.variants import read_variants, variant_signature

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


# -------------------------------------------------------------------------------------------- signatures


def test_items() -> None:
    text = "a=tensordesc<bf16[1, 1, 128]>, b=*fp32:16,, C=(1, 2), d=i32"
    assert split_items(text) == ["a=tensordesc<bf16[1, 1, 128]>", "b=*fp32:16", "C=(1, 2)", "d=i32"]


def test_flags() -> None:
    class Language:
        float16 = "a dtype"

    found = from_flags("x=*bf16:16, N=64, CAUSAL=True", ["y=i32"], ["T=tl.float16", "S='s'"], {"tl": Language})
    assert found == Signature({"x": "*bf16:16", "y": "i32"}, {"N": 64, "CAUSAL": True, "T": "a dtype", "S": "s"})


def test_what_changes_a_variant() -> None:
    base = Signature({"x": "*bf16", "n": "i32"}, {"N": 64}, {"num_warps": 4})
    changed = base.updated(Signature({"N": "i32"}, {"n": 1}, {"num_warps": 8}))
    assert changed == Signature({"x": "*bf16", "N": "i32"}, {"n": 1}, {"num_warps": 8})


# ------------------------------------------------------------------------------------------------- specs


def variants() -> list[tuple[str, str, str]]:
    """(file, kernel, variant) of every spec that comes with wspec."""
    found = []
    for path in sorted((ROOT / "kernels").glob("*.toml")):
        for kernel, named in tomllib.loads(path.read_text()).items():
            found += [(path.stem, kernel, name) for name in named]
    return found


@pytest.mark.parametrize(("file", "kernel", "variant"), variants())
def test_every_variant_has_a_plan_or_a_reason(file: str, kernel: str, variant: str) -> None:
    out = done("plan", f"{ROOT}/kernels/{file}.py:{kernel}", "--variant", variant, "--gate", "off", "--no-runners-up")
    specialized = file != "elementwise"
    assert ("there is no plan" not in out) == specialized, out


def _values(file: str, kernel: str, variant: str) -> dict[str, Any]:
    found = variant_signature(ROOT / "kernels" / f"{file}.toml", kernel, variant, {})
    return {**found.values, **found.options}


@pytest.mark.parametrize("variant", read_variants(ROOT / "kernels" / "attention.toml", "attention_fwd"))
def test_attention_variants_are_the_default_tiles(variant: str) -> None:
    values = _values("attention", "attention_fwd", variant)
    assert variant == f"d{values['HEAD_DIM']}{'_causal' if values['CAUSAL'] else ''}"
    tile = attention.default_config(values["HEAD_DIM"], 4096, values["CAUSAL"])
    expected = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n}
    launch = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    assert {**values, **expected, **launch} == values


def test_matmul_variants_are_the_default_tile() -> None:
    tile = matmul.default_config(8192, 8192)
    expected = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k, "GROUP_M": tile.group_m}
    for kernel in ("matmul_descriptor_kernel", "matmul_pointer_kernel"):
        values = _values("matmul", kernel, "bf16")
        assert {**values, **expected, "num_warps": tile.num_warps} == values


def test_the_first_variant_is_the_default_and_flags_change_it() -> None:
    assert "CAUSAL=True" in done("plan", ATTENTION) and "CAUSAL=False" in done(
        "plan", ATTENTION, "--const", "CAUSAL=False"
    )
    assert "num_stages=4" in done("plan", ATTENTION, "--variant", "d64", "--num-stages", "4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[attend.a", "spec.toml: Expected"),
        ("[other.a]", "has no variant of attend"),
        ("attend = 3", "[attend] must hold tables"),
        ('[attend.a]\nlike = "b"', "has no variant 'b'"),
        ('[attend.a]\nlike = "a"', "attend.a is like itself"),
        ("[attend.a]\nsignatures = {}", "has no field 'signatures'"),
        ("[attend.a]\nsignature = 1", "signature must be a table"),
        ("[attend.a]\nsignature = { keys = 1 }", "signature.keys must be the text of a type"),
        ('[attend.a]\nconstexprs = { M = "tl.nothing" }', "'tl.nothing' is no literal and no name"),
        ("[attend.a]\noptions = { num_wraps = 8 }", "no parameter 'num_wraps'"),
    ],
)
def test_bad_specs(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(text)
    assert message in refused("plan", KERNEL, "--spec", str(tmp_path / "spec.toml"))


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
    kernel = [f"{tmp_path}/flat.py:flattened", "--num-warps", "8", "--gate", "off"]
    said = refused("compile", *kernel, "--sig", f"{tiles}, tiles=i32, length=i32, BM=128, BN=128, D=64")
    assert "flat.py:6:1: error: Triton does not compile flattened as it is: its passes fail" in said
    assert "'scf.if' op" in said and "bug in wspec" not in said


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

    monkeypatch.setattr("wspec.api.specialize", broken)
    said = wspec("compile", f"{ELEMENTWISE}:add_kernel")
    assert said.code == 1 and "[internal-error]" in said.out and "wspec-reproducers" in said.out


def test_a_child_that_dies() -> None:
    with pytest.raises(WspecError, match="libtriton died of this module \\(SIGABRT\\)"):
        child.in_child(os.abort, "x.ttgir")
    assert child.in_child(lambda: 3, "x.ttgir") == 3
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        child.in_child(lambda: 1 // 0, "x.ttgir")
