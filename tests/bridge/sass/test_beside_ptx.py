"""The machine code of shipped kernels beside their PTX; as it is, and with something left out, doubled or moved."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.ptx.shipped_ptx import pair
from tests.support.shipped import offline
from wspec.bridge.backend import assemble
from wspec.bridge.sass.beside_ptx import Compared, Expected, compare, keeps_order
from wspec.bridge.sass.encodings import TABLE
from wspec.bridge.sass.skeleton import Block, Label, Step, _steps, label_of, skeleton
from wspec.ptx.parser import read
from wspec.ptx.validation.validate import Validation

SHIPPED = [
    ("gathered.py:gathered_matmul_kernel", "small"),
    ("persistent.py:matmul_persistent_kernel", "square"),
    ("quantized.py:int8_weights_kernel", "m64"),
]
EXTRA = ("fence", "product wait", "copies wait", "product fence")
"""What ptxas adds on its own, so that one more is let pass; so is one more try of a wait, or to get registers."""
EVERY = 6  # of the mutants, one in so many is looked at


def expected(text: str) -> Expected:
    done = Expected.of(read(text))
    assert done is not None
    return done


@functools.cache
def made(kernel: str, variant: str) -> tuple[Expected, bytes]:
    """What the edited PTX does, and the binary of it."""
    found = pair(kernel, variant)
    assert found is not None
    return expected(found.edited), assemble(found.edited, offline(kernel, variant).source)[0]


@pytest.mark.parametrize("kernel", SHIPPED, ids=" ".join)
def test_what_we_ship_keeps_its_order(kernel: tuple[str, str]) -> None:
    said = keeps_order(Validation("PTX: fine"), *made(*kernel))
    assert said == Validation("PTX: fine; SASS: the same order")


def test_a_binary_of_another_kernel_does_not() -> None:
    said = keeps_order(Validation("PTX: fine"), made(*SHIPPED[0])[0], made(*SHIPPED[1])[1])
    assert said.refusal.startswith("in the machine code ")


def test_what_is_no_binary_is_not_compared() -> None:
    said = keeps_order(Validation("PTX: fine"), made(*SHIPPED[0])[0], b"")
    assert said == Validation("PTX: fine; SASS: not compared")


def mutants(code: Sequence[Block]) -> Iterator[tuple[str, Label, Label | None, tuple[Block, ...]]]:
    """(what was done, to what, past what, the code)."""
    for number, block in enumerate(code):
        steps = block.steps
        at = [place for place, step in enumerate(steps) if step.label is not None]

        def changed(*parts: Sequence[Step], block: Block = block, number: int = number) -> tuple[Block, ...]:
            one = replace(block, steps=tuple(step for part in parts for step in part))
            return (*code[:number], one, *code[number + 1 :])

        for count, place in enumerate(at):
            label = steps[place].label
            assert label is not None
            yield "drop", label, None, changed(steps[:place], steps[place + 1 :])
            yield "double", label, None, changed(steps[: place + 1], steps[place:])
            before = at[count - 1] if count else place
            if steps[before].label != label:
                parts = steps[:before], steps[place : place + 1], steps[before:place], steps[place + 1 :]
                yield "move", label, steps[before].label, changed(*parts)


def is_explained(operator: str, label: Label, past: Label | None) -> bool:
    """May it be accepted?"""
    if operator == "double":
        return label.name in (*EXTRA, "wait", "more")
    if operator == "drop":  # the second of two; a try of a wait that another try comes before
        return label.name in (*EXTRA, "wait")
    return past is not None and bool({label.name, past.name} & set(EXTRA))


@pytest.mark.parametrize("kernel", SHIPPED, ids=" ".join)
def test_mutants(kernel: tuple[str, str]) -> None:
    wanted, cubin = made(*kernel)
    code = skeleton(cubin)
    assert code is not None
    counts: Counter[tuple[str, bool]] = Counter()
    for operator, label, past, mutant in itertools.islice(mutants(code), None, None, EVERY):
        refused = bool(compare(wanted, mutant).difference)
        counts[operator, refused] += 1
        assert refused or is_explained(operator, label, past), (operator, label, past)
    for operator in ("drop", "double", "move"):
        assert counts[operator, True] >= counts[operator, False], counts
    assert sum(count for (_, refused), count in counts.items() if refused) > 2 * sum(counts.values()) / 3, counts


# ------------------------------------------------------------------------------------------- rules, one by one

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel()
.reqntid 128
{
	.reg .pred %p<9>;
	.reg .b32 %r<9>;
BODY
	ret;
}
"""
SYNC, OTHER, FENCE = Label("bar.sync", 2, 128), Label("bar.sync", 3, 128), Label("fence")
DOT, PRODUCT = Label("product"), "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1}, %r2, %r3, 1, 1, 1, 0, 0;"
INIT, WAIT, ARRIVE = Label("init"), Label("product wait", 1), Label("arrive")


