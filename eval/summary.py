"""`summary.json`: what a run came to, over all of it and per group, with clustered 95 % intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from agl.core import Env, Frozen, Score, Task
from agl.stats import bootstrap, estimate, pass_at_k, pass_hat_k
from agl.trace import Episode
from eval.metrics import classification


class Metric(Frozen):
    """A mean over `n` values with its 95 % interval, None where that is unknown."""

    value: float
    low: float | None
    high: float | None
    n: int


class Group(Frozen):
    """The scored episodes of one value of a facet, such as `form` = `realistic`."""

    n: int
    metrics: dict[str, Metric]


class Outcomes(Frozen):
    """How episodes ended. Infrastructure failures stand here and nowhere else: they are no samples.

    `retried` samples came after such a failure. `stop` counts stop reasons of samples, `labels` the categorical
    findings of `Score.labels`.
    """

    ok: int
    policy_failure: int
    infra_failure: int
    retried: int
    stop: dict[str, int]
    labels: dict[str, dict[str, int]]


class TokenTotals(Frozen):
    """Tokens of all samples; None where the backend does not tell."""

    prompt: int | None
    sampled: int
    injected: int | None


class Seconds(Frozen):
    """Wall-clock seconds per sample: `mean` and 90th percentile; `total`, and its parts in the model and outside it."""

    mean: float
    p90: float
    total: float
    model: float
    framework: float
    framework_share: float


class Summary(Frozen):
    """The content of `summary.json`. `n` counts samples; `groups` is facet -> value -> group."""

    env: str
    policy: str
    n: int
    metrics: dict[str, Metric]
    outcomes: Outcomes
    tokens: TokenTotals
    seconds: Seconds
    groups: dict[str, dict[str, Group]]


def summarise(
    env: type[Env[Any]], policy: str, tasks: Mapping[str, Task], episodes: Sequence[Episode], attempts: int = 1
) -> Summary:
    """Metrics of `episodes`: `score`, `reward` and every numeric part of the scores.

    A part that is None does not apply to its episode and is left out, so each metric has its own `n`. With several
    `attempts`, `pass@K` and `pass^K` (an attempt passes when its total is 1) are taken over tasks that have them all.
    When episodes were retried, `score_without_retried` shows what the retries did. Envs that put `gold` and, where
    the policy answered, `predicted` into `Score.labels` also get `macro_f1` and `unanswered`. Figures that
    are no means come from `Env.aggregates`.
    """
    samples = [episode for episode in episodes if episode.is_sample and episode.score is not None]
    rows = [_values(episode) for episode in samples]
    names = _ordered(env, rows)
    bounded = {
        name for name in names if name != "reward" and all(0.0 <= row[name] <= 1.0 for row in rows if name in row)
    }
    clusters = {key: env.cluster(task) for key, task in tasks.items()}

    def measure(chosen: Sequence[int]) -> dict[str, Metric]:
        means = _measure([(samples[i], rows[i]) for i in chosen], names, bounded, clusters, attempts)
        return {**means, **_aggregated(env, [samples[i] for i in chosen], clusters)}

    facets: dict[str, dict[str, list[int]]] = {}
    values = {key: env.facets(task) for key, task in tasks.items()}
    for index, episode in enumerate(samples):
        for facet, value in values[episode.key[0]].items():
            facets.setdefault(facet, {}).setdefault(value, []).append(index)
    return Summary(
        env=env.name,
        policy=policy,
        n=len(samples),
        metrics={**measure(range(len(samples))), **_classified(samples, clusters)},
        outcomes=_outcomes(episodes, samples),
        tokens=_tokens(samples),
        seconds=_seconds(samples),
        groups={
            facet: {value: Group(n=len(chosen), metrics=measure(chosen)) for value, chosen in groups.items()}
            for facet, groups in facets.items()
        },
    )


def _values(episode: Episode) -> dict[str, float]:
    score = episode.score
    if score is None:
        return {}
    parts = {name: float(value) for name, value in score.parts.items() if value is not None}
    return {**parts, "score": score.total, "reward": score.reward}


def _ordered(env: type[Env[Any]], rows: Sequence[Mapping[str, float]]) -> list[str]:
    found = {name for row in rows for name in row}
    first = [name for name in ("score", "reward", *env.metrics) if name in found]
    return [*first, *sorted(found - set(first))]


def _measure(
    samples: Sequence[tuple[Episode, Mapping[str, float]]],
    names: Sequence[str],
    bounded: set[str],
    clusters: Mapping[str, Hashable],
    attempts: int,
) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}

    def add(name: str, pairs: Sequence[tuple[float, str]], within: bool) -> None:
        if pairs:
            found = estimate([v for v, _ in pairs], [clusters[task] for _, task in pairs], bounded=within)
            metrics[name] = Metric(**found._asdict())

    for name in names:
        add(name, [(row[name], ep.key[0]) for ep, row in samples if name in row], name in bounded)
    if any(ep.outcome.retries for ep, _ in samples):
        untouched = [(row["score"], ep.key[0]) for ep, row in samples if not ep.outcome.retries]
        add("score_without_retried", untouched, True)
    if attempts > 1:
        tries = Counter(ep.key[0] for ep, _ in samples)
        right = Counter(ep.key[0] for ep, row in samples if row["score"] >= 1.0)
        full = [task for task, count in tries.items() if count >= attempts]
        add(f"pass@{attempts}", [(pass_at_k(tries[t], right[t], attempts), t) for t in full], True)
        add(f"pass^{attempts}", [(pass_hat_k(tries[t], right[t], attempts), t) for t in full], True)
    return metrics


def _aggregated(env: type[Env[Any]], samples: Sequence[Episode], clusters: Mapping[str, Hashable]) -> dict[str, Metric]:
    groups: dict[Hashable, list[Score]] = {}
    for episode in samples:
        if episode.score is not None:
            groups.setdefault(clusters[episode.key[0]], []).append(episode.score)
    scores = [score for group in groups.values() for score in group]
    metrics = {}
    for name, figure in env.aggregates.items():
        value = figure(scores) if scores else None
        if value is None:
            continue

        def of_draw(drawn: Sequence[Score], of: Any = figure, otherwise: float = value) -> float:
            found: float | None = of(drawn)
            return otherwise if found is None else found

        low, high = bootstrap(list(groups.values()), of_draw, draws=400)
        metrics[name] = Metric(value=value, low=low, high=high, n=len(scores))
    return metrics


def _classified(samples: Sequence[Episode], clusters: Mapping[str, Hashable]) -> dict[str, Metric]:
    groups: dict[Hashable, list[tuple[str, str | None]]] = {}
    for episode in samples:
        if episode.score is not None and "gold" in episode.score.labels:
            answer = (episode.score.labels["gold"], episode.score.labels.get("predicted"))
            groups.setdefault(clusters[episode.key[0]], []).append(answer)
    if not groups:
        return {}
    answers = [answer for group in groups.values() for answer in group]

    def macro_f1(rows: Sequence[tuple[str, str | None]]) -> float:
        gold = [true for true, _ in rows]
        return classification(gold, [said for _, said in rows], sorted(set(gold))).macro_f1

    low, high = bootstrap(list(groups.values()), macro_f1, draws=400)
    silent = [[float(said is None) for _, said in group] for group in groups.values()]
    unanswered = estimate(
        [value for group in silent for value in group],
        [index for index, group in enumerate(silent) for _ in group],
        bounded=True,
    )
    return {
        "macro_f1": Metric(value=macro_f1(answers), low=low, high=high, n=len(answers)),
        "unanswered": Metric(**unanswered._asdict()),
    }


def _outcomes(episodes: Sequence[Episode], samples: Sequence[Episode]) -> Outcomes:
    kinds = Counter(episode.outcome.kind.value for episode in episodes)
    labels: dict[str, Counter[str]] = {}
    for episode in samples:
        for name, value in (episode.score.labels if episode.score else {}).items():
            labels.setdefault(name, Counter())[value] += 1
    return Outcomes(
        ok=kinds["ok"],
        policy_failure=kinds["policy_failure"],
        infra_failure=kinds["infra_failure"],
        retried=sum(episode.outcome.retries > 0 for episode in samples),
        stop=dict(Counter(episode.outcome.stop.value for episode in samples)),
        labels={name: dict(counts) for name, counts in labels.items()},
    )


def _tokens(samples: Sequence[Episode]) -> TokenTotals:
    def known(counts: Sequence[int | None]) -> int | None:
        told = [count for count in counts if count is not None]
        return sum(told) if told else None

    return TokenTotals(
        prompt=known([episode.tokens.prompt for episode in samples]),
        sampled=sum(episode.tokens.sampled for episode in samples),
        injected=known([episode.tokens.injected for episode in samples]),
    )


def _seconds(samples: Sequence[Episode]) -> Seconds:
    totals = sorted(episode.seconds["total"] for episode in samples)
    total = sum(totals)
    model = sum(episode.seconds["model"] for episode in samples)
    return Seconds(
        mean=total / len(totals) if totals else 0.0,
        p90=totals[min(len(totals) - 1, int(0.9 * len(totals)))] if totals else 0.0,
        total=total,
        model=model,
        framework=total - model,
        framework_share=(total - model) / total if total else 0.0,
    )
