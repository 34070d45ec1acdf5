"""The report a person reads, and attention through the real compiler."""

from __future__ import annotations

import wspec
from wspec.kernels.attention import attention_fwd
from wspec.outcome import operations
from wspec.plan.plan import Plan


def test_attention_down_to_the_cubin() -> None:
    descriptor = "tensordesc<bf16[1, 1, 128, 128]>"
    signature = {f"{name}_desc": descriptor for name in "qkvo"} | {"lse_ptr": "*fp32:16", "scale_log2": "fp32"}
    signature |= dict.fromkeys(("seqlen_q", "seqlen_k", "heads", "group"), "i32")
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "HEAD_DIM": 128, "CAUSAL": False}
    asked = wspec.offline(attention_fwd, signature, blocks, num_warps=8, gate="off")
    report = asked.outcome()
    assert report.specialized, str(report)
    assert report.plan is not None and report.plan.kernel == "attention_fwd"
    assert report.resources.spill_bytes == 0 and report.resources.hgmma > 0 and report.resources.usetmaxreg
    assert report.resources.warps == report.plan.total_warps
    assert report.resources.ptxas_notes == ()
    text = str(report)
    assert "attention.py:" in text and "load  producer" in text and "cycles an iteration" in text
    found = operations(report.source)
    assert all(
        "attention.py" in str(found[load].location) for channel in report.plan.channels for load in channel.loads
    )
    stages = asked.stages()
    assert stages[:2] == ("ttir", "ttgir") and "plan" in stages and stages.index("split") < stages.index("specialized")
    assert Plan.from_text(asked.dump("plan")) == report.plan
