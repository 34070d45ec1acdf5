"""What failed once does not fail again; what is known to fail still does, or is to be taken off the list.

A case gets here by `python -m tests.fuzz --keep tests/fuzz/regressions ...`. "open" in its file says why it fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.case import Launch
from tests.fuzz.examine import examine
from tests.fuzz.findings import Finding
from tests.fuzz.hand import case, product
from tests.fuzz.kept import Kept, kept, open_signatures

KEPT = kept()


@pytest.mark.parametrize("name", KEPT)
def test_regression(name: str, tmp_path: Path) -> None:
    one = KEPT[name]
    found = [finding for finding in examine(one.case, tmp_path).findings if finding.ours]
    if one.open:
        assert one.finding.signature in {finding.signature for finding in found}, f"mended? then empty 'open': {found}"
        pytest.xfail(one.open)
    assert found == [], "\n".join(map(str, found))


def test_files(tmp_path: Path) -> None:
    """They come back as they were."""
    finding = Finding("run", "deadlock: nobody can go on", "deadlock")
    one, other = Kept(case(product()), finding, 7), Kept(case(product(), 3), finding, 8, "nobody knows why")
    assert Kept.load(one.save(tmp_path)) == one and Kept.load(other.save(tmp_path)) == other
    assert kept(tmp_path) == {"run_7": one, "run_8": other}
    assert open_signatures(tmp_path) == {"run: deadlock"}
    assert isinstance(one.case.launches[0], Launch)
