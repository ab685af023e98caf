"""The distribution of senders over backlog queues when each picks one at random.

Rules:
- `fullest` is exact as long as that is fast; `exactly` says whether it is.
- Exact: the n-th sender makes a queue the first with more than `most` only if it picks one that has `most` already:
  P(q, n) = P(q, n-1) - B(most; n-1, 1/q) * P(q-1, n-1-most). Only positive terms are subtracted, so nothing cancels.
- Otherwise the queues are treated as independent: each stays within `most` by the binomial distribution. With that many
  senders the difference is far too small to notice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twinbus.limits import PLAN_EXACT_STEPS_MAX

# Probabilities below this are negligible, and sums end there.
_NOTHING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Fullest:
    """Senders on the fullest queue: the mean, the percentiles, and the probability of each number."""

    mean: float
    median: int
    in_95: int
    in_99: int
    exact: bool
    probabilities: tuple[tuple[int, float], ...]


def exactly(senders: int, queues: int) -> bool:
    """Whether the whole distribution is small enough to compute exactly."""
    width = 1 + min(senders, 10 * math.isqrt(senders // queues + 1) + 20)
    return senders * min(queues, senders) * width <= PLAN_EXACT_STEPS_MAX


def fullest(senders: int, queues: int) -> Fullest:
    """Compute the distribution of the largest number of senders on one queue."""
    probabilities: list[tuple[int, float]] = []
    before = 0.0
    for most, level in _levels(senders, queues):
        probabilities.append((most, max(level - before, 0.0)))
        before = level
    mean = sum(most * probability for most, probability in probabilities)
    median, in_95, in_99 = (_level(probabilities, share) for share in (0.5, 0.95, 0.99))
    shown = tuple(each for each in probabilities if each[1] > _NOTHING)
    return Fullest(mean, median, in_95, in_99, exactly(senders, queues), shown)


def within(senders: int, queues: int, most: int) -> float:
    """Return the probability that no queue has more than `most` senders."""
    if most >= senders:
        return 1.0
    if most * queues < senders:
        return 0.0
    if senders * min(queues, senders) <= PLAN_EXACT_STEPS_MAX // 10:
        return _exact(senders, queues, most)
    return _independent(senders, queues, most)


def empty(senders: int, queues: int) -> float:
    """Return the expected number of queues that nobody picks."""
    return queues * (1 - 1 / queues) ** senders


def _levels(senders: int, queues: int) -> Iterator[tuple[int, float]]:
    """Yield `most` and the probability of staying within it, from the lowest possible `most` until it is certain."""
    exact = exactly(senders, queues)
    # The fullest queue has at least an even share.
    first = -(-senders // queues)
    last = 0.0
    for most in range(first, senders + 1):
        if most == senders or queues == 1:
            yield most, 1.0
            return
        level = _exact(senders, queues, most) if exact else _independent(senders, queues, most)
        last = max(last, min(level, 1.0))
        if 1 - last < _NOTHING:
            yield most, 1.0
            return
        yield most, last


def _level(probabilities: list[tuple[int, float]], share: float) -> int:
    total = 0.0
    for most, probability in probabilities:
        total += probability
        if total >= share - _NOTHING:
            return most
    return probabilities[-1][0]


def _log_binomial(count: int, draws: int, queues: int) -> float:
    """Return the logarithm of the probability that `count` of `draws` pick a given queue."""
    ways = math.lgamma(draws + 1) - math.lgamma(count + 1) - math.lgamma(draws - count + 1)
    return ways - count * math.log(queues) + (draws - count) * math.log1p(-1 / queues)


def _exact(senders: int, queues: int, most: int) -> float:
    """Evaluate the recurrence queue by queue, computing only those values of a row that the next one needs."""
    before: list[float] = []
    for number in range(1, queues + 1):
        wanted = senders - (queues - number) * (most + 1)
        if wanted < 0:
            continue
        row = [1.0] * (min(wanted, most) + 1)
        level = 1.0
        if number == 1:
            row += [0.0] * (wanted - most)
        elif wanted > most:
            other = math.log1p(-1 / number)
            # The binomial of n-1 draws, updated as a logarithm from one n to the next.
            log = -most * math.log(number)
            for n in range(most + 1, wanted + 1):
                if n > most + 1:
                    log += math.log((n - 1) / (n - 1 - most)) + other
                if log > -60:
                    level -= math.exp(log) * before[n - 1 - most]
                row.append(level)
        before = row
    return min(max(before[senders], 0.0), 1.0)


def _independent(senders: int, queues: int, most: int) -> float:
    """Return the probability that every queue stays within `most`, treated as independent."""
    # Sum the binomial's tail beyond `most`, whose terms fall quickly because `most` is at or above the mean.
    tail, count = 0.0, most + 1
    term = math.exp(_log_binomial(count, senders, queues))
    while term > 1e-18 and count <= senders:
        tail += term
        term *= (senders - count) / ((count + 1) * (queues - 1))
        count += 1
    return math.exp(queues * math.log1p(-tail)) if tail < 1 else 0.0
