"""TTGIR to cubin, and what we read from a cubin."""

from __future__ import annotations

import pytest

from tests.bridge.sample_kernels import add_source, gemm_source
from wspec import bridge
from wspec.bridge import backend
from wspec.bridge.sass.ptxas_log import ptxas_notes, spill_bytes
from wspec.bridge.sass.resources import instructions, ptxas_version


def test_the_assembler_is_called_as_triton_calls_it() -> None:
    source = add_source()
    kernel = bridge.load_kernel(source, bridge.Result(False, ()), {})
    ours, log = backend.assemble(kernel.asm["ptx"], source)
    assert ours == kernel.asm["cubin"]
    assert "registers" in log


def test_the_version_is_that_of_the_assembler_called() -> None:
    """Triton 3.9 takes another one for Hopper than for what is older, and has both."""
    assert ptxas_version().startswith(f"{backend.get_ptxas(90).version}.")


def test_a_module_as_it_was_still_compiles() -> None:
    source = gemm_source()
    done = bridge.finish(bridge.ttgir(source), source)
    assert done.metadata["name"] == "gemm" and done.metadata["num_warps"] == 8
    blocks = [meta["block_size"] for meta in done.metadata["tensordesc_meta"]]
    assert blocks == [[128, 64], [64, 64]]
    found = bridge.resources(done.cubin, done.ptxas_log, shared_bytes=done.metadata["shared"], warps=8)
    assert found.hgmma > 0 and found.tma_loads > 0 and found.syncs > 0 and found.bar > 0
    assert found.spill_bytes == 0 and found.usetmaxreg == () and 0 < found.registers <= 255
    assert found.ptxas_version == ptxas_version() and found.ptxas_version in str(found)


def test_broken_ir_is_an_error_with_the_diagnostic() -> None:
    source = gemm_source()
    text = bridge.ttgir(source).replace('"tt.return"()', '"tt.retrun"()')
    with pytest.raises(bridge.BridgeError, match="retrun"):
        bridge.finish(text, source)


def test_ptxas_failure_is_an_error_with_the_log() -> None:
    with pytest.raises(bridge.BridgeError, match=r"(?s)ptxas failed.*fatal"):
        backend.assemble("this is not ptx", add_source())


def test_reading_ptxas_logs() -> None:
    log = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized ...\n"
        "    64 bytes stack frame, 56 bytes spill stores, 40 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 8 barriers, 64 bytes cumulative stack size\n"
    )
    assert ptxas_notes(log) == ("C7510",) and spill_bytes(log) == 96
    assert ptxas_notes("") == () and spill_bytes("") == 0


def test_reading_sass() -> None:
    text = """
        /*0010*/              @!P0 USETMAXREG.DEALLOC.CTAPOOL 0x18 ;
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT, gsb0 ;
        /*12340*/                  BAR.SYNC.DEFER_BLOCKING 0x0 ;
    """
    assert instructions(text) == [
        ("USETMAXREG.DEALLOC.CTAPOOL", "0x18"),
        ("HGMMA.64x128x16.F32.BF16", "R24, gdesc[UR4], RZ, !UPT, gsb0"),
        ("BAR.SYNC.DEFER_BLOCKING", "0x0"),
    ]
