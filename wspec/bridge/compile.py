"""One specialization of a kernel: decide, compile, store; the plain kernel whenever anything is in the way."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wspec.bridge import cache
from wspec.bridge.backend import Finished, finish
from wspec.bridge.cache import Group, Result, may_reuse
from wspec.bridge.digest import is_library_hashed
from wspec.bridge.files import kernel_location
from wspec.bridge.frontend import KernelSource, lower
from wspec.bridge.isolate import finish_isolated
from wspec.bridge.plain import PlainSpills
from wspec.bridge.proof import Checker, Proving, rule, rule_ptx
from wspec.bridge.ptx.edits import NO_EDITS, PtxEdits
from wspec.bridge.reproducer import failure, first_line, write_reproducer
from wspec.bridge.sass.miscompiled import refusal
from wspec.bridge.sass.ptxas_log import ptxas_notes, spill_bytes
from wspec.bridge.sass.resources import sass
from wspec.bridge.sass.spills import spills_while_multiplying
from wspec.bridge.text import BridgeError
from wspec.bridge.undivided import with_descriptors_alone
from wspec.diagnostics import Declined, Remark
from wspec.host_descriptors import Promotion, compared
from wspec.ir.disjoint import NONE, Disjoint
from wspec.ir.loc import FileLoc
from wspec.options import Options
from wspec.target.hopper import BLOCK_SHARED_BYTES, BLOCK_THREADS
from wspec.tile_scheduler import LaunchWay, TileLoop


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the compiler made of a TTGIR text."""

    text: str | None  # specialized TTGIR; None to leave the kernel alone
    plan: str = ""
    remarks: tuple[Remark, ...] = ()
    tile_loop: TileLoop | None = None  # as Result has it
    blocks_per_sm: int = 1
    stages: Mapping[str, str] = field(default_factory=dict)
    edits: PtxEdits = NO_EDITS  # as `bridge.finish` takes them
    disjoint: Disjoint = NONE  # what the text takes for granted of its arguments
    ways: tuple[LaunchWay, ...] = ()  # as Result has them
    promotion: Promotion | None = None  # as Result has it


Compiler = Callable[[str], Verdict]
"""TTGIR to a verdict. One that has `alternatives` (of a verdict and of the code of what ptxas did: other compilers) is
asked for them when ptxas spoils what it made, or it is not proved."""

_SPOILT = ("serialized-wgmma", "registers")  # what ptxas does to kernels whose values do not fit
_REFUSED = ("shared-memory", "miscompiled", "check-undecided")
"""Why a binary would not run, would compute something else, or is not known not to."""
OUT_OF_TIME = "out-of-time"  # the code that stands for what was not proved in the time there is
_PATIENCE_S = 12.0  # of processor time, after which no further alternative is begun: compiling must end


def compile_lowered(
    source: KernelSource, ttir: str, text: str, options: Options, compiler: Compiler, checker: Checker, key: str
) -> tuple[Result, Group]:
    """From TTIR and TTGIR of `source` to a result, stored under `key`. The source may be one of `elsewhere`."""
    verdict = judge(source, text, compiler, options)
    return Job(source, options, compiler, checker).compiled(ttir, text, lambda: key, verdict)