def ptx(*lines: str) -> Expected:
    return expected(TEXT.replace("BODY", "\n".join(f"\t{line}" for line in lines)))


def straight(*labels: Label, guard: int | None = None) -> list[Block]:
    """One block."""
    return [Block(tuple(Step(label, guard, False, 0) for label in labels), (), None, True)]


def test_named_barriers_go_by_number_and_threads() -> None:
    one = ptx("bar.sync 2, 128;", "bar.sync 3, 128;")
    assert compare(one, straight(SYNC, OTHER)) == Compared()
    assert "nothing like it" in compare(one, straight(OTHER, SYNC)).difference
    assert "nothing like it" in compare(one, straight(SYNC, Label("bar.sync", 3, 256))).difference
    assert "goes on" in compare(one, straight(SYNC)).difference


def test_a_wait_may_be_for_more_and_stand_twice() -> None:
    one = ptx(PRODUCT, "wgmma.wait_group.sync.aligned 1;", "bar.sync 2, 128;")
    assert compare(one, straight(DOT, WAIT, SYNC)) == Compared()
    assert compare(one, straight(DOT, Label("product wait", 0), WAIT, SYNC)) == Compared()
    assert compare(one, straight(DOT, Label("product wait", 2), SYNC)).difference
    assert compare(one, straight(DOT, SYNC, WAIT)).difference


def test_a_wait_with_nothing_to_wait_for_may_be_left_out() -> None:
    one = ptx(PRODUCT, *2 * ("wgmma.wait_group.sync.aligned 0;", "bar.sync 2, 128;"))
    all_done = Label("product wait", 0)
    assert compare(one, straight(DOT, all_done, SYNC, SYNC)) == Compared()
    assert compare(one, straight(DOT, SYNC, all_done, SYNC)).difference


def test_a_wait_for_copies_may_stand_earlier() -> None:
    """Not before the copies, nor behind what it is to come before."""
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%r1, {%r2, %r3}], [%r4];"
    wait = "cp.async.bulk.wait_group.read 0;"
    one = ptx(store, "cp.async.bulk.commit_group;", PRODUCT, "bar.sync 3, 128;", wait, "bar.sync 2, 128;")
    stored, commit, waits = Label("store"), Label("commit"), Label("copies wait", 0)
    assert compare(one, straight(stored, commit, DOT, OTHER, waits, SYNC)) == Compared()
    assert compare(one, straight(stored, commit, waits, DOT, OTHER, SYNC)) == Compared()
    assert compare(one, straight(stored, waits, commit, DOT, OTHER, SYNC)).difference
    assert compare(one, straight(waits, stored, commit, DOT, OTHER, SYNC)).difference
    assert compare(one, straight(stored, commit, Label("copies wait", 1), DOT, OTHER, SYNC)).difference
    assert compare(one, straight(stored, commit, DOT, OTHER, SYNC, waits)).difference
    again = ptx(*2 * (store, "cp.async.bulk.commit_group;", wait, "bar.sync 2, 128;"))
    once = straight(stored, commit, waits, SYNC, stored, commit, SYNC)
    assert compare(again, once).difference, "what was stored since is not waited for"


def test_a_wait_for_elements_may_stand_earlier_too() -> None:
    """Both kinds of copies are waited for by one instruction; not before what belongs to the group."""
    copy, end, wait = "cp.async.cg.shared.global [%r1], [%r2], 16;", "cp.async.commit_group;", "cp.async.wait_group 0;"
    one = ptx(copy, end, PRODUCT, wait, "bar.sync 2, 128;")
    copied, commit, waits = Label("element"), Label("element commit"), Label("copies wait", 0)
    assert compare(one, straight(copied, commit, waits, DOT, SYNC)) == Compared()
    assert compare(one, straight(copied, waits, commit, DOT, SYNC)).difference
    assert compare(one, straight(waits, copied, commit, DOT, SYNC)).difference
    assert compare(one, straight(copied, commit, waits, copied, DOT, SYNC)).difference
    both = ptx(copy, end, PRODUCT, "cp.async.bulk.wait_group.read 0;", "bar.sync 2, 128;", wait, "bar.sync 3, 128;")
    assert compare(both, straight(copied, commit, waits, DOT, SYNC, OTHER)) == Compared()
    assert compare(both, straight(waits, copied, commit, DOT, SYNC, OTHER)).difference


