"""What is said of mutants, and which of those that are accepted may be accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tests.ptx.edits_gone_wrong import wrong_edits
from tests.ptx.mutants import Mutant, mutants
from tests.ptx.shipped_ptx import Pair
from wspec import ir
from wspec.bridge.ptx.same_tiles import show_tiles
from wspec.bridge.ptx.side_by_side import NAMED_BARRIERS, protocols, show_order
from wspec.bridge.shared_memory import placement
from wspec.ir.shared_memory import Placement
from wspec.ptx.behaviour import Behaviour
from wspec.ptx.effects import ACCESSES, space
from wspec.ptx.errors import PtxError
from wspec.ptx.flow import blocks_of
from wspec.ptx.followed import Followed
from wspec.ptx.operands import Number
from wspec.ptx.parser import read
from wspec.ptx.registers import Writers
from wspec.ptx.roles import MEETING_BARRIER, roles_of
from wspec.ptx.syntax import Instruction, Label, Module
from wspec.ptx.validation.early_start import WAIT, Sources
from wspec.ptx.validation.validate import validate, validate_modules

_ELEMENTS = ("cp.async.ca.", "cp.async.cg.")
_WAIT_FOR_PRODUCTS = "wgmma.wait_group"
_MOST_GROUPS = 64  # of products under way, that are told apart
_AGAIN = "waitLoopAgain"
_MOST_STATES = 50_000  # of one task
_LAUNCHES = 60  # in which what a copy takes is compared, of mutants that are accepted


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of a mutant."""

    operator: str
    what: str
    verdict: str  # refused, equivalent, unexplained


def judged(pair: Pair, step: int = 1, first: int = 0) -> Iterator[Judgement]:
    """All mutants of a variant's edited PTX beside the PTX that LLVM wrote, or every `step`th from one on."""
    before, edited = read(pair.emitted), read(pair.edited)
    for number, mutant in enumerate(mutants(edited)):
        if number % step == first:
            said = validate_modules(before, mutant.of(edited), pair.constant)
            verdict = "refused" if said.refusal else "equivalent" if is_harmless(mutant) else "unexplained"
            yield Judgement(mutant.operator, mutant.what, verdict)
    for number, (what, text) in enumerate(wrong_edits(pair.emitted, pair.edited)):
        if number % step == first:
            said = validate(pair.emitted, text, pair.constant)
            fine = what.startswith("one more barrier gone") or (
                what.startswith(("a task", "waits behind")) and waits_for_nothing(pair, text)
            )
            yield Judgement("wrong edit", what, "refused" if said.refusal else "equivalent" if fine else "unexplained")


def is_harmless(mutant: Mutant) -> bool:
    """Is it of a kind that may be accepted? docs/results/mutants.md says why."""
    moved = mutant.operator in ("hoist", "sink")
    if mutant.what.startswith("griddepcontrol"):
        return moved or mutant.operator in ("drop", "double")
    if moved and mutant.past.startswith("griddepcontrol"):
        return True
    return (moved or mutant.operator == "drop") and mutant.what.startswith("bar.sync")


def waits_for_nothing(pair: Pair, text: str) -> bool:
    """Do tasks without a wait touch no memory but the table of tiles?"""
    entry = read(text).entry()
    blocks, sources = blocks_of(entry), Sources(entry)
    for role in roles_of(entry, blocks):
        inside = [one for number in role.blocks for one in blocks[number].instructions]
        if any(one.opcode == WAIT for one in inside):
            continue
        for one in inside:
            touches = one.name in ACCESSES and space(one) in ("global", "")
            if one.opcode.startswith("cp.async.bulk.tensor"):
                return False
            if touches and not sources.is_load_from(one, f"{entry.name}_param_{pair.constant}"):
                return False
    return True


