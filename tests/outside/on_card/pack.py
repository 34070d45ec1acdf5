"""`python -m tests.outside.on_card.pack`: entries and what they import of their libraries, in one archive.

Each entry runs under the pretence of a card, with launches left out, and the files that it opens are packed. Unpacked,
the archive holds `entries/` and `packages/pkg/`. Says which modules of other packages a machine must have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.outside.on_card import entries, inputs, recipes

WHOLE = ("fla_core", "liger_kernel", "bitsandbytes")
"""Libraries small enough to be packed whole."""

SUFFIXES = (".py", ".json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.on_card.pack", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="the libraries, in pkg/")
    parser.add_argument("--entries", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True, metavar="ARCHIVE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(opened_by(given.one, given.entries, given.packages)))
        return 0
    entries.prepare(given.entries, given.packages)
    names = [name for name in entries.load(given.entries) if recipes.recipe(name) is not None]
    files, modules = set[str](), set[str]()
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, found in zip(names, pool.map(lambda name: _asked(given, name), names), strict=True):
            print(f"{name}: {len(found['files'])} files {found['error']}", flush=True)
            files |= set(found["files"])
            modules |= set(found["modules"])
    folder = given.packages.resolve() / "pkg"
    for name in WHOLE:
        files |= {str(path) for path in (folder / name).rglob("*") if path.suffix in SUFFIXES}
    with tarfile.open(given.to, "w:xz", preset=9) as archive:
        for path in sorted(files):
            archive.add(path, f"packages/pkg/{Path(path).relative_to(folder)}")
        for path in sorted(given.entries.iterdir()):
            if path.suffix in SUFFIXES:
                archive.add(path, f"entries/{path.name}")
    print(f"{len(files)} files, {given.to.stat().st_size / 1e6:.1f} MB; other packages: {' '.join(sorted(modules))}")
    return 0


def _asked(given: argparse.Namespace, name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.outside.on_card.pack", "--one", name, "--to", str(given.to),
               "--packages", str(given.packages), "--entries", str(given.entries)]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True)
    try:
        found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        found = {"files": [], "modules": [], "error": said.stderr[-300:]}
    return found


def opened_by(name: str, folder: Path, packages: Path) -> dict[str, Any]:
    """Files below the packages that an entry opens or imports, other packages that it imports, and its error if any."""
    root = str((packages / "pkg").resolve())
    opened = set[str]()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and f"{os.sep}pkg{os.sep}" in arguments[0]:
            opened.add(arguments[0])

    import torch  # noqa: F401  # what it imports is no package of an entry's
    import triton

    from tests.outside.on_card.launches import Watch  # noqa: F401

    before = set(sys.modules)
    entries.prepare(folder, packages, pretend=True)
    sys.addaudithook(note)
    triton.runtime.jit.JITFunction.run = lambda *args, **kwargs: None  # type: ignore[method-assign]
    triton.runtime.autotuner.Autotuner.run = _first  # type: ignore[method-assign]
    recipe = recipes.recipe(name)
    assert recipe is not None
    error = ""
    try:
        for sizes in recipe.sizes:
            entry = entries.load(folder, sizes.changes)[name]
            with inputs.filled(inputs.Filler({}, lambda tensor: tensor), folder):
                entry["launch"]()
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"[:300]
    imported = [str(getattr(module, "__file__", None) or "") for module in sys.modules.values()]
    files = {os.path.realpath(path) for path in (*opened, *imported) if path.endswith(SUFFIXES)}
    files = {path for path in files if path.startswith(root) and os.path.isfile(path)}
    others = {one.partition(".")[0] for one in set(sys.modules) - before if _is_installed(one)}
    return {"files": sorted(files), "modules": sorted(others), "error": error}


def _first(autotuner: Any, *args: Any, **kwargs: Any) -> None:
    """Of an autotuner's configurations any one, for what is done before its launch."""
    config = autotuner.configs[0]
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()})
    autotuner.best_config = config


def _is_installed(name: str) -> bool:
    path = str(getattr(sys.modules[name], "__file__", None) or "")
    return "site-packages" in path


if __name__ == "__main__":
    sys.exit(main())
