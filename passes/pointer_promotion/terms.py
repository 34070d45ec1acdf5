"""Terms of an address that vary between programs, gathered into as few dimensions of a descriptor as may be."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from wspec.passes.pointer_promotion.addresses import Monomial, Polynomial, add

Terms = dict[tuple[Monomial, int], dict[Monomial, int]]
"""By their stride, and how many of it they come in where that is a number: terms that vary, without it."""

IsFound = Callable[[Polynomial], bool]
"""Does it depend on what only the kernel knows?"""


def gathered(found: Terms, is_found: IsFound) -> Terms:
    """With terms that are taken away (`b` in `b - b / n * n`) where there is another term of their stride.

    Alone they would be places before the first one.
    """
    kept = dict(found)
    for (stride, apart), terms in found.items():
        if not stride or min(terms.values()) >= 0 or is_found(terms):
            continue
        for other in kept:
            more = without(stride, other[0])
            if other[0] and more and (stride, apart) in kept and not is_found(kept[other]):
                moved = {tuple(sorted((*varying, *more))): factor for varying, factor in terms.items()}
                kept[other] = dict(add(kept[other], moved))
                del kept[stride, apart]
                break
    return {key: dict(terms) for key, terms in kept.items() if terms}


def fewer(found: Terms, most: int, is_found: IsFound) -> Terms:
    """With one dimension for two whose strides have common factors, until there are so many."""
    kept = dict(found)
    while len(kept) > most:
        shared = {
            (one, other): common(one[0], other[0])
            for one, other in itertools.combinations(kept, 2)
            if not is_found(kept[one]) and not is_found(kept[other])
        }
        pair = max(shared, key=lambda pair: len(shared[pair]), default=None)
        if pair is None or not shared[pair]:
            break
        together: dict[Monomial, int] = {}
        for key in pair:
            more = without(key[0], shared[pair]) or ()
            moved = {tuple(sorted((*varying, *more))): factor for varying, factor in kept.pop(key).items()}
            together = dict(add(together, moved))
        already = kept.pop((shared[pair], 0), {})
        kept[shared[pair], 0] = dict(add(together, already))
    return kept


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """The other factors of a product; None if it has not all of these."""
    left = list(monomial)
    for one in factors:
        if one not in left:
            return None
        left.remove(one)
    return tuple(left)


def common(one: Monomial, other: Monomial) -> Monomial:
    """The factors that two products share."""
    return tuple((Counter(one) & Counter(other)).elements())