def judged_order(pair: Pair, step: int = 1, first: int = 0) -> Iterator[Judgement]:
    """All mutants of the PTX that LLVM wrote beside the TTGIR, or every `step`th from one on."""
    module = ir.read(pair.final)
    function, placed = next(op for op in module.walk() if op.name == "tt.func"), placement(module)
    emitted = read(pair.emitted)
    named = {number for task in protocols(function, placed.areas) for number in task.named_barriers()}
    own = frozenset(range(NAMED_BARRIERS)) - named - {MEETING_BARRIER}
    for number, mutant in enumerate(mutants(emitted)):
        if number % step == first:
            changed = mutant.of(emitted)
            try:
                show_order(function, changed.entry(), placed)
                fine = holds_for_all(mutant) or is_same(mutant) or is_exchanged(mutant)
                fine = fine or is_about_order(mutant) or is_idle(emitted, changed)
                fine = fine or waits_for_no_product(mutant, emitted) or waits_for_the_same(mutant, emitted, own)
                fine = fine or takes_the_same(mutant, function, changed, placed)
                verdict = "equivalent" if fine else "unexplained"
            except PtxError:
                verdict = "refused"
            yield Judgement(f"{mutant.operator} (LLVM's)", mutant.what, verdict)


def is_same(mutant: Mutant) -> bool:
    """Is it done a second time, right behind the first, and that changes nothing? Or registers, which are counted; or
    the number of a barrier that nobody else has."""
    what = _bare(mutant.what)
    twice = ("bar.sync", "bar.warp.sync", "fence", "wgmma.fence", "setmaxnreg", "cp.async.ca.", "cp.async.cg.")
    if mutant.operator == "double" and what.startswith(twice):
        return True
    return what.startswith("setmaxnreg") or (mutant.operator == "number" and what.startswith("bar.sync"))


def is_exchanged(mutant: Mutant) -> bool:
    """Are two boxes of a tile copied in another order, that go to one mbarrier? Or elements?"""
    copies = _bare(mutant.what), _bare(mutant.past)
    if all(one.startswith(_ELEMENTS) for one in copies):
        return mutant.operator in ("hoist", "sink")
    bulk = all(one.startswith("cp.async.bulk.tensor.") and ".mbarrier::complete_tx" in one for one in copies)
    return mutant.operator in ("hoist", "sink") and bulk and len({one.rpartition("[")[2] for one in copies}) == 1


def is_idle(emitted: Module, changed: Module) -> bool:
    """Is the code that warps come to the same?"""
    return _executed(emitted) == _executed(changed)


def _executed(module: Module) -> list[list[str]]:
    """What synchronizes, in the code that warps come to, block by block."""
    entry = module.entry()
    blocks = blocks_of(entry)
    reached = {number for role in roles_of(entry, blocks) for number in (*role.blocks, *role.way, role.start[0])}
    return [[str(one) for one in blocks[number].instructions] for number in sorted(reached)]


def is_about_order(mutant: Mutant) -> bool:
    """Is it a barrier among the threads of a task, or a fence, that is gone or moved, or something moved past one? All
    orders that threads need are asked for again then."""
    free = ("bar.sync", "bar.warp.sync", "fence", "setmaxnreg", "wgmma.fence")
    moved = mutant.operator in ("hoist", "sink")
    what, past = _bare(mutant.what), _bare(mutant.past)
    return (moved and past.startswith(free)) or ((moved or mutant.operator == "drop") and what.startswith(free))


def holds_for_all(mutant: Mutant) -> bool:
    """Is it a predicate more, on what all threads of a task execute? It is accepted where it holds in all of them."""
    return mutant.operator == "predicate" and not mutant.what.startswith("@")


def waits_for_no_product(mutant: Mutant, emitted: Module) -> bool:
    """Is a wait for products gone, where no more of them are under way than it leaves, on any way through the text?"""
    one = _changed(mutant, emitted)
    if mutant.operator != "drop" or one is None or not one.opcode.startswith(_WAIT_FOR_PRODUCTS):
        return False
    return products_under_way(emitted)[one] <= _number(one)