Key = Callable[[], str]
"""The key of a kernel; the first one of a process waits for the digest of libtriton."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What of a kernel has been done before its key is known."""

    lowered: tuple[str, str] | None = None  # TTIR and TTGIR
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    result: Result
    finished: Finished | None = None  # the specialized kernel, which may be one that may not run
    stored: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to be compiled, and who compiles and checks it."""

    source: KernelSource
    options: Options
    compiler: Compiler
    checker: Checker
    plan: str = ""  # that a person gave

    @property
    def place(self) -> FileLoc:
        return kernel_location(self.source)

    def obtained(self, key: Key, looked: bool) -> tuple[Result, Group]:
        """Made now, or by another process since. `looked`: the cache has been asked."""
        source, options, plan = self.source, self.options, self.plan
        begun = _Begun() if looked else self._begun()
        if may_reuse(options) and not looked and (begun.verdict is None or is_library_hashed()):
            found = cache.load_awaited(key(), source)
            if found is not None:
                if begun.lowered is not None:
                    cache.note_stored(source, options, plan)
                return found
        made = self._made(key, begun)
        if made[1]:
            cache.note_stored(source, options, plan)
        return made

    def _begun(self) -> _Begun:
        """What can be done while the first key of a process still waits for the digest of libtriton.

        Nothing where the kernel seems to be in the cache. Where it does not and the digest is not there by then, the
        cache is not asked, and the kernel goes on to LLVM and ptxas: its key is needed when something is to be stored.
        """
        source, options = self.source, self.options
        if is_library_hashed() or (may_reuse(options) and cache.seems_stored(source, options, self.plan)):
            return _Begun()
        try:
            lowered = lower(source)
        except BridgeError:  # `_made` says so
            return _Begun()
        return _Begun(lowered, None if is_library_hashed() else self._judged(lowered[1]))

    def _made(self, key: Key, begun: _Begun) -> tuple[Result, Group]:
        """The same, made now, or from an equal kernel that this process made under another key."""
        source = self.source
        try:
            ttir, text = begun.lowered or lower(source)
        except BridgeError as error:  # the plain kernel will tell whether it is ours or the kernel's own
            message = f"libtriton refused {source.name} before wspec saw it: {error.message}"
            return Result(False, (Remark("compile-error", message, self.place, severity="error"),)), {}
        verdict = begun.verdict or self._judged(text)
        if verdict.text is None:
            return self.compiled(ttir, text, key, verdict)
        share = cache.share(source, text, self.options, self.plan)
        if may_reuse(self.options) and cache.is_shared(share):
            found = cache.load_shared(share, key(), source, verdict.plan, cache.sha256(verdict.text))
            if found is not None:
                return found
        made = self.compiled(ttir, text, key, verdict)
        cache.remember(share, key())
        return made

    def _judged(self, text: str, compiler: Compiler | None = None) -> Verdict:
        return judge(self.source, text, compiler or self.compiler, self.options)

    def compiled(self, ttir: str, text: str, key: Key, verdict: Verdict) -> tuple[Result, Group]:
        """From a verdict to a result, stored under its key."""
        source, options = self.source, self.options
        plain = PlainSpills(source, ttir)
        made = self.finished(verdict, plain)
        if _spoilt(made) is not None:
            verdict, made = self._alternative(text, verdict, made, plain)
        _dump(source, key, options, {"ttir": ttir, "ttgir": text, **verdict.stages}, verdict, made.finished)
        if not made.stored or any(one.code in ("internal-error", "compile-error") for one in made.result.remarks):
            return made.result, {}
        result = made.result if verdict.text is None else replace(made.result, module=cache.sha256(verdict.text))
        finished = made.finished if result.specialized else None
        if not result.specialized:
            result, finished = with_descriptors_alone(source, ttir, text, self.compiler, options, result, self.place)
        return cache.store(key(), source, result, ttir, finished)

    def _alternative(self, text: str, verdict: Verdict, made: _Made, plain: PlainSpills) -> tuple[Verdict, _Made]:
        """The first alternative that ptxas does not spoil, with a word on why it is taken. Where there is none: with
        gate=off the one that spills least, otherwise what was made before."""
        before = _spoilt(made)
        assert before is not None
        ask: Callable[[Verdict, str], tuple[Compiler, ...]] = getattr(self.compiler, "alternatives", lambda *_: ())
        best, tried = (verdict, made), {verdict.text}
        begun = _processor_seconds()
        code = OUT_OF_TIME if before.code == "check-undecided" and not made.stored else before.code
        for other in ask(verdict, code):
            if _processor_seconds() - begun > _PATIENCE_S:
                break
            found = self._judged(text, other)
            if found.text is None or found.text in tried:
                continue
            tried.add(found.text)
            finished = self.finished(found, plain)
            if not finished.result.specialized:
                continue
            why = replace(before, severity="remark", note=f"so another plan was taken, {getattr(other, 'name', '')}")
            told = replace(finished, result=replace(finished.result, remarks=(*finished.result.remarks, why)))
            if _spoilt(finished) is None:
                return found, told
            if not best[1].result.specialized or _spilled(finished) < _spilled(best[1]):
                best = found, told
        return best

    def finished(self, verdict: Verdict, plain: PlainSpills) -> _Made:
        """What the back end and the checker make of a verdict."""
        source, options, place = self.source, self.options, self.place
        if verdict.text is None:
            return _Made(Result(False, verdict.remarks, verdict.plan))
        proving = Proving(self.checker, verdict.disjoint, options)
        try:
            run = finish_isolated if options.isolate else finish
            finished = run(verdict.text, source, verdict.edits, proving.begin)
        except Exception as error:  # whatever it is, the plain kernel runs, and the remark says so
            details = error.diagnostics if isinstance(error, BridgeError) else traceback.format_exc()
            path = write_reproducer(source.name, verdict.text, details, options)
            message = f"the specialized {source.name} does not compile: {first_line(error)}"
            return _declined(verdict, failure("compile-error", message, place, path))
        too_big = _over_limit(place, finished)
        if too_big is not None:
            return _declined(verdict, too_big)
        advice = _advice(place, finished, plain)
        grave = [remark for remark in advice if remark.severity == "warning"]
        if grave and options.gate == "model":
            return _declined(verdict, grave[0])
        wrong = _may_lose_values(place, grave) or refusal(source.name, place, finished, options)
        if wrong is not None:
            return _declined(verdict, wrong)
        ruling = rule(source.name, place, finished.final, proving.proof, options)
        if not ruling.accepted:
            result = _declined(verdict, *ruling.remarks).result
            return _Made(replace(result, proof=ruling.line), finished, stored=ruling.final)
        ptx = rule_ptx(source.name, place, finished, options)
        line = "; ".join(filter(None, (ruling.line, ptx.line)))
        if not ptx.accepted:
            return _Made(replace(_declined(verdict, *ptx.remarks).result, proof=line), finished)
        remarks = (*verdict.remarks, *advice, *ruling.remarks)
        made = Result(
            True, remarks, verdict.plan, finished.ptxas_log, line, verdict.tile_loop, verdict.blocks_per_sm,
            compared(verdict.disjoint, verdict.promotion), ways=verdict.ways, promotion=verdict.promotion,
            rows=ruling.rows,
        )  # fmt: skip
        return _Made(made, finished)


def _spoilt(made: _Made) -> Remark | None:
    """What the back end or the checker made of a kernel that the model wants: it is left alone for that, but with
    gate=off where the binary would run."""
    result = made.result
    reason = None if result.specialized else result.reason
    if reason is not None and reason.code in _REFUSED:
        return reason
    return next((one for one in result.remarks if one.code in _SPOILT and one.severity == "warning"), None)


def _processor_seconds() -> float:
    """Of this process and those that it has waited for, such as ptxas."""
    return sum(os.times()[:4])


def _spilled(made: _Made) -> int:
    return spill_bytes(made.result.ptxas_log)


# ------------------------------------------------------------------------------------------ our own failures


def judge(source: KernelSource, text: str, compiler: Compiler, options: Options) -> Verdict:
    """What `compiler` says of the text; whatever it raises becomes a remark and a reproducer. Never raises."""
    try:
        return compiler(text)
    except Declined as declined:
        return Verdict(None, remarks=(declined.remark,))
    except Exception as error:
        path = write_reproducer(source.name, text, traceback.format_exc(), options)
        message = f"wspec failed on {source.name}: {type(error).__name__}: {first_line(error)}"
        return Verdict(None, remarks=(failure("internal-error", message, kernel_location(source), path),))


def _declined(verdict: Verdict, *why: Remark) -> _Made:
    """Left alone after all: what the compiler said of its success does not hold."""
    remarks = tuple(remark for remark in verdict.remarks if remark.code != "specialized")
    return _Made(Result(False, (*remarks, *why), verdict.plan))


# ------------------------------------------------------------------------------------- what the binary says


def _over_limit(place: FileLoc, finished: Finished) -> Remark | None:
    """A kernel that would not launch."""
    shared, threads = finished.metadata["shared"], finished.metadata["num_warps"] * 32
    if shared > BLOCK_SHARED_BYTES:
        message = f"the specialized kernel needs {shared} bytes of shared memory of {BLOCK_SHARED_BYTES}"
        return Remark("shared-memory", message, place, note="use smaller tiles or a smaller depth")
    if threads > BLOCK_THREADS:
        return Remark("registers", f"the specialized kernel needs {threads} threads of {BLOCK_THREADS}", place)
    return None


def _advice(place: FileLoc, finished: Finished, plain: PlainSpills) -> list[Remark]:
    """What ptxas did that may cost speed; for the warnings among it the kernel is left alone under the gate."""
    found = []
    note = "use smaller tiles or more warps, or try overlap=False; gate=off runs it all the same"
    if spilled := spill_bytes(finished.ptxas_log):
        message = f"ptxas spilled {spilled} bytes of the specialized kernel's registers"
        if spilled > (before := plain.bytes):
            beside = f" and {before} of the plain one's" if before else ""
            hot = "" if spills_while_multiplying(sass(finished.cubin)) else ", none of them in a loop that multiplies"
            found.append(Remark("registers", f"{message}{beside}{hot}", place, note=note, severity="warning"))
        else:
            found.append(Remark("registers", f"{message}, {before} of the plain one's", place))
    if notes := ptxas_notes(finished.ptxas_log):
        message = f"ptxas serialized the specialized kernel's wgmma ({', '.join(notes)})"
        found.append(Remark("serialized-wgmma", message, place, note=note, severity="warning"))
    return found


def _may_lose_values(place: FileLoc, grave: Sequence[Remark]) -> Remark | None:
    """ptxas 12.8.93 loses values that it spills between products that it serialized (docs/results/fuzzing.md,
    105033008). Where the plain kernel spills as much it is as likely to; where ours spills more we would make it so."""
    if {one.code for one in grave} != set(_SPOILT):
        return None
    message = f"{'; '.join(one.message for one in grave)}; ptxas was seen to lose spilled values of such a kernel"
    return Remark("miscompiled", message, place, note="use smaller tiles or more warps")


def _dump(
    source: KernelSource, key: Key, options: Options, stages: Mapping[str, str], verdict: Verdict, done: Finished | None
) -> None:
    """Every stage as a numbered file in the folder the user named."""
    if options.dump is None:
        return
    folder = Path(options.dump) / f"{source.name[:100]}-{key()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    texts = dict(stages)
    if verdict.text is not None:
        texts["specialized"] = verdict.text
    if done is not None:
        texts |= {"final": done.final, "llir": done.llir, "ptx": done.ptx, "ptxas-log": done.ptxas_log}
    for number, (stage, text) in enumerate(texts.items()):
        (folder / f"{number:02}-{stage}.txt").write_text(text)
