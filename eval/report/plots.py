"""Figures that fit any environment, drawn from scores, labels and actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agl.graphs.naming import natural_key
from agl.registry import ENVS, env_class
from agl.stats import estimate
from eval.report.charts import Figure, Value, bars, forest, heat, histogram
from eval.report.records import Records, Row
from eval.report.views import EnvView
from eval.summary import Metric

_MOST_ROWS = 24
_MOST_CLASSES = 14
_MOST_TURNS = 12
_DERIVED = ("pass@", "pass^", "score_", "macro_", "unanswered")


def figures(records: Records, view: EnvView) -> list[Figure]:
    """The figures of an overview in order; those of the environment come second."""
    rows = [row for row in records.rows if row.score is not None]
    if not rows:
        return [outcomes(records.rows)]
    policies = list(dict.fromkeys(row.policy for row in rows))
    found = [*_scores(records), *view.plots(rows)]
    found += [_by_facet(rows, facet, policies) for facet in _facets(rows)]
    found.append(outcomes(records.rows))
    found += _labels(rows, policies, view)
    found += _actions(rows, policies)
    for name, title, unit in (
        ("tokens", "Sampled tokens per episode", "tokens"),
        ("turns", "Stretches of sampled text per episode", "stretches"),
        ("seconds", "Wall-clock time per episode", "seconds"),
    ):
        values = {policy: [float(getattr(r, name)) for r in rows if r.policy == policy] for policy in policies}
        if any(value for each in values.values() for value in each):
            found.append(histogram(name, title, values, x_title=unit))
    return found


def _scores(records: Records) -> list[Figure]:
    """The metrics within [0, 1] for every policy that the tables of `agl eval` show, side by side."""
    shown = {"score", *(env_class(records.env).metrics if records.env in ENVS else ())}
    rows: dict[str, dict[str, Value]] = {}
    beyond: set[str] = set()
    for player in records.players:
        for name, metric in (player.summary.metrics if player.summary is not None else {}).items():
            if name in shown or name.startswith(_DERIVED):
                if not _is_share(metric):
                    beyond.add(name)
                rows.setdefault(name, {})[player.name] = Value(metric.value, metric.low, metric.high)
    rows = {name: values for name, values in rows.items() if name not in beyond}
    if not rows:
        return []
    series = [player.name for player in records.players]
    caption = "Means with clustered 95 % intervals; the table below has all metrics."
    return [forest("metrics", "Metrics", rows, series=series, caption=caption)]


def _is_share(metric: Metric) -> bool:
    low = metric.value if metric.low is None else metric.low
    return low >= 0.0 and max(metric.value, metric.high or 0.0) <= 1.0


def _facets(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row.facets)
    values = {name: {row.facets[name] for row in rows if name in row.facets} for name in names}
    return [name for name in names if 2 <= len(values[name]) <= _MOST_ROWS]


def _by_facet(rows: Sequence[Row], facet: str, policies: Sequence[str]) -> Figure:
    table: dict[str, dict[str, Value]] = {}
    for value in sorted({row.facets[facet] for row in rows if facet in row.facets}, key=natural_key):
        chosen = [row for row in rows if row.facets.get(facet) == value]
        table[value] = {
            policy: mean(mine) for policy in policies if (mine := [row for row in chosen if row.policy == policy])
        }
    return forest(
        f"score-by-{facet}", f"Score by {facet}", table, series=policies, caption="Means with clustered 95 % intervals."
    )


def mean(rows: Sequence[Row]) -> Value:
    """Mean score with its clustered interval."""
    found = estimate([row.score or 0.0 for row in rows], [row.cluster for row in rows], bounded=True)
    return Value(found.value, found.low, found.high)


def mean_part(rows: Sequence[Row], part: str) -> Value | None:
    """Mean of a score part with its clustered interval; None where it applies to no episode."""
    chosen = [row for row in rows if part in row.parts]
    if not chosen:
        return None
    values = [row.parts[part] for row in chosen]
    bounded = all(0.0 <= value <= 1.0 for value in values)
    found = estimate(values, [row.cluster for row in chosen], bounded=bounded)
    return Value(found.value, found.low, found.high)


def outcomes(rows: Sequence[Row]) -> Figure:
    """How episodes ended, by policy."""
    table: dict[str, dict[str, float]] = {}
    order = ("ok", "policy_failure", "infra_failure")
    for policy in dict.fromkeys(row.policy for row in rows):
        kinds = Counter((row.outcome, row.stop) for row in rows if row.policy == policy)
        ranked = sorted(kinds, key=lambda kind: (order.index(kind[0]), kind[1]))
        for kind in ranked:
            name = kind[0] if kind[0] == "ok" else f"{kind[0]}: {kind[1]}"
            table.setdefault(policy, {})[name.replace("_", " ")] = float(kinds[kind])
    return bars(
        "outcomes", "Outcomes and stop reasons", table, share=True,
        caption="Infrastructure failures are counted here and scored nowhere.",
    )  # fmt: skip


def _labels(rows: Sequence[Row], policies: Sequence[str], view: EnvView) -> list[Figure]:
    found = []
    names = sorted({name for row in rows for name in row.labels} - view.hidden_labels - {"gold", "predicted"})
    for name in names:
        counts: dict[str, Counter[str]] = {}
        for row in rows:
            if name in row.labels:
                counts.setdefault(row.labels[name], Counter())[row.policy] += 1
        if len(counts) < 2:
            continue
        ranked = sorted(counts, key=lambda value: (-sum(counts[value].values()), value))
        table = {value: _by_policy(counts[value], policies) for value in ranked[:_MOST_ROWS]}
        left = len(ranked) - len(table)
        caption = f"{left} rarer values are left out." if left else ""
        found.append(bars(f"label-{name}", f"Episodes by {name}", table, caption=caption))
    for policy in policies:
        answered = [row for row in rows if row.policy == policy and "gold" in row.labels]
        if any("predicted" in row.labels for row in answered):
            found.append(confusion(answered, f", {policy}" if len(policies) > 1 else ""))
    return found


def _by_policy(counts: Mapping[str, int], policies: Sequence[str]) -> dict[str, float]:
    return {policy: float(counts.get(policy, 0)) for policy in policies}


def confusion(rows: Sequence[Row], suffix: str) -> Figure:
    """Gold classes against those of the label `predicted`; where it is missing, there was no answer."""
    answers = [(row.labels["gold"], row.labels.get("predicted", "(no answer)")) for row in rows if "gold" in row.labels]
    pairs = Counter(answers)
    gold = Counter(true for true, _ in answers)
    classes = sorted(sorted(gold), key=lambda name: -gold[name])[:_MOST_CLASSES]
    others = {said for _, said in pairs} - set(classes)
    columns = [*classes, *(["(other)"] if others - {"(no answer)"} else [])]
    columns += ["(no answer)"] if "(no answer)" in others else []
    cells: Counter[tuple[str, str]] = Counter()
    for (true, said), count in pairs.items():
        if true in classes:
            cells[true, said if said in columns else "(other)"] += count
    left = len(gold) - len(classes)
    return heat(
        f"confusion{suffix.replace(', ', '-')}", f"Gold class against predicted class{suffix}",
        {pair: float(count) for pair, count in cells.items()}, rows=classes, columns=columns,
        row_title="gold", column_title="predicted",
        caption=f"The {len(classes)} most frequent gold classes; {left} others are left out." if left else "",
    )  # fmt: skip


def _actions(rows: Sequence[Row], policies: Sequence[str]) -> list[Figure]:
    """What was done in which place of the episode, and what was answered by an error."""
    names = sorted({name for row in rows for name in row.actions}, key=lambda name: (name == "malformed", name))
    found = []
    for policy in policies:
        mine = [row for row in rows if row.policy == policy]
        longest = max((len(row.actions) for row in mine), default=0)
        table: dict[str, dict[str, float]] = {}
        for place in range(min(longest, _MOST_TURNS)):
            counts = Counter(row.actions[place] for row in mine if len(row.actions) > place)
            table[f"action {place + 1}"] = {name: float(counts[name]) for name in names}
        if table:
            suffix = f", {policy}" if len(policies) > 1 else ""
            caption = f"The first {_MOST_TURNS} of up to {longest}." if longest > _MOST_TURNS else ""
            stem = f"actions{suffix.replace(', ', '-')}"
            found.append(bars(stem, f"Actions in order{suffix}", table, caption=caption))
    mistakes = Counter((mistake, row.policy) for row in rows for mistake in row.mistakes)
    if mistakes:
        totals: Counter[str] = Counter()
        for (mistake, _), count in mistakes.items():
            totals[mistake] += count
        ranked = sorted(totals, key=lambda name: (-totals[name], name))[:_MOST_ROWS]
        table = {name: {policy: float(mistakes[name, policy]) for policy in policies} for name in ranked}
        found.append(bars("mistakes", "Actions answered by an error", table))
    return found
