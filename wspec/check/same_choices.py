"""Choices that are one thing some iterations apart.

A task whose loop was pipelined asks in front of it what another task asks in its first iteration, and in iteration i
what that one asks in i + 1. Where what conditions are made from is the same once the iteration of the innermost loop is
moved or given, so are their values: the search must not decide them one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.check.clock import timed
from wspec.check.conditions import Extents
from wspec.check.value_names import In, ValueNames

MOST = 8  # iterations


@dataclass(frozen=True, slots=True)
class Same:
    """What a choice is the same as."""

    number: int  # of another choice
    iteration: int  # of the innermost of that one's loops
    is_further: bool  # counted from the iteration in which it is asked for; else from 0


def same_choices(extents: Extents) -> dict[int, Same]:
    """By the numbers of those that are the same as others."""
    forms, chains = extents.form_of_choice, extents.chain_of_choice
    names = ValueNames(extents.terms)
    known = {names.sum(form): number for number, form in enumerate(forms)}
    found: dict[int, Same] = {}
    for number, (form, chain) in timed(list(enumerate(zip(forms, chains, strict=True)))):
        for iteration in range(MOST if chain else 0):
            for is_further in (True, False):
                other = known.get(names.sum(form, (In(chain[-1], iteration, is_further),)), number)
                around = chain if is_further else chain[: min(len(chain) - 1, len(chains[other]))]
                if other != number and chains[other] == around:
                    found[other] = Same(number, iteration, is_further)
    return {number: _last(found, same) for number, same in found.items()}


def _last(found: dict[int, Same], same: Same) -> Same:
    """What that is the same as in turn; each is about a later iteration than the one before it."""
    while (further := found.get(same.number)) is not None and further.is_further:
        same = Same(further.number, same.iteration + further.iteration, same.is_further)
    return same
