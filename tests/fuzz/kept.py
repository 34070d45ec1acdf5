"""Cases in files: what failed once, to be tried again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fuzz.case import Case
from tests.fuzz.findings import Finding
from tests.fuzz.printer import source

REGRESSIONS = Path(__file__).parent / "regressions"
MESSAGE = 2000  # characters of a message that are kept
WIDTH = 120  # of a line


@dataclass(frozen=True, slots=True)
class Kept:
    """A case, and what was wrong with it. `open` says why it still is, until it is mended."""

    case: Case
    finding: Finding
    number: int  # of the kernel it was made from
    open: str = ""

    def save(self, folder: Path) -> Path:
        """Write it to a file in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.finding.stage.replace(' ', '_')}_{self.number}.json"
        data = {
            "finding": {**asdict(self.finding), "message": self.finding.message[:MESSAGE]},
            "open": self.open,
            "number": self.number,
            "source": source(self.case.program).splitlines(),
            "case": json.loads(self.case.to_json()),
        }
        path.write_text(readable(data) + "\n")
        return path

    @staticmethod
    def load(path: Path) -> Kept:
        data = json.loads(path.read_text())
        case = Case.from_json(json.dumps(data["case"]))
        return Kept(case, Finding(**data["finding"]), data["number"], data["open"])


def readable(value: object, indent: str = "") -> str:
    """JSON in which what fits stands on one line: a statement of a program is one, as far as it can be."""
    short = json.dumps(value)
    if len(indent) + len(short) <= WIDTH or not isinstance(value, dict | list):
        return short
    deeper, ends = indent + " ", "{}" if isinstance(value, dict) else "[]"
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    parts = value.values() if isinstance(value, dict) else value
    lines = [f"{deeper}{name}{readable(part, deeper)}" for name, part in zip(names, parts, strict=True)]
    return "\n".join([ends[0], ",\n".join(lines), f"{indent}{ends[1]}"])


def kept(folder: Path = REGRESSIONS) -> dict[str, Kept]:
    """Every case of the folder, by the name of its file."""
    return {path.stem: Kept.load(path) for path in sorted(folder.glob("*.json"))}


def open_signatures(folder: Path = REGRESSIONS) -> frozenset[str]:
    """Signatures of what is written down in the folder and not mended yet."""
    return frozenset(one.finding.signature for one in kept(folder).values() if one.open)
