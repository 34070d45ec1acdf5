"""How far the outputs of `wspec run` are off, and the table that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from rich.table import Table
from torch import Tensor

from wspec.cli.run_inputs import Output
from wspec.execute import Result
from wspec.show.tables import table


@dataclass(slots=True)
class Worst:
    """The largest errors seen of one output."""

    error: float | None = None  # None: compared with nothing
    relative: float = 0.0  # the error over the largest expected number
    share: float = 0.0  # of what its bound allows; over 1 is wrong
    bound: float | None = None  # where that is
    place: tuple[int, ...] = ()

    def add(self, output: Output, expected: Tensor) -> None:
        """Compare a tensor with what is expected."""
        self.error = self.error or 0.0
        if not expected.numel():
            return
        actual = output.tensor.double()
        same = (actual == expected) | (actual.isnan() & expected.isnan())
        error = torch.where(same, 0.0, (actual - expected).abs()).nan_to_num(nan=torch.inf)
        largest = float(expected[expected.isfinite()].abs().max()) if bool(expected.isfinite().any()) else 0.0
        worst = float(error.max())
        self.error = max(self.error, worst)
        self.relative = max(self.relative, worst / largest if largest else (torch.inf if worst else 0.0))
        if output.bound is not None:
            self._add_share(torch.where(error == 0, 0.0, error / output.bound).nan_to_num(nan=torch.inf), output.bound)

    def _add_share(self, shares: Tensor, bound: Tensor) -> None:
        at = int(shares.argmax())
        if self.bound is None or float(shares.flatten()[at]) > self.share:
            self.share, self.bound = float(shares.flatten()[at]), float(bound.flatten()[at])
            self.place = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), bound.shape))


@dataclass(slots=True)
class Line:
    """All runs of one kind."""

    what: str
    runs: int = 0
    operations: int = 0
    choices: int = 0
    seconds: float = 0.0
    worst: dict[str, Worst] = field(default_factory=dict)  # by output

    def add(self, result: Result) -> None:
        self.runs += 1
        self.operations += result.operations
        self.choices += result.choices
        self.seconds += result.seconds

    @property
    def wrong(self) -> list[str]:
        """What exceeds its bound, in words."""
        return [
            f"{name} of the {self.what} kernel is off by {_digits(worst.share * (worst.bound or 0.0))} at "
            f"{list(worst.place)}, where {_digits(worst.bound or 0.0)} is allowed"
            for name, worst in self.worst.items()
            if not worst.share <= 1
        ]


def view(lines: Iterable[Line], *, against: str) -> Table:
    """One row for each output of each kind of run; errors are against `against`."""
    numbers = ("runs", "error", "relative", "bound", "of bound", "operations", "choices", "seconds")
    made = table(
        f"errors against {against}",
        "kernel", "runs", "output", "error", "relative", "bound", "of bound", "operations", "choices", "seconds",
        right=numbers,
    )  # fmt: skip
    for line in lines:
        for at, (name, worst) in enumerate(line.worst.items()):
            bounds = ("-", "-") if worst.bound is None else (_digits(worst.bound), f"{worst.share:.2f}")
            spent = (str(line.operations), str(line.choices), f"{line.seconds:.2f}") if at == 0 else ("", "", "")
            head = (line.what, str(line.runs)) if at == 0 else ("", "")
            errors = ("-", "-") if worst.error is None else (_digits(worst.error), _digits(worst.relative))
            made.add_row(*head, name, *errors, *bounds, *spent)
    return made


def _digits(value: float) -> str:
    return f"{value:.3g}"
