"""What a version's file says is what the installed Triton does; the other files at least hang together."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import triton
from triton.backends.nvidia.compiler import CUDABackend

from wspec.bridge.versions import INSTALLED, KNOWN, VERSION, VERSIONS
from wspec.bridge.versions.version import Pass, Version, in_place_of

OF_OTHER_CARDS = {"nvidia.ttnvgpuir.to_clc", "nvidia.ttgpuir.allocate_tensor_memory",
                  "nvidia.ttnvgpuir.allocate_tensor_memory"}  # fmt: skip
"""Passes for Blackwell, which a version's list leaves out."""
BEFORE_MEMORY = {*OF_OTHER_CARDS, "nvidia.ttnvgpuir.check_matmul_two_cta", "ttgpuir.concurrency_sanitizer",
                 "ttgpuir.allocate_global_scratch_memory", "ttgpuir.global_sanitizer",
                 "ttgpuir.prepare_consan_captures"}  # fmt: skip
"""Passes of `make_llir` that give out no shared memory: sanitizers' and other memories'."""


def passes(source: str) -> list[str]:
    """The passes that the source of a function adds, in order."""
    found = re.findall(r"(nvidia\.)?passes\.(\w+)\.add_(\w+)\(", source)
    return [f"{vendor}{group}.{name}" for vendor, group, name in found]


def names(listed: tuple[Pass, ...]) -> list[str]:
    return [one.name for one in listed]


def test_ttgir_is_made_as_the_installed_triton_makes_it() -> None:
    theirs = inspect.getsource(CUDABackend.make_ttgir)
    head, rest = theirs.split("if capability // 10 in [8, 9]:")
    hopper = rest[: rest.index("nvidia.passes.hopper.add_hopper_warpspec")]
    assert names(INSTALLED.to_ttgir) == [one for one in passes(head + hopper) if one not in OF_OTHER_CARDS]


def test_the_finishing_passes_are_the_last_of_the_installed_triton() -> None:
    rest = inspect.getsource(CUDABackend.make_ttgir).partition("optimize_tmem_layouts")[2]
    theirs = passes(re.split(r"\n {8}if .*(?:instrumentation_mode|is_enabled)", rest)[0])
    left_out = {"nvidia.ttnvgpuir.interleave_tmem", "nvidia.ttnvgpuir.tmem_load_reduce", "nvidia.ttnvgpuir.lower_clc",
                "ttgpuir.remove_layout_conversions", "ttgpuir.reduce_data_duplication", "common.symbol_dce",
                "ttgpuir.reorder_instructions", "ttir.loop_aware_cse"}  # fmt: skip
    assert names(INSTALLED.finishing) == [one for one in theirs if one not in left_out]


def test_shared_memory_is_given_out_by_the_first_passes_of_the_back_end() -> None:
    theirs = [one for one in passes(inspect.getsource(CUDABackend.make_llir)) if one not in BEFORE_MEMORY]
    assert theirs[: len(INSTALLED.memory)] == names(INSTALLED.memory)


def test_ptxas_is_called_with_its_flags() -> None:
    theirs = set(re.findall(r"'(--\w+=\w+)'", inspect.getsource(CUDABackend.make_cubin))) - {"--fmad=false"}
    assert set(INSTALLED.ptxas_flags) == theirs


def test_the_installed_one_is_known() -> None:
    assert VERSION is not None and triton.__version__.startswith(f"{VERSION}.")
    assert INSTALLED.release == VERSION and VERSION in KNOWN


def test_versions_differ_where_they_say_so() -> None:
    assert [version.release for version in VERSIONS] == ["3.6", "3.7", "3.8", "3.9"]
    texts = [str((version.to_ttgir, version.finishing, version.ptxas_flags)) for version in VERSIONS]
    assert texts[0] != texts[1] and texts[1] == texts[2] != texts[3]


def test_a_pass_is_put_in_the_place_of_another() -> None:
    listed = (Pass("a.b"), Pass("c.d"))
    assert names(in_place_of(listed, "a.b", Pass("x.y"), Pass("z.w"))) == ["x.y", "z.w", "c.d"]
    with pytest.raises(ValueError):
        in_place_of(listed, "e.f", Pass("x.y"))


def test_a_pass_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="add_no_such_pass"):
        Pass("ttgpuir.no_such_pass").add(None, 90)


# ------------------------------------------------------------------------------------------------- spelling

