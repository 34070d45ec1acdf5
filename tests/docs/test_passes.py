"""The code in docs/ir.md gives what it says; docs/passes.md names the passes that there are, in their order."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from wspec.passes.persistent.persist import persist
from wspec.passes.stream_k.divide_tiles import divide_tiles
from wspec.passes.tile_coarsening.coarsen_tiles import coarsen_tiles
from wspec.pipeline import PASSES, walk_tiles

DOCS = Path(__file__).parents[2] / "docs"


def test_code_of_the_ir_page() -> None:
    found = doctest.testfile(str(DOCS / "ir.md"), module_relative=False)
    assert found.attempted > 20 and found.failed == 0


def test_passes_page_has_the_passes_in_order() -> None:
    text = (DOCS / "passes.md").read_text()
    assert PASSES[0] is walk_tiles, "which the first three are the parts of"
    names = [one.__name__ for one in (persist, coarsen_tiles, divide_tiles, *PASSES[1:])]
    assert re.findall(r"^\| \[(\w+)\]\(\.\./passes/", text, re.M) == names


def test_links_lead_somewhere() -> None:
    for page in ("ir.md", "passes.md"):
        for target in re.findall(r"\]\(([^)#]+)", (DOCS / page).read_text()):
            assert (DOCS / target).exists(), f"{page}: {target}"
