"""Between which numbers a sum lies whose terms hang together, which intervals of each do not say.

    begin - begin / 32 * 32              what is left over: 0 to 31
    last - turns                         not below zero, since a loop goes round `last + 1` times at most
    pid + turns * 132                    below `tiles`, where the loop goes round ceil((tiles - pid) / 132) times

All are exact in integers: `x / n * n` is `x - x % n`, the next multiple of n is less than n further, and a counter ends
before its loop's end does. So a sum is written in other forms, each of which bounds it. Only scalars that are known to
have stayed in their types are taken apart. Costs more than an interval, so it is asked where that does not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wspec.host_descriptors.ranges import (
    COUNTER,
    PLACE,
    Interval,
    Sum,
    Term,
    interval_of,
    interval_of_scalar,
    intervals,
    remainder_interval,
    term_interval,
)
from wspec.tile_scheduler.scalars import Scalar

Form = dict[tuple[int, ...], int]  # positions of scalars, sorted -> factor
MOST_TERMS = 64
_PARTS = ("addi", "subi", "muli", "cast", "constant", "argument", "induction")


def narrow_intervals(
    scalars: Sequence[Scalar], grid: tuple[int, int, int], values: Mapping[int, int]
) -> list[Interval]:
    """As `ranges.intervals`, with what is known of the terms of each sum together.

    So it serves what is computed of a sum: a group of tiles is not empty if the tile's number is below their count.
    """
    relations = Relations(scalars, intervals(scalars, grid, values))
    known = relations.known
    for at, scalar in enumerate(scalars):
        ends = interval_of_scalar(scalars, scalar, known, grid, values)
        known[at] = _both(known[at], ends)
        if scalar.name in ("addi", "subi"):
            known[at] = _both(known[at], relations.interval_of((Term(1, (at,)),)))
    return known[: len(scalars)]


def _both(one: Interval, other: Interval) -> Interval:
    """What lies in two intervals; the first one where that is nothing, as in a loop that no program enters."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else one