def products_under_way(module: Module) -> Mapping[Instruction, int]:
    """How many groups of products may be, where these are waited for, before that."""
    blocks = blocks_of(module.entry())
    begins, work = {0: 0}, [0]
    found: dict[Instruction, int] = {}
    while work:
        number = work.pop()
        groups = begins[number]
        for one in blocks[number].instructions:
            if one.opcode.startswith("wgmma.commit_group"):
                groups = min(groups + 1, _MOST_GROUPS)
            elif one.opcode.startswith(_WAIT_FOR_PRODUCTS):
                found[one] = groups
                groups = min(groups, _number(one))
        for way in blocks[number].follow:
            if groups > begins.get(way, -1):
                begins[way] = groups
                work.append(way)
    return found


def _number(one: Instruction) -> int:
    first = one.operands[0]
    assert isinstance(first, Number) and first.value is not None
    return first.value


def waits_for_the_same(mutant: Mutant, emitted: Module, own: frozenset[int]) -> bool:
    """Is it another register of a wait at an mbarrier, that holds the same as the one before whenever it is executed?

    Both waits are put behind each other, and all registers followed together, on all ways. `own`: barriers of a task's
    own threads.
    """
    one = _changed(mutant, emitted)
    if mutant.operator != "register" or one is None or not one.opcode.startswith("mbarrier.try_wait"):
        return False
    body = emitted.entry().body
    at = body.index(one)
    label, back, other = body[at - 1], body[at + 1], mutant.body[at]
    assert isinstance(label, Label) and isinstance(back, Instruction) and isinstance(other, Instruction)
    again = [replace(label, name=label.name.replace(back.text, _AGAIN)), other, replace(back, text=_AGAIN)]
    entry = Mutant("", "", "", [*body[: at + 2], *again, *body[at + 2 :]]).of(emitted).entry()
    blocks, writers = blocks_of(entry), Writers(entry)
    roles = [role for role in roles_of(entry, blocks) if any(one in blocks[at].instructions for at in role.blocks)]
    try:
        return all(_hold_the_same(Followed(blocks, role, writers, own), one) for role in roles)
    except PtxError:
        return False


def _hold_the_same(code: Followed, one: Instruction) -> bool:
    """Does the wait behind this one ask for the same, on all ways through a task?"""
    behaviour = Behaviour(code, code.all)
    work = [(number, held, True) for number, held in behaviour.starts()]
    seen = set(work)
    while work and len(seen) < _MOST_STATES:
        for events, ways, _ in behaviour.outcomes(*work.pop()):
            if any(found is one for found, _ in events):
                following = [found for way in ways for found in behaviour.outcomes(*way)]
                if any([event for _, event in found[0]] != [event for _, event in events] for found in following):
                    return False
            more = {(*way, False) for way in ways} - seen
            seen |= more
            work += more
    return not work


def takes_the_same(mutant: Mutant, function: ir.Operation, changed: Module, placed: Placement) -> bool:
    """Is it another register of a copy, that holds the same whenever it is executed, in many launches?"""
    if mutant.operator != "register" or not _bare(mutant.what).startswith(("cp.async.bulk.tensor.", *_ELEMENTS)):
        return False
    blocks = blocks_of(changed.entry())
    roles, writers = roles_of(changed.entry(), blocks), Writers(changed.entry())
    try:
        show_tiles(function, blocks, roles, writers, placed.areas, fewest=_LAUNCHES)
    except PtxError:
        return False
    return True


def _changed(mutant: Mutant, emitted: Module) -> Instruction | None:
    """The first instruction that is gone or another one."""
    both = zip(emitted.entry().body, mutant.body, strict=False)
    found = next((one for one, other in both if one is not other), None)
    return found if isinstance(found, Instruction) else None


def _bare(text: str) -> str:
    """An instruction without its predicate."""
    return text.partition(" ")[2] if text.startswith("@") else text
