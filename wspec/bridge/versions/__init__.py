"""The versions of Triton that are known, each a file of its own that says what differs, and the one installed.

Nothing else of wspec asks for a version's number.
"""

from __future__ import annotations

import triton

from wspec.bridge.versions import triton_3_6, triton_3_7, triton_3_8, triton_3_9
from wspec.bridge.versions.version import Version
from wspec.diagnostics import Remark

VERSIONS = (triton_3_6.TRITON, triton_3_7.TRITON, triton_3_8.TRITON, triton_3_9.TRITON)
KNOWN = tuple(version.release for version in VERSIONS)
_FOUND = next((version for version in VERSIONS if triton.__version__.startswith(f"{version.release}.")), None)

VERSION: str | None = None if _FOUND is None else _FOUND.release
"""The installed one; None where it is not known. Kernels are left alone then."""

INSTALLED: Version = _FOUND or VERSIONS[-1]
"""What to run: of an unknown version the newest known one's passes, so that there is something to look at."""


def unknown_version() -> Remark | None:
    """Why kernels are left alone under the installed Triton; None where it is known."""
    if VERSION is not None:
        return None
    return Remark(
        "triton-version", f"Triton {triton.__version__} is not supported", note=f"wspec knows Triton {', '.join(KNOWN)}"
    )