def test_what_is_under_a_predicate_must_be_somewhere() -> None:
    one = ptx(*3 * ("@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;",), "bar.sync 2, 128;")
    assert compare(one, straight(INIT, INIT, INIT, SYNC)) == Compared()
    assert "not found" in compare(one, straight(INIT, INIT, SYNC)).difference
    assert compare(one, straight(INIT, INIT, INIT, INIT, SYNC)).difference


def test_either_of_two_under_opposite_predicates() -> None:
    one = ptx("@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];", "@!%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];")
    assert compare(one, straight(ARRIVE)) == Compared()


def test_each_of_two_copies_must_be_somewhere() -> None:
    """One behind the other where they arrive at one barrier, each under a predicate of its own."""
    load = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%r2, {%r3, %r4}], [%r5];"
    )
    one = ptx(f"@%p1 {load}", f"@%p2 {load}", "bar.sync 2, 128;")
    loaded = Label("load")
    assert compare(one, straight(loaded, loaded, SYNC)) == Compared()
    assert "not found" in compare(one, straight(loaded, SYNC)).difference


def test_what_is_never_executed_need_not_be_there() -> None:
    """LLVM takes the first iteration out of a loop, and what that does not hand back it leaves under `false`."""
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%r1];"
    never = ptx("mov.pred %p1, 0;", f"@%p1 {arrive}", "bar.sync 2, 128;")
    assert compare(never, straight(SYNC)) == Compared()
    for lines in (
        ("mov.pred %p1, -1;", f"@%p1 {arrive}"),
        ("mov.pred %p1, 0;", f"@!%p1 {arrive}"),
        ("mov.pred %p1, 0;", "setp.eq.s32 %p1, %r1, 0;", f"@%p1 {arrive}"),
        ("mov.pred %p2, 0;", f"@%p1 {arrive}"),
    ):
        assert "not found" in compare(ptx(*lines, "bar.sync 2, 128;"), straight(SYNC)).difference, lines


def test_a_predicate_is_followed_until_it_is_made_again() -> None:
    """Both barriers or none, as the PTX has it, where nothing comes between that makes the predicate anew."""
    one = ptx("@%p1 bra $L__BB0_1;", "bar.sync 2, 128;", "bar.sync 3, 128;", "$L__BB0_1:")
    both = (Step(SYNC, 0, False, 0), Step(OTHER, 0, False, 0))
    assert compare(one, [Block(both, (), None, True)]) == Compared()
    anew = (both[0], Step(None, None, False, 1), both[1])
    assert compare(one, [Block(anew, (), None, True)]).difference


def test_the_end_of_a_group_of_stores_counts_among_stores_alone() -> None:
    one = ptx("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;", "fence.proxy.async.shared::cta;")
    commit, waits = Label("commit"), Label("copies wait", 0)
    assert compare(one, straight(commit, waits, FENCE)) == Compared()
    assert compare(one, straight(FENCE, commit, waits, FENCE)) == Compared()
    assert compare(one, straight(waits, FENCE)).difference
    assert compare(one, straight(commit, commit, waits, FENCE)).difference


def test_the_end_behind_an_acquisition_may_be_one_more() -> None:
    """Of an empty group, unless a wait leaves groups under way: then it counts."""
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%r1, {%r2, %r3}], [%r4];"
    end, waits = "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read {};"
    flush, commit, stored = Label("flush"), Label("commit"), Label("store")
    for left, refused in ((0, False), (1, True)):
        wait = Label("copies wait", left)
        one = ptx("@%p1 " + end, "@%p1 " + waits.format(0), store, end, waits.format(left))
        behind = (stored, commit, wait)
        assert not compare(one, straight(flush, Label("copies wait"), *behind)).difference
        assert bool(compare(one, straight(flush, commit, Label("copies wait"), *behind)).difference) == refused
        assert compare(one, straight(flush, Label("copies wait"), stored, wait)).difference


@pytest.mark.parametrize(("before", "name"), [(0x000000000C0079B9, "flush"), (0x0000000000007918, "commit")])
def test_an_end_behind_an_acquisition_is_told_apart(before: int, name: str) -> None:
    words = [(before, 0x000FE20008000000), (0x00000000000079B7, 0x0001E20000000000)]
    assert [step.label for step in _steps(words, 0, 2, {}) if step.label] == [Label(name)]


