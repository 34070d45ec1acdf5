"""Which plans tune=N times, and which arguments must be copied before. Nothing is simulated."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import plain_module
from tests.support.shipped import numbered_function, shipped
from tests.support.verified import specialize
from wspec.diagnostics import Declined
from wspec.ir import print_module
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.plan.plan import Plan, is_shallow
from wspec.planner.decide import decide, function_of
from wspec.tune.candidates import candidates
from wspec.tune.variations import DECISIONS, RULE, in_words, same, variations
from wspec.tune.writes import written_arguments

MACHINE = load_machine("h200")
ATTENTION = "attention.py:attention_fwd"
PRODUCT = "matmul.py:matmul_descriptor_kernel"
ODD = {case.name: case for case in odd_cases()}


@pytest.fixture(scope="module")
def attention() -> dict[str, Plan]:
    return candidates(shipped(ATTENTION, "d64"), MACHINE, Options())


def test_the_planners_own_comes_first(attention: dict[str, Plan]) -> None:
    module = shipped(ATTENTION, "d64")
    numbered_function(module)
    assert next(iter(attention)) == RULE and attention[RULE] == decide(module, MACHINE, Options(gate="off"))


def test_every_candidate_is_a_kernel_of_its_own(attention: dict[str, Plan]) -> None:
    plans = list(attention.values())
    assert len(plans) >= 5 and not any(same(a, b) for at, a in enumerate(plans) for b in plans[:at])
    for name, plan in attention.items():
        outcome = specialize(shipped(ATTENTION, "d64"), Options(gate="off"), plan=plan)
        assert outcome.module is not None, (name, outcome.remarks)


def test_they_stand_in_the_order_of_the_model(attention: dict[str, Plan]) -> None:
    """Neighbours load less, nothing late leaves units alone in turn; of equals those that walk through tiles lead."""
    names = list(attention)
    assert names[1] == "a team of 3" and names.index("nothing late") > names.index("rings of 3")
    assert names[-1] == "with a third task"
    order = [
        (plan.prediction.iteration_cycles, is_shallow(plan.channels), not plan.persistent)
        for plan in attention.values()
    ]
    assert order[1:] == sorted(order[1:]) and len({cycles for cycles, *_ in order}) > 4


def test_rings_of_one_come_after_their_equals() -> None:
    found = list(candidates(shipped(ATTENTION, "d128"), MACHINE, Options()).values())
    first = next(at for at, plan in enumerate(found) if is_shallow(plan.channels))
    equals = found[0].prediction.iteration_cycles
    assert all(is_shallow(p.channels) or p.prediction.iteration_cycles > equals for p in found[first:])


def test_what_a_person_decided_stays() -> None:
    found = candidates(shipped(PRODUCT, "bf16"), MACHINE, Options(depth=2, persistent=False))
    for plan in found.values():
        assert not plan.persistent and {c.depth for c in plan.channels if not c.stays and not c.source} == {2}


def test_the_gate_is_not_asked_and_the_module_stays() -> None:
    module = shipped(PRODUCT, "bf16")
    before = print_module(module)
    assert len(candidates(module, MACHINE, Options(gate="model"))) > 2
    assert print_module(module) == before


def test_a_kernel_that_cannot_be_specialized() -> None:
    with pytest.raises(Declined):
        candidates(plain_module(ODD["doubling"]), MACHINE, Options())


def test_variations_have_names_of_their_own(attention: dict[str, Plan]) -> None:
    found = list(variations(Options(), attention[RULE]))
    assert {name for change in found for name in change} <= DECISIONS
    names = [in_words(change) for change in found]
    assert len(set(names)) == len(names)


def test_a_launch_loads_no_simulator() -> None:
    """What `wspec.compile` needs, with tuning: neither simulator nor search nor reports of them."""
    code = "import sys, wspec.api, wspec.tune.candidates; from wspec.bridge.ahead import COMPILER; "
    code += "[__import__(name) for name in COMPILER]; print(*sorted(one for one in sys.modules if one[:6] == 'wspec.'))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "wspec.tune.candidates" in loaded
    assert not [
        name for name in loaded if name.startswith(("wspec.lab.simulate", "wspec.lab.search", "wspec.lab.bench"))
    ]


def test_what_is_written() -> None:
    assert written_arguments(function_of(shipped(ATTENTION, "d128"))) == {"o_desc", "lse_ptr"}
    assert written_arguments(function_of(shipped(PRODUCT, "bf16"))) == {"c_desc"}
    assert written_arguments(function_of(plain_module(ODD["device_descriptors"]))) == {"c_ptr"}
    assert written_arguments(function_of(plain_module(ODD["same_memory"]))) == {"a_desc"}
