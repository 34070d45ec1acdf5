"""Between which numbers a sum lies whose terms hang together, which intervals of each do not say.

    begin - begin / 32 * 32              what is left over: 0 to 31
    last - turns                         not below zero, since a loop goes round `last + 1` times at most

Both are exact in integers: `x / n * n` is `x - x % n`, and a counter ends before its loop's end does. So a sum is
written in other forms, each of which bounds it. Only scalars that are known to have stayed in their types are taken
apart. Costs more than an interval, so it is asked where that does not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wspec.host_descriptors.ranges import COUNTER, Interval, Sum, interval_of, remainder_interval, term_interval
from wspec.tile_scheduler.scalars import Scalar

Form = dict[tuple[int, ...], int]  # positions of scalars, sorted -> factor
MOST_TERMS = 64
_PARTS = ("addi", "subi", "muli", "cast", "constant", "argument", "induction")


class Relations:
    """Of the scalars of a launch, with their intervals."""

    def __init__(self, scalars: Sequence[Scalar], known: Sequence[Interval]) -> None:
        self.scalars, self.known = scalars, list(known)
        self._rests: dict[tuple[int, int], int] = {
            (one.operands[0], one.operands[1]): at for at, one in enumerate(scalars) if one.name == "remsi"
        }

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
        for scalars, times in (((end,), 1), ((first,), -1), ((), -1)):
            _add(rest, scalars, times * (factor // width))
        low, high = self._plain(form)
        least, most = self._plain(self._apart(rest))
        return (max(low, least), high) if factor < 0 else (low, min(high, most))

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
            found = len(self.scalars)
            self.scalars = [*self.scalars, wanted]
            first, end, step = (self.known[one] for one in wanted.operands)
            most = max(0, -(-(end[1] - first[0]) // step[0]) - 1) if step[0] > 0 else 1 << 63
            self.known.insert(found, (0, most))
        return found

    def _without_quotients(self, form: Form) -> Form:
        """With `x - x % n` in the place of one `x / n * n`."""
        for scalars, factor in form.items():
            for at in scalars:
                if self._scalar(at) != "divsi":
                    continue
                dividend, divisor = self.scalars[at].operands
                rest = list(scalars)
                rest.remove(at)
                if (others := self._divided(rest, factor, divisor)) is None or not self._is_exact(at):
                    continue
                left, times, more = others
                found = {one: number for one, number in form.items() if one != scalars}
                _add(found, (*left, dividend), times)
                _add(found, (*left, self._rest(dividend, divisor)), -times)
                _add(found, scalars, more)
                return found
        return form

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
            self._rests[key] = len(self.scalars)
            self.scalars = [*self.scalars, Scalar("remsi", 64, key)]
            rest = remainder_interval(self.known[dividend], self.known[divisor])
            self.known.append(rest if rest is not None else (-(1 << 63), (1 << 63) - 1))
        return self._rests[key]

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
