"""Intervals and estimators."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.stats import bootstrap, clustered, estimate, pass_at_k, pass_hat_k, wilson
from tests.conftest import check_case, handed_cases


def _wilson(given: dict[str, Any]) -> dict[str, Any]:
    low, high = wilson(given["k"], given["n"])
    return {"status": "ok", "low": low, "high": high}


def _clustered(given: dict[str, Any]) -> dict[str, Any]:
    found = clustered(given["clusters"])
    return {"status": "ok", "n": found.n, "mean": found.mean, "naive_se": found.naive_se, "clustered_se": found.se}


def _pass(given: dict[str, Any]) -> dict[str, Any]:
    n, c, k = given["n"], given["c"], given["k"]
    return {"status": "ok", "pass_at_k": pass_at_k(n, c, k), "pass_hat_k": pass_hat_k(n, c, k)}


_RUN = {"wilson": _wilson, "clustered": _clustered, "pass_at_k": _pass}


@pytest.mark.parametrize("case", handed_cases("verifier.jsonl", *_RUN))
def test_handed_case(case: dict[str, Any]) -> None:
    check_case(case, _RUN[case["op"]])


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_attempts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match="expected"):
        pass_hat_k(n, c, k)


@given(st.integers(1, 12), st.data())
def test_pass_at_k_equals_the_count_over_all_subsets(n: int, data: st.DataObject) -> None:
    from itertools import combinations

    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    picks = list(combinations([1] * correct + [0] * (n - correct), k))
    assert pass_at_k(n, correct, k) == pytest.approx(sum(any(pick) for pick in picks) / len(picks))
    assert pass_hat_k(n, correct, k) == pytest.approx(sum(all(pick) for pick in picks) / len(picks))


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        wilson(successes, n)


@given(st.integers(1, 300), st.data())
def test_a_fractional_count_continues_the_whole_ones(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert wilson(k + (1e-9 if k < n else -1e-9), n) == pytest.approx(wilson(k, n), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=60))
def test_a_proportion_stays_within_its_bounds(rows: list[tuple[int, int]]) -> None:
    found = estimate([float(value) for value, _ in rows], [cluster for _, cluster in rows], bounded=True)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 0


def test_singletons_give_wilson() -> None:
    found = estimate([1.0] * 41 + [0.0] * 19, range(60), bounded=True)
    assert (found.low, found.high) == pytest.approx(wilson(41, 60))


def test_copies_add_no_knowledge() -> None:
    values = [1.0] * 41 + [0.0] * 19
    once = estimate(values, range(60), bounded=True)
    eight = estimate([v for v in values for _ in range(8)], [i for i in range(60) for _ in range(8)], bounded=True)
    assert eight.n == 480
    assert eight.low == pytest.approx(once.low, abs=2e-3)
    assert eight.high == pytest.approx(once.high, abs=2e-3)
    assert estimate([1.0] * 480, [i for i in range(60) for _ in range(8)], bounded=True).low == pytest.approx(
        wilson(60, 60).low
    )


def test_the_interval_covers_the_truth_as_often_as_promised() -> None:
    rng = random.Random(5)
    covered = 0
    for _ in range(400):
        values, clusters = [], []
        for cluster in range(40):
            share = rng.betavariate(1.4, 0.6)
            values += [float(rng.random() < share) for _ in range(8)]
            clusters += [cluster] * 8
        found = estimate(values, clusters, bounded=True)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.7 <= found.high
    assert 0.925 <= covered / 400 <= 0.98


def test_an_unbounded_mean_has_the_t_interval() -> None:
    from scipy import stats

    values = [2.0, -1.0, 2.0, 0.0, 1.5]
    found = estimate(values, range(5), bounded=False)
    half = stats.t.ppf(0.975, 4) * math.sqrt(sum((v - found.value) ** 2 for v in values)) / 5
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))
    assert estimate([2.0, 1.0], ["a", "a"], bounded=False)[:3] == (1.5, None, None)
    assert estimate([2.0, 2.0], ["a", "b"], bounded=False)[:3] == (2.0, None, None)


def test_bootstrap_of_a_mean_agrees_with_the_standard_error() -> None:
    rng = random.Random(1)
    groups = [[rng.gauss(3, 1)] for _ in range(200)]
    low, high = bootstrap(groups, lambda sample: sum(sample) / len(sample))
    se = clustered(groups).se
    assert high - low == pytest.approx(2 * 1.96 * se, rel=0.15)
    assert bootstrap(groups, len) == (200, 200)


@given(st.floats(0, 1), st.integers(2, 30), st.booleans())
def test_equal_values_have_an_interval(value: float, n: int, bounded: bool) -> None:
    found = estimate([value] * n, list(range(n)), bounded=bounded)
    assert found.value == pytest.approx(value)
    if bounded:
        assert found.low is not None
        assert found.high is not None
        assert 0 <= found.low <= found.value + 1e-9
        assert found.value - 1e-9 <= found.high <= 1
