"""Intervals that respect clusters, and the estimators of repeated attempts.

Views of one graph and repeats of one task share their randomness. They are one cluster: counting them as independent
would make every interval too narrow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Interval(NamedTuple):
    low: float
    high: float


class Clustered(NamedTuple):
    """Mean of `n` values in `clusters` clusters. `naive_se` takes the values as independent, `se` does not."""

    n: int
    clusters: int
    mean: float
    naive_se: float
    se: float


class Estimate(NamedTuple):
    """A figure with its interval, None where that is unknown; `n` values stand behind it."""

    value: float
    low: float | None
    high: float | None
    n: int


class Paired(NamedTuple):
    """Means of `n` pairs of values in `clusters` clusters, and the mean of b - a with its interval, None where that is
    unknown."""

    n: int
    clusters: int
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None


def wilson(successes: float, n: float, confidence: float = 0.95) -> Interval:
    """Wilson's score interval (1927, Eq. for p) of `successes` out of `n`; never outside [0, 1].

    Fractions are welcome: an effective sample size is seldom whole.

    Raises:
        ValueError: `n` is not positive, or `successes` is not within 0 and `n`.
    """
    if not (n > 0 and 0 <= successes <= n):
        raise ValueError(f"expected 0 <= successes <= n and n > 0, got {successes} of {n}")
    if float(successes).is_integer() and float(n).is_integer():
        from scipy.stats import binomtest

        whole = binomtest(int(successes), int(n)).proportion_ci(confidence, method="wilson")
        return Interval(float(whole.low), float(whole.high))
    z = _normal_quantile(0.5 + confidence / 2)
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def _normal_quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))


def clustered(groups: Sequence[Sequence[float]]) -> Clustered:
    """Mean over all values with its cluster-robust standard error (Liang and Zeger 1986), no small-sample factor.

    Raises:
        ValueError: no values.
    """
    values = [value for group in groups for value in group]
    if not values:
        raise ValueError("expected at least one value, got none")
    n = len(values)
    mean = math.fsum(values) / n
    naive = math.sqrt(math.fsum((value - mean) ** 2 for value in values)) / n
    sums = [math.fsum(value - mean for value in group) for group in groups if group]
    return Clustered(n, len(sums), mean, naive, math.sqrt(math.fsum(part * part for part in sums)) / n)


def estimate(
    values: Sequence[float], clusters: Sequence[Hashable], *, bounded: bool, confidence: float = 0.95
) -> Estimate:
    """Mean with a clustered interval.

    `bounded` values lie in [0, 1], and so does the interval: Wilson's with the effective sample size p(1-p)/se^2, as
    survey statistics does (Korn and Graubard 1998; Franco et al. 2019); with clusters of one value and scores 0 and 1
    it is Wilson's own. Where all values are equal, nothing is known about the clusters and each counts once.
    Other values get mean +- t * se with the degrees of freedom of the clusters; of one cluster, or of equal values, the
    width is unknown.

    The standard error is never taken below the naive one: clusters that cancel by chance would promise too much. With
    more than one value in some cluster it carries the factor sqrt(G/(G-1)) for `G` clusters.

    Raises:
        ValueError: no values, or another number of clusters.
    """
    groups: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        groups.setdefault(cluster, []).append(value)
    found = clustered(list(groups.values()))
    count = found.clusters
    repeated = found.n > count
    se = found.se * (math.sqrt(count / (count - 1)) if repeated and count > 1 else 1.0)
    # Of equal values it is 0; rounding would leave a trace of it.
    se = max(se, found.naive_se) if min(values) < max(values) else 0.0
    if bounded:
        size = found.mean * (1 - found.mean) / se**2 if se > 0 and count > 1 else count
        return Estimate(found.mean, *wilson(found.mean * size, size, confidence), found.n)
    if count == 1 or se == 0:
        return Estimate(found.mean, None, None, found.n)
    from scipy.special import stdtrit

    half = float(stdtrit(count - 1, 0.5 + confidence / 2)) * se
    return Estimate(found.mean, found.mean - half, found.mean + half, found.n)


def bootstrap(
    groups: Sequence[Sequence[T]],
    statistic: Callable[[Sequence[T]], float],
    *,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile interval of `statistic` over resampled whole clusters; for figures that are no means, as F1.

    Raises:
        ValueError: no clusters.
    """
    if not groups:
        raise ValueError("expected at least one cluster, got none")
    rng = random.Random(seed)
    found = sorted(
        statistic([item for group in rng.choices(groups, k=len(groups)) for item in group]) for _ in range(draws)
    )
    cut = (1 - confidence) / 2 * (draws - 1)
    return Interval(found[math.floor(cut)], found[math.ceil(draws - 1 - cut)])


