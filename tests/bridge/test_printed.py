"""`tl.static_print` in a kernel that is lowered several times."""

from pathlib import Path

import pytest
import triton
import triton.language as tl

import wspec
from wspec.bridge import printed


@triton.jit
def talks(x, N: tl.constexpr):
    tl.static_print("N is", N)
    tl.store(x + tl.arange(0, N), 1.0)


def test_what_a_kernel_prints_while_it_is_compiled_is_printed_once(
    fresh_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed, "to_stderr", False)  # a command may have run in this process
    one = wspec.offline(talks, {"x": "*fp32:16"}, {"N": 128})
    one.explain()
    one.dump("ttgir")
    one.dump("ptx")
    assert capsys.readouterr().out == "N is 128\n"
    wspec.offline(talks, {"x": "*fp32:16"}, {"N": 256}).explain()
    assert capsys.readouterr().out == "N is 256\n"
