"""How long to wait for a message that may only be late: the model of delay differences.

Two messages of one publisher differ in delay by ``x = (arrival - arrival') - (departure - departure')``, which needs
no common clock. A broker takes an exponentially distributed time, so the difference per broker is Laplace, and over a
path it is a sum of Laplace variables, taken as the sum of two with one scale b:

    F(x) = 1 - (2b + x)/(4b) · e^(-x/b)     x > 0           b = 2/(3n) · Σ|xᵢ|   over the last n samples

A message that left δ before one that has arrived comes later than τ after it with probability P_t or less for

    τ = F⁻¹(1 - P_t) - δ,      F⁻¹(p) = -b · (W₋₁(4e⁻²(p - 1)) + 2),   0.5 ≤ p < 1

where W₋₁ is the lower real branch of Lambert's W (the dissertation's printed inverse loses the sign and the branch;
with W₀ it would give τ ≤ 0 for every p: see `tests/transport/test_latch.py`). The factor of b depends on P_t alone and
is computed once, so a sample costs a subtraction in a ring and a latch one multiplication.

What the model leaves out, and what is done about it (`DelayModel(..., guarded=False)` is the source's rule alone):

* *Several paths at once.* Differences then cluster around the differences of the paths and the tail is heavier than
  Laplace's. So the bound is never below what the ring itself shows: the (1 - 2P_t) quantile of |x| in it.
* *The message that reveals a gap is a fast one.* Where messages overtake each other often, the first to come of many
  has less delay than most, and waiting F⁻¹ from it is too short. The ring's differences are measured from such messages
  too, so their mean, when positive, is how much faster they are: it is added.
* *A ring of n samples knows b no better than to about 1/√n.* Far out in the tail that matters, most of all when a
  session is young: the bound is stretched by 1 + 4/n.

P_t is the chance of a violation *per wait*, not the share of violations that is left: where messages overtake each
other rarely the rule with P_t = 0.05 does not wait at all. Hence the default of `Order` is much smaller than the
source's, and still waits less than a constant latch that does as well (`python -m benchmarks fifo`).
"""

from __future__ import annotations

from math import e, exp, isfinite, log, sqrt
from typing import Final, Protocol

from sievenet.errors import InvalidInput

__all__ = ["ConstantLatch", "DelayModel", "Latch", "lambert_w_minus", "latch_factor", "two_laplace_cdf"]

#: A difference of delays beyond this is a clock that was set, not a network, in seconds.
MAX_DIFFERENCE: Final = 3600.0


def lambert_w_minus(x: float) -> float:
    """The lower real branch of Lambert's W: the w ≤ -1 with ``w·e^w = x``, for -1/e ≤ x < 0."""
    if not -1 / e - 1e-15 <= x < 0:
        raise InvalidInput(expected="-1/e <= x < 0", got=x, where="lambert_w_minus")
    distance = 2 * (1 + e * x)
    if distance <= 1e-15:
        return -1.0
    if x < -0.25:
        root = sqrt(distance)
        w = -1 - root - distance / 3
    else:
        first = log(-x)
        second = log(-first)
        w = first - second + second / first
    for _ in range(20):
        power = exp(w)
        error = w * power - x
        # Halley's rule: cubic, and safe here since w stays below -1.
        step = error / (power * (w + 1) - (w + 2) * error / (2 * w + 2))
        w -= step
        if abs(step) <= 4e-16 * abs(w):
            break
    return w


def latch_factor(p_late: float) -> float:
    """``F⁻¹(1 - p_late) / b``."""
    if not 0 < p_late <= 0.5:
        raise InvalidInput(expected="a probability in (0, 0.5]", got=p_late, where="P_t")
    return -(lambert_w_minus(-4 * exp(-2) * p_late) + 2)


def two_laplace_cdf(x: float, b: float) -> float:
    """The distribution of the sum of two Laplace variables of scale b."""
    tail = (2 * b + abs(x)) / (4 * b) * exp(-abs(x) / b)
    return 1 - tail if x > 0 else tail


class Latch(Protocol):
    """How long a missing message is waited for."""

    def add(self, difference: float) -> None:
        """Note a difference of delays."""

    def bound(self) -> float:
        """A difference of delays that is rarely exceeded, in seconds."""

    def latch(self, age: float) -> float:
        """How long to wait for a message that left ``age`` seconds before the one that revealed it."""


class ConstantLatch:
    """The same wait for every gap: what the model is compared with."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def add(self, difference: float) -> None:
        """Constant: nothing is learnt."""

    def bound(self) -> float:
        """The wait."""
        return self._seconds

    def latch(self, age: float) -> float:
        """The wait, whatever the age."""
        return self._seconds


class DelayModel:
    """The last differences of delay between one publisher and one receiver."""

    __slots__ = ("_at", "_bound", "_factor", "_rank", "_ring", "_size", "_sum", "_total")

    def __init__(self, p_late: float = 0.05, size: int = 25, *, guarded: bool = True) -> None:
        if size < 1:
            raise InvalidInput(expected="a ring of at least 1", got=size, where="samples")
        self._factor = latch_factor(p_late)
        self._size = size
        #: The last `size` differences; `_at` is the oldest once the ring is full.
        self._ring: list[float] = []
        self._at = 0
        #: Sums of the magnitudes and of the differences themselves.
        self._sum = 0.0
        self._total = 0.0
        #: Which of the sorted magnitudes the bound may not fall below, from the top; -1 for the plain rule.
        self._rank = int(2 * p_late * size) if guarded else -1
        #: The bound, or -1 when it has to be found anew.
        self._bound = -1.0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, difference: float) -> None:
        """Note a difference of delays; absurd ones are ignored."""
        if not -MAX_DIFFERENCE <= difference <= MAX_DIFFERENCE:
            return
        ring = self._ring
        if len(ring) < self._size:
            ring.append(difference)
            self._sum += abs(difference)
            self._total += difference
        else:
            at = self._at
            oldest = ring[at]
            self._sum += abs(difference) - abs(oldest)
            self._total += difference - oldest
            ring[at] = difference
            self._at = at + 1
            if at + 1 == self._size:
                self._at = 0  # once around: rounding errors do not add up
                self._sum, self._total = sum(map(abs, ring)), sum(ring)
        self._bound = -1.0

    @property
    def scale(self) -> float:
        """b, the maximum-likelihood scale; 0 without samples."""
        return 2 * self._sum / (3 * len(self._ring)) if self._ring else 0.0

    def bound(self) -> float:
        """F⁻¹(1 - P_t): a difference of delays that is exceeded with probability P_t."""
        if self._bound < 0:
            self._bound = self._find() if self._ring else 0.0
        return self._bound

    def _find(self) -> float:
        ring = self._ring
        bound = self._factor * 2 * self._sum / (3 * len(ring))
        rank = self._rank
        if rank < 0:
            return bound
        bound *= 1 + 4 / len(ring)
        if len(ring) > rank:
            magnitudes = sorted(map(abs, ring))
            bound = max(bound, magnitudes[-1 - rank])
        return bound + max(0.0, self._total / len(ring))

    def latch(self, age: float) -> float:
        """τ = F⁻¹(1 - P_t) - δ."""
        return self.bound() - age

    def violation(self, interval: float) -> float:
        """The probability that a message which left ``interval`` earlier is overtaken."""
        b = self.scale
        if b == 0 or not isfinite(interval):
            return 0.0
        return 1 - two_laplace_cdf(interval, b) if interval >= 0 else 1.0
