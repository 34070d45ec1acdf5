"""What is known of shared memory, against memory of bytes."""

from __future__ import annotations

import random

import pytest

from tests.ptx.test_copies import EXCHANGED, LAUNCH, copies_of
from wspec.ptx.stored import WORD, Stored

SIZE = 32
HIDDEN = frozenset((8, 20))  # words


@pytest.mark.parametrize("seed", range(40))
def test_against_bytes(seed: int) -> None:
    draw = random.Random(seed)
    stored, bytes = Stored(HIDDEN), dict[int, int]()
    for _ in range(300):
        size = draw.choice((1, 2, 4, 8))
        place = draw.randrange(0, SIZE, min(size, WORD))
        if draw.random() < 0.4:
            known = [bytes.get(place + at) for at in range(size)]
            found = stored.read(place, size)
            wanted = None if None in known else sum((one or 0) << 8 * at for at, one in enumerate(known))
            assert found == wanted, (place, size)
        elif draw.random() < 0.02:
            stored.forget()
            bytes.clear()
        else:
            value = None if draw.random() < 0.2 else draw.getrandbits(64)
            stored.write(place, size, value)
            for at in range(size):
                if value is None or (place + at) // WORD * WORD in HIDDEN:
                    bytes.pop(place + at, None)
                else:
                    bytes[place + at] = value >> 8 * at & 0xFF
        assert bool(stored) == bool(bytes)


@pytest.mark.parametrize(
    ("load", "register", "value"),
    [
        ("b8", "%r5", 0xF8), ("u8", "%r5", 0xF8), ("s8", "%r5", 0xFFFFFFF8), ("s8", "%rs5", 0xFFF8),
        ("s32", "%rd5", (1 << 64) - 8), ("s32", "%r5", (1 << 32) - 8), ("b32", "%rd5", (1 << 32) - 8),
        ("s8", "%x5", None),
    ],
)  # fmt: skip
def test_numbers_with_a_sign_fill_their_register(load: str, register: str, value: int | None) -> None:
    text = EXCHANGED.replace("st.shared.b32 \t[%r2], %r1;", "st.shared.b32 \t[%r2], -8;")
    text = text.replace("ld.shared.b32 \t%r5,", f"ld.shared.{load} \t{register},")
    text = text.replace("cvt.u64.u32 \t%rd1, %r5;", f"mov.b64 \t%rd1, {register};")
    copied = copies_of(text).in_launch(LAUNCH, lambda: False, {}).copies[0].by
    assert {one.source[0] for one in copied} == {value}
