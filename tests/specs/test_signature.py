"""Types and values of parameters, as the command line gives them."""

from __future__ import annotations

from wspec.specs.signature import Signature, from_flags, split_items


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
