"""How far apart two results are."""

from __future__ import annotations

import torch

from tests.outside import card


def test_distance_is_by_row_and_keeps_nan() -> None:
    expected = torch.tensor([[3.0, 4.0], [30.0, 40.0], [1.0, 1.0]])
    out = torch.tensor([[3.0, 4.5], [30.0, 40.0], [torch.nan, 1.0]])
    apart = card.rows_apart(out, expected)
    assert torch.isclose(apart[0], torch.tensor(0.5 / 12.5**0.5))
    assert apart[1] == 0.0 and apart[2].isnan()