def paired(
    a: Sequence[float],
    b: Sequence[float],
    clusters: Sequence[str],
    *,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Paired:
    """Mean difference b - a of paired values with the percentile interval over resampled whole clusters.

    It depends on neither the order of the pairs nor, the sign aside, on which side is called `a`. Of one cluster the
    width is unknown; where all differences are equal the interval is a point, which promises nothing about other tasks.

    Raises:
        ValueError: no pairs, or sides of different lengths.
    """
    import numpy as np

    groups: dict[str, list[float]] = {}
    for old, new, cluster in zip(a, b, clusters, strict=True):
        groups.setdefault(cluster, []).append(new - old)
    if not groups:
        raise ValueError("expected at least one pair, got none")
    n, count = len(a), len(groups)
    sums = np.array([math.fsum(groups[cluster]) for cluster in sorted(groups)])
    sizes = np.array([len(groups[cluster]) for cluster in sorted(groups)])
    difference = math.fsum(sums) / n
    means = Paired(n, count, math.fsum(a) / n, math.fsum(b) / n, difference, None, None)
    if count == 1:
        return means
    rng = np.random.RandomState(seed)  # its stream is frozen, that of a Generator may change with NumPy
    picks = (rng.randint(count, size=count) for _ in range(draws))
    found = sorted(float(sums[pick].sum() / sizes[pick].sum()) for pick in picks)
    cut = math.floor((1 - confidence) / 2 * (draws - 1))
    return means._replace(low=found[cut], high=found[draws - 1 - cut])


def mcnemar(a_only: int, b_only: int) -> float:
    """Two-sided p of McNemar's exact test: of the pairs that disagree, each side wins half under the null hypothesis.

    Pairs count as independent. Source: McNemar 1947; the exact binomial form is usual where pairs are few.

    Raises:
        ValueError: a negative count.
    """
    if a_only < 0 or b_only < 0:
        raise ValueError(f"expected counts of at least 0, got {a_only} and {b_only}")
    if a_only + b_only == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(a_only, a_only + b_only, 0.5).pvalue)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Chance that at least one of `k` attempts is right, unbiased from `correct` of `n`: 1 - C(n-c, k) / C(n, k).

    Source: Chen et al., arXiv 2107.03374, Eq. 1.

    Raises:
        ValueError: not 1 <= k <= n, or not 0 <= correct <= n.
    """
    _check_attempts(n, correct, k)
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def pass_hat_k(n: int, correct: int, k: int) -> float:
    """Chance that all of `k` attempts are right (written pass^k), unbiased from `correct` of `n`: C(c, k) / C(n, k).

    Source: Yao et al., tau-bench, arXiv 2406.12045, Section 3.

    Raises:
        ValueError: as `pass_at_k`.
    """
    _check_attempts(n, correct, k)
    return math.comb(correct, k) / math.comb(n, k)


def _check_attempts(n: int, correct: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"expected 1 <= k <= n, got k = {k} of n = {n} attempts")
    if not 0 <= correct <= n:
        raise ValueError(f"expected 0 <= correct <= n, got {correct} of {n}")
