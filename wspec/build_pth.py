"""What `pip install` adds to copying the package: wspec.pth beside it (startup.py).

Imported only when a wheel is built.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

PTH = "import os; os.environ.get('WSPEC', '0') in ('', '0') or __import__('wspec.startup', fromlist=['wait']).wait()\n"


class BuildWithPth(build_py):  # type: ignore[misc]  # setuptools is untyped
    """Not for an editable installation, in which `wspec run-with` and `wspec.enable()` do the same."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self._pth.write_text(PTH)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(self._pth)]

    @property
    def _pth(self) -> Path:
        return Path(self.build_lib, "wspec.pth")
