"""Is a script right for given arguments? Answered by trying every schedule."""

from __future__ import annotations

from collections.abc import Mapping

from tests.check.concrete import Refused, run
from tests.check.interleavings import Explorer, Wrong
from tests.check.ordering import check_fences


def fault(text: str, arguments: Mapping[str, int], limit: int = 50_000) -> Wrong | None:
    """What can go wrong, or None. Raises interleavings.TooMany beyond `limit` states."""
    try:
        found = run(text, arguments)
        Explorer(found, limit).explore()
        check_fences(found)
    except Wrong as wrong:
        return wrong
    except Refused as refused:
        return Wrong(f"range ({refused})", 0)
    return None
