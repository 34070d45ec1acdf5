"""Text in and out of libtriton, and its diagnostics."""

from __future__ import annotations

import os
import re
import sys

import pytest

from tests.bridge.sample_kernels import gemm_source
from wspec import bridge
from wspec.bridge import text as bridge_text


def test_generic_text_reads_back_identically() -> None:
    text = bridge.ttgir(gemm_source())
    assert text == bridge.generic_text(bridge.reparse(text))


def test_generic_text_is_generic_and_unmarked() -> None:
    text = bridge.ttgir(gemm_source())
    assert '"tt.func"()' in text and '"ttng.warp_group_dot"(' in text
    assert "wspec" not in text.replace(os.getcwd(), "")


@pytest.mark.parametrize("source", ["module {}", "module attributes {ttg.a = 1 : i32} {}", "module @name {}"])
def test_generic_text_of_small_modules(source: str) -> None:
    text = bridge.generic_text(bridge.reparse(source))
    assert "wspec_generic_form" not in text
    assert text == bridge.generic_text(bridge.reparse(text))


def test_pretty_text_keeps_the_module() -> None:
    text = bridge.ttgir(gemm_source())
    pretty = bridge.to_pretty(text)
    assert "tt.func public @gemm(" in pretty
    again = bridge.generic_text(bridge.reparse(pretty))  # names and locations of loop arguments are lost
    assert _operations(again) == _operations(text) and len(_operations(text)) > 20


def _operations(text: str) -> list[str]:
    return re.findall(r'"([a-z_]+\.[a-z_]+)"\(', text)


def test_a_parse_error_carries_the_diagnostic_and_the_line() -> None:
    with pytest.raises(bridge.BridgeError) as caught:
        bridge.reparse("module {\n  foo.bar\n}")
    assert "Dialect `foo' not found" in str(caught.value)
    assert "<ir>:2: foo.bar" in str(caught.value)


def test_a_verifier_error_is_raised() -> None:
    bad = 'module { tt.func @f(%a: i32) { %0 = "arith.addi"(%a, %a) : (i32, i32) -> i64 tt.return } }'
    with pytest.raises(bridge.BridgeError, match=r"arith\.addi"):
        bridge.reparse(bad)


def test_stderr_is_given_back_and_nothing_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    bridge_text.captured("fails", lambda: os.write(2, b"a warning of libtriton\n"))
    with pytest.raises(bridge.BridgeError, match="an error of libtriton"):
        bridge_text.captured("fails", _fail)
    print("after", file=sys.stderr)
    assert capfd.readouterr().err == "a warning of libtriton\nafter\n"


def _fail() -> None:
    os.write(2, b"an error of libtriton\n")
    raise RuntimeError("it failed")


def test_other_exceptions_pass_and_their_stderr_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        os.write(2, b"said before\n")
        raise KeyError("other")

    with pytest.raises(KeyError):
        bridge_text.captured("fails", fail)
    assert capfd.readouterr().err == "said before\n"