def test_loops_may_be_peeled() -> None:
    one = ptx("$L__BB0_1:", "bar.sync 2, 128;", "@%p1 bra $L__BB0_1;", "bar.sync 3, 128;")
    loop = Block((Step(SYNC, None, False, 0),), (1,), 2, False, 0)
    peeled = [Block((Step(SYNC, None, False, 0),), (), 1, False), loop, *straight(OTHER)]
    assert compare(one, peeled) == Compared()
    assert compare(one, [Block((), (2,), 1, False, 0), loop, *straight(OTHER)]).difference  # perhaps not even once


def test_points_of_the_ptx() -> None:
    automaton = ptx("setmaxnreg.dec.sync.aligned.u32 24;", "bar.arrive 8, 256;", "bar.warp.sync -1;").all
    assert [point.label for point in automaton.points] == [Label("fewer", 24), Label("bar.arrive", 8, 256)]


@pytest.mark.parametrize(
    ("low", "high", "label"),
    [
        (0x0082000000007B1D, 0x000FE20000010000, Label("bar.sync", 2, 128)),
        (0x0204000000007B1D, 0x000FEC0000002000, Label("bar.arrive", 8, 256)),
        (0x00008000000079C5, 0x000FE40000010100, Label("product wait", 1)),
        (0x00000000000079C5, 0x000FE20000000000, Label("product fence")),
        (0x000000F0000079C8, 0x000E640008000600, Label("more", 240)),
        (0x00000018000079C8, 0x000E4000080E0500, Label("fewer", 24)),
        (0x000080400000791A, 0x000FC80000000000, Label("copies wait", 1)),
        (0x030210FFFFFF89A7, 0x000FE20008100008, Label("arrive")),
        (0x0000000000007918, 0x000FC00000000000, None),
    ],
)
def test_labels_of_instructions(low: int, high: int, label: Label | None) -> None:
    assert label_of(low, high) == label


def test_predicates_are_named_where_most_instructions_have_them() -> None:
    """Of what is not in the table nothing better is known."""
    named = {one.lstrip("UP") for line in TABLE.strip().split("\n") for one in line.split()[3].split(",")
             if one.startswith(("P", "UP"))}  # fmt: skip
    assert named == {"81", "84"}


def test_every_demand_for_registers_may_be_left_out_or_none() -> None:
    one = ptx("setmaxnreg.dec.sync.aligned.u32 24;", "bar.sync 2, 128;", "setmaxnreg.inc.sync.aligned.u32 240;")
    fewer, more = Label("fewer", 24), Label("more", 240)
    assert compare(one, straight(fewer, SYNC, more)) == Compared()
    assert compare(one, straight(SYNC)) == Compared()
    assert "goes on" in compare(one, straight(fewer, SYNC)).difference
    assert "nothing like it" in compare(one, straight(SYNC, more)).difference


def test_what_stands_behind_a_wait_that_is_left_out_is_found() -> None:
    arrive = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];"
    one = ptx(PRODUCT, "bar.sync 2, 128;", "wgmma.wait_group.sync.aligned 0;", arrive, "bar.sync 3, 128;")
    all_done = Label("product wait", 0)
    assert compare(one, straight(DOT, all_done, SYNC, ARRIVE, OTHER)) == Compared()
    assert (
        "arrive, which the PTX has under a predicate" in compare(one, straight(DOT, all_done, SYNC, OTHER)).difference
    )
    assert compare(one, straight(DOT, SYNC, ARRIVE, OTHER)).difference, "the products are not done"


def test_two_branches_that_are_alike_but_for_a_wait_that_is_left_out() -> None:
    """Where products are serialized each is waited for at once, and later waits are left out."""
    arrive, wait, sync = (
        "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];",
        "wgmma.wait_group.sync.aligned 0;",
        "bar.sync 2, 128;",
    )
    branches = sync, arrive, wait, sync, arrive, "bra $L2;", "$L1:", sync, arrive, sync, arrive, "$L2:"
    one = ptx(PRODUCT, wait, "@%p2 bra $L1;", *branches)
    all_done = Label("product wait", 0)
    assert compare(one, straight(DOT, all_done, SYNC, ARRIVE, SYNC, ARRIVE)) == Compared()
    for left_out in ((SYNC, SYNC, ARRIVE), (SYNC, ARRIVE, SYNC)):
        assert "not found" in compare(one, straight(DOT, all_done, *left_out)).difference