class Relations:
    """Of the scalars of a launch, with their intervals."""

    def __init__(self, scalars: Sequence[Scalar], known: Sequence[Interval]) -> None:
        self.scalars, self.known = scalars, list(known)
        self._rests: dict[tuple[int, int], int] = {
            (one.operands[0], one.operands[1]): at for at, one in enumerate(scalars) if one.name == "remsi"
        }
        self._added: dict[int, int] = {}  # quotient -> how much more than the dividend its multiple is

    def interval_of(self, sum: Sum) -> Interval:
        """Of a sum: no wider than `ranges.interval_of` has it."""
        low, high = interval_of(sum, self.known)
        form: Form = {}
        for term in sum:
            _add(form, term.scalars, term.factor)
        for other in self._forms(form):
            least, most = self._ends(other)
            low, high = max(low, least), min(high, most)
        return low, high

    def _forms(self, form: Form) -> Iterator[Form]:
        """Other forms of a sum that have its value."""
        form = self._apart(form)
        yield form
        for _ in range(4):
            form, was = self._apart(self._without_quotients(form)), form
            if form == was:
                return
            yield form

    def _ends(self, form: Form) -> Interval:
        """What intervals and the ends of counters say."""
        plain = self._plain(form)
        low, high = plain
        for at in {at for scalars in form for at in scalars if self._scalar(at) == COUNTER}:
            least, most = self._counted(form, at)
            low, high = max(low, least), min(high, most)
        return low, high

    def _plain(self, form: Form) -> Interval:
        ends = [term_interval(factor, scalars, self.known) for scalars, factor in form.items()]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    def _counted(self, form: Form, counter: int) -> Interval:
        """With a counter's last number, `(end - first - 1) / step`, in its place, where it stands alone."""
        first, end, step = self.scalars[counter].operands
        factor = form.get((counter,), 0)
        width = self.known[step][0]
        rest = {scalars: times for scalars, times in form.items() if scalars != (counter,)}
        if any(counter in scalars for scalars in rest) or self.known[step] != (width, width) or width < 1:
            return self._plain(form)
        if factor % width or not self._is_exact(end) or not self._is_exact(first):
            return self._plain(form)
        way = self._apart({(end,): 1, (first,): -1}) if end != first else {}
        last = width if all(times % width == 0 for times in way.values()) else 1  # so far it stops before the end
        for scalars, times in (((end,), 1), ((first,), -1), ((), -last)):
            _add(rest, scalars, times * (factor // width))
        low, high = self._plain(form)
        for other in self._forms(rest):
            least, most = self._plain(other)
            low, high = (max(low, least), high) if factor < 0 else (low, min(high, most))
        return low, high

    # --------------------------------------------------------------------------------------- other forms

    def _apart(self, form: Form) -> Form:
        """With sums and products of other scalars in the place of scalars."""
        found: Form = {}
        work = list(form.items())
        while work:
            scalars, factor = work.pop()
            at = next((at for at in scalars if self._scalar(at) in _PARTS and self._is_exact(at)), None)
            if at is None:
                _add(found, scalars, factor)
                continue
            rest = list(scalars)
            rest.remove(at)
            parts = self._parts(at)
            work += [((*rest, *more), factor * times) for more, times in parts]
            if len(work) + len(found) > MOST_TERMS:
                return form
        return found

    def _parts(self, at: int) -> list[tuple[tuple[int, ...], int]]:
        scalar, (low, high) = self.scalars[at], self.known[at]
        if low == high:
            return [((), low)] if low else []
        one, other = (*scalar.operands, 0, 0)[:2]
        match scalar.name:
            case "muli":
                return [((one, other), 1)]
            case "addi":
                return [((one,), 1), ((other,), 1)]
            case "subi":
                return [((one,), 1), ((other,), -1)]
            case "cast":
                return [((one,), 1)]
        return [((one,), 1), ((self._turns(scalar), scalar.operands[2]), 1)]

    def _turns(self, induction: Scalar) -> int:
        """How often the loop has gone round whose variable that is."""
        wanted = Scalar(COUNTER, 64, induction.operands)
        found = next((at for at, one in enumerate(self.scalars) if one == wanted), None)
        if found is None:
            first, end, step = (self.known[one] for one in wanted.operands)
            most = max(0, -(-(end[1] - first[0]) // step[0]) - 1) if step[0] > 0 else 1 << 63
            found = self._more(wanted, (0, most))
        return found

    def _without_quotients(self, form: Form) -> Form:
        """With `x - x % n` in the place of one `x / n * n`, and with sums in that of quotients without a remainder."""
        for scalars, factor in form.items():
            for at in scalars:
                if self._scalar(at) not in ("divsi", "ceildivsi") or not self._is_exact(at):
                    continue
                rest = list(scalars)
                rest.remove(at)
                found = {one: number for one, number in form.items() if one != scalars}
                if (whole := self._whole(at)) is not None:
                    for more, times in whole.items():
                        _add(found, (*rest, *more), times * factor)
                    return found
                dividend, divisor = self.scalars[at].operands
                if (others := self._divided(rest, factor, divisor)) is None:
                    continue
                if (missing := self._missing(at)) is None:
                    continue
                left, times, over = others
                _add(found, (*left, dividend), times)
                _add(found, (*left, missing[0]), missing[1] * times)
                _add(found, scalars, over)
                return found
        return form

    def _whole(self, quotient: int) -> Form | None:
        """A quotient as a sum, where a number divides all terms of the dividend."""
        dividend, divisor = self.scalars[quotient].operands
        by, other = self.known[divisor]
        parts = self._apart({(dividend,): 1})
        if by != other or by < 1 or any(times % by for times in parts.values()):
            return None
        return {scalars: times // by for scalars, times in parts.items()}

    def _missing(self, quotient: int) -> tuple[int, int] | None:
        """What a quotient times its divisor is away from the dividend: a scalar, and 1 or -1 times that."""
        dividend, divisor = self.scalars[quotient].operands
        if self._scalar(quotient) == "divsi":
            return self._rest(dividend, divisor), -1
        by, other = self.known[divisor]
        if by != other or by < 1:
            return None
        if quotient not in self._added:
            self._added[quotient] = self._more(Scalar(PLACE, 64, (), by), (0, by - 1))
        return self._added[quotient], 1

    def _divided(self, scalars: list[int], factor: int, divisor: int) -> tuple[list[int], int, int] | None:
        """A product without a divisor that is in it, how often that is, and what of the factor is left."""
        parts = self._apart({(divisor,): 1})
        if len(parts) != 1:
            return None
        ((needed, times),) = parts.items()
        left = list(scalars)
        for one in needed:
            if one not in left:
                return None
            left.remove(one)
        often, more = divmod(factor, times)
        return (left, often, more) if often else None

    def _rest(self, dividend: int, divisor: int) -> int:
        """The remainder's position, which no scalar may have had."""
        key = dividend, divisor
        if key not in self._rests:
            rest = remainder_interval(self.known[dividend], self.known[divisor])
            self._rests[key] = self._more(Scalar("remsi", 64, key), rest or (-(1 << 63), (1 << 63) - 1))
        return self._rests[key]

    def _more(self, scalar: Scalar, ends: Interval) -> int:
        """The position of a scalar that the launch has not."""
        self.scalars = [*self.scalars, scalar]
        self.known.append(ends)
        return len(self.scalars) - 1

    def _scalar(self, at: int) -> str:
        return self.scalars[at].name

    def _is_exact(self, at: int) -> bool:
        """Is it what its operation gives in integers, since that is known to fit into its type?"""
        bits = self.scalars[at].bits
        return self.known[at] != (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _add(form: Form, scalars: Sequence[int], factor: int) -> None:
    key = tuple(sorted(scalars))
    total = form.get(key, 0) + factor
    if total:
        form[key] = total
    else:
        form.pop(key, None)
