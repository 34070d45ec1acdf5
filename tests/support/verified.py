"""The compiler as tests ask it: what each pass leaves is verified, which a launch leaves to libtriton."""

from __future__ import annotations

import functools

from wspec import pipeline
from wspec.ir.verify import check_valid

specialize = functools.partial(pipeline.specialize, verify=check_valid)
