"""The report a person reads, and attention through the real compiler."""

from __future__ import annotations

import wspec
from wspec.ir.loc import UNKNOWN, FileLoc
from wspec.kernels.attention import attention_fwd
from wspec.plan.plan import Channel, Plan, Prediction, Task
from wspec.report import operation_locations, plan_table


def test_plan_table() -> None:
    plan = Plan(
        "attention",
        "fingerprint",
        source_warps=8,
        tasks=(Task("mma", "consumer", 4, 240, replicas=2), Task("load", "producer", 1, 24)),
        channels=(
            Channel("q", (3,), 1, 32768, sliced_dim=0, reused=False),
            Channel("k", (5, 9), 2, 32768),
            Channel("v", (7,), 2, 32768),
        ),
        smem_bytes=163840,
        prediction=Prediction(2337.9, 3154.5, 1500, "tensor core"),
    )
    locations = {3: FileLoc("a.py", 10, 4), 5: FileLoc("a.py", 12, 8), 9: FileLoc("a.py", 20, 8), 7: UNKNOWN}
    assert plan_table(plan, locations).split("\n") == [
        "  task  kind      warps  registers",
        "  mma   consumer  2 x 4  240",
        "  load  producer  1      24",
        "",
        "  channel  depth  bytes      use                  loaded at",
        "  q        1      1 x 32768  sliced, filled once  a.py:10",
        "  k        2      2 x 32768  shared, ring         a.py:12 a.py:20",
        "  v        2      2 x 32768  shared, ring",
        "",
        "163840 bytes of shared memory",
        "2338 cycles an iteration expected, 3154 plain; 1500 to start; bound by tensor core",
    ]


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
    assert "attention.py:" in text and "load  producer" in text and "cycles an iteration expected" in text
    lines = operation_locations(report.source)
    assert all("attention.py" in str(lines[load]) for channel in report.plan.channels for load in channel.loads)
    stages = asked.stages()
    assert stages[:2] == ("ttir", "ttgir") and "plan" in stages and stages.index("split") < stages.index("specialized")
    assert Plan.from_text(asked.dump("plan")) == report.plan
