"""`python -m tests.wrong [--count 300] [--seed 0]`: draw wrong inputs, run them, say which are not refused well."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter

from tests.wrong.draw import draw
from tests.wrong.running import MEMORY, SECONDS, good, run, warm


def main() -> int:
    """1 where one is not refused as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print what each was told")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wrong-cache-") as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        warm()
        ended = [run(case) for case in draw(args.seed, args.count, good())]
    for one in ended:
        if one.wrong or args.verbose:
            print(f"{one.wrong or 'refused'}: {one.case}\n    {one.err.strip()[:600]}\n", flush=True)
    kinds, failed = Counter(one.case.kind for one in ended), Counter(one.case.kind for one in ended if one.wrong)
    for kind, count in kinds.items():
        longest = max(one.seconds for one in ended if one.case.kind == kind)
        most = max(one.memory for one in ended if one.case.kind == kind) >> 20
        print(f"| {kind} | {count} | {count - failed[kind]} | {longest:.1f} | {most} |")
    print(
        f"{len(ended)} wrong inputs, seed {args.seed}, limits {SECONDS} s and {MEMORY >> 30} GiB: "
        f"{len(ended) - failed.total()} refused with one error and exit code 2"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
