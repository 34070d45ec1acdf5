"""What the fuzzer has to say of a case, as values that can be pickled and counted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

OURS = (
    "compiler",  # wspec raised something that is no reason to leave a kernel alone
    "reason",  # a kernel was left alone without a reason, or specialized without saying so
    "options",  # the plan is not what the options ask for
    "verifier",  # libtriton does not accept the specialized module
    "finishing",  # Triton's last passes over TTGIR do not take the specialized module
    "back end",  # the specialized module does not get to a cubin, though the plain one does
    "checker",  # the checker says that there is a race or a deadlock, or fails
    "executor",  # the plain module does not run
    "run",  # the specialized module does what no kernel may
    "plain differs",  # the plain module computes something else than the program
    "specialized differs",  # the specialized module does
    "bits",  # plain and specialized modules are both near enough, but not the same
    "crash",  # the process died, or took too long, after wspec had taken over
)
NOT_OURS = (
    "program",  # the program means nothing: a fault of the generator
    "front end",  # Triton does not accept the kernel, or dies of it
    "plain back end",  # Triton does not get the plain module to a cubin
)
STAGES = (*NOT_OURS, *OURS)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that went wrong, in the stage that noticed."""

    stage: str  # one of STAGES
    message: str
    kind: str = ""  # what kind of fault, where that is known in a word

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise ValueError(f"no stage: {self.stage}")

    @property
    def ours(self) -> bool:
        return self.stage in OURS

    @property
    def signature(self) -> str:
        """The same for the same fault in other kernels, as far as can be told: numbers and names are left out."""
        if self.kind:
            return f"{self.stage}: {self.kind}"
        first = next((line.strip() for line in self.message.splitlines() if line.strip()), "")
        text = re.sub(r"\S*/\S+\.(py|mlir)\S*|fuzz_\w+\.py\S*|<ir>:\S+", "", first)
        text = re.sub(r"#\w+[\w.]*(<\{.*?\}>)?|%\w+|'[\w ]+'", "", text)
        text = re.sub(r"(tensor|memdesc)<[^<>]*>", "", text)
        text = re.sub(r"\b(in|out|vector|table|x|w|s|t|acc|kept|top|total|p|v|i)\d*\b", "", text)
        text = re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "", text)
        return f"{self.stage}: {' '.join(re.sub('[^a-zA-Z]+', ' ', text).split())[:100]}"

    def __str__(self) -> str:
        return f"[{self.stage}] {self.message}"


@dataclass(slots=True)
class Verdict:
    """What became of one case."""

    code: str = ""  # the compiler's reason code
    findings: list[Finding] = field(default_factory=list)
    features: frozenset[str] = frozenset()
    cubin: bool = False
    checked: str = ""  # "proved", "error", or "undecided" with what is not decided
    runs: int = 0  # of the executor
    compared: int = 0  # launches of which all three opinions were compared
    promoted: int = 0  # loads and stores through pointers that became a descriptor's
    guarded: int = 0  # launches that the plain kernel runs, since a descriptor would not be the same
    unsure: int = 0  # launches that rounding might decide: only plain and specialized were compared
    exact: int = 0  # elements that had to agree in every bit with the reference
    elements: int = 0  # elements compared
    seconds: dict[str, float] = field(default_factory=dict)  # stage -> time