MODULE = """\
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128}>
"builtin.module"() ({
  "tt.func"() <{function_type = (!tt.tensordesc<tensor<64x64xbf16, #ttg.x<{a = (1) -> 2}>>>) -> ()}> ({
  ^bb0(%d: !tt.tensordesc<tensor<64x64xbf16, #shared>>, %n: i32):
    "ttg.warp_specialize"(%d, %n) <{partitionNumWarps = array<i32: 1>}> ({
      "ttg.warp_yield"() : () -> ()
    }, {
      "ttg.warp_specialize.partitions"() ({
      ^bb0(%e: !tt.tensordesc<tensor<64x64xbf16, #shared>>, %m: i32):
        "ttng.async_tma_copy_global_to_local"(%e, %m, %m, %bar, %buf, %p) <{isVolatile = false}> : (t) -> ()
        "ttg.warp_return"() : () -> ()
      }) : () -> () loc(#loc)
    }) {warpGroupStartIds = array<i32: 4>} : (!tt.tensordesc<tensor<64x64xbf16, #shared>>, i32) -> () loc(#loc)
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""


def spelled(release: str) -> list[str]:
    version = next(one for one in VERSIONS if one.release == release)
    return version.spelled(MODULE).splitlines()


def test_the_first_version_is_written_as_it_is() -> None:
    assert spelled("3.6") == MODULE.splitlines()


def test_partitions_capture_for_themselves() -> None:
    before, after = MODULE.splitlines(), spelled("3.7")
    changed = {number: line.strip() for number, line in enumerate(after) if line != before[number]}
    assert changed == {
        4: '"ttg.warp_specialize"() <{partitionNumWarps = array<i32: 1>}> ({',
        7: '"ttg.warp_specialize.partitions"(%d, %n) ({',
        9: '"ttng.async_tma_copy_global_to_local"(%e, %m, %m, %bar, %buf, %p) '
        "<{operandSegmentSizes = array<i32: 1, 2, 0, 1, 1, 1>, isVolatile = false}> : (t) -> ()",
        11: "}) : (!tt.tensordesc<tensor<64x64xbf16, #shared>>, i32) -> () loc(#loc)",
        12: "}) {warpGroupStartIds = array<i32: 4>} : () -> () loc(#loc)",
    }


@pytest.mark.parametrize("release", ["3.8", "3.9"])
def test_a_descriptor_has_a_shape(release: str) -> None:
    text = "\n".join(spelled(release))
    assert "tensordesc<tensor" not in text and text.count("!tt.tensordesc<64x64xbf16, #shared>") == 3
    assert "(!tt.tensordesc<64x64xbf16, #ttg.x<{a = (1) -> 2}>>) -> ()" in text
    version = next(one for one in VERSIONS if one.release == release)
    assert version.spelled(text) == text


# ------------------------------------------------------------------------------------------ an unknown version

FUTURE = """
import triton
triton.__version__ = "{version}"
{harm}
import wspec
from tests.bridge.sample_kernels import add
kernel = wspec.compile(add)
assert kernel.fn is add.fn and kernel.cache_key == add.cache_key
print({asked})
"""


def told(asked: str, harm: str = "") -> str:
    """What a process prints in which Triton has another version, and is harmed as the code says."""
    code = FUTURE.format(version="4.2.0", harm=harm, asked=asked)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


GONE = ("runtime.jit.MockTensor", "runtime.jit.create_function_from_signature", "runtime.cache.get_cache_manager",
        "backends.nvidia.compiler.get_ptxas", "_C.libtriton.get_cache_invalidating_env_vars")  # fmt: skip
HARM = """
import importlib
from triton.runtime.jit import JITFunction
its = JITFunction.__init__
def init(self, *args, **kwargs):
    if type(self) is not JITFunction:
        raise TypeError("another signature")
    its(self, *args, **kwargs)
JITFunction.__init__ = init
"""


def test_an_unknown_version_leaves_kernels_alone_and_says_so() -> None:
    harm = "from triton.runtime.jit import JITFunction\nJITFunction.create_binder = lambda self: ()"
    asked = 'kernel.explain("*fp32:16", "*fp32:16", 5, BLOCK=128), kernel.create_binder(), "compile" in vars(kernel)'
    said = told(asked, harm)
    assert said.count("Triton 4.2.0 is not supported") == 2, "and once in the explanation"
    assert "3.6, 3.7, 3.8, 3.9" in said and "[triton-version]" in said
    assert said.count(" () False") == 1, "a launch is Triton's own"


def test_what_is_laid_out_in_another_way_stops_nobody() -> None:
    lines = [HARM]
    for module, _, name in (f"triton.{one}".rpartition(".") for one in GONE):
        lines.append(f"delattr(importlib.import_module({module!r}), {name!r})")
    said = told("'plain' if kernel is add else 'ours'", "\n".join(lines))
    assert "plain" in said and "Triton 4.2.0 is not supported" in said


def recorded(version: Version) -> list[str]:
    """The passes that a version's methods add, as a pass manager sees them."""
    added: list[str] = []

    class One:
        def add(self, _manager: Any, _arch: int, _options: Any = None) -> None:
            added.append("one")

    listed: Any = (One(), One())
    calls: list[Callable[[Version], None]] = [
        lambda one: one.add_ttgir_passes(None, 90, None),
        lambda one: one.add_finishing_passes(None, 90),
        lambda one: one.add_memory_passes(None, 90),
    ]
    for call in calls:
        call(Version(version.release, listed, listed, listed))
    return added


def test_all_passes_of_a_list_are_added() -> None:
    assert recorded(INSTALLED) == ["one"] * 6
