"""Two runs on the same tasks, pair by pair: what differs, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agl.core import Env, Frozen
from agl.errors import DataError, UserError
from agl.graphs.naming import natural_key
from agl.json_text import dumps
from agl.policies.pipeline import model_calls
from agl.registry import ENVS, env_class
from agl.run_folder import CONFIG, EPISODES, SUMMARY, TRAINING, read_object
from agl.stats import mcnemar, paired
from agl.trace import Episode, read_episodes
from eval.visible import visible

Key = tuple[str, int]
_DATA = ("data", "limit", "seed")
_IDENTITY = ("env", "data_sha256", "tasks")
_FEW_CLUSTERS = 20


class McNemar(Frozen):
    """Pairs that only one run got right, and the two-sided p of the exact test on them."""

    a_only: int
    b_only: int
    p: float


class PairedMetric(Frozen):
    """Means over `n` pairs in `clusters` clusters; `difference` is b - a with its 95 % interval, None where unknown.
    `mcnemar` stands with scores that are all 0 or 1."""

    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    n: int
    clusters: int
    mcnemar: McNemar | None = None


class Side(Frozen):
    """One of the two runs. `unpaired` episodes have a key that the other run lacks; `infra_failures` are among the
    common keys."""

    run: str
    policy: str
    unpaired: int
    infra_failures: int


class Comparison(Frozen):
    """What `agl compare --json` prints.

    `pairs` are the common keys (task id, attempt) without an infrastructure failure on either side; `excluded` counts
    the common keys with one. `differences` holds every option of the two configs that differs, dotted, as (a, b).
    `groups` is facet -> value -> score.
    """

    env: str
    a: Side
    b: Side
    differences: dict[str, tuple[Any, Any]]
    pairs: int
    excluded: int
    metrics: dict[str, PairedMetric]
    groups: dict[str, dict[str, PairedMetric]]
    only_in_one: list[str]
    """Parts of the scores that one run lacks."""


@dataclass(frozen=True)
class _Place:
    """Where a task belongs."""

    cluster: str
    facets: dict[str, str]


@dataclass(frozen=True)
class _Run:
    """A finished run; None stands for an infrastructure failure."""

    path: Path
    config: dict[str, Any]
    values: dict[Key, dict[str, float] | None]
    places: dict[str, _Place]

    @property
    def names(self) -> set[str]:
        return {name for row in self.values.values() for name in row or ()}


def run_config(folder: Path) -> dict[str, Any]:
    """The config of the run in `folder`.

    Raises:
        DataError: no run there; runs in sub-folders are named.
    """
    if not folder.is_dir():
        fault = "is no folder" if folder.exists() else "does not exist"
        raise DataError(f"expected a run folder, got {folder}, which {fault}; check the path")
    if (folder / TRAINING).is_file():
        return read_object(folder / TRAINING)
    if not (folder / CONFIG).is_file() and (inner := sorted(found.parent for found in folder.glob(f"*/{CONFIG}"))):
        raise DataError(
            f"expected one run folder, got {folder}, whose sub-folders hold runs; name one, such as {inner[0]}"
        )
    return read_object(folder / CONFIG)


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare the runs in two folders on the keys (task id, attempt) that both have.

    Raises:
        DataError: a folder without a finished run, or runs that cannot be compared: of different environments, of
            different tasks, or without a common scored key.
        UserError: their environment is not registered here.
    """
    a, b = Path(a), Path(b)
    configs = run_config(a), run_config(b)
    _check_comparable(a, b, *configs)
    if configs[0]["env"] not in ENVS:
        raise UserError(
            f"expected runs of a registered environment, got runs of {configs[0]['env']!r}, whose class says what is "
            "paired; in Python call agl.registry.register first, then eval.compare.compare(A, B)"
        )
    env = env_class(configs[0]["env"])
    one, two = (_read(env, folder, config) for folder, config in zip((a, b), configs, strict=True))
    common = sorted(one.values.keys() & two.values.keys())
    pairs = [(key, old, new) for key in common if (old := one.values[key]) and (new := two.values[key])]
    if not pairs:
        raise DataError(
            f"expected episodes that are scored in both runs, got {len(common)} common and none scored in both, of "
            f"{len(one.values)} in {a} and {len(two.values)} in {b}; evaluate both on the same tasks"
        )
    shared = one.names & two.names
    first = [name for name in ("score", "reward", *env.metrics) if name in shared]
    last = [name for name in ("rounds", "tokens", "seconds") if name in shared]
    names = dict.fromkeys([*first, *sorted(shared - {*first, *last}), *last])

    def side(run: _Run) -> Side:
        return Side(
            run=str(run.path),
            policy=str(run.config.get("policy")),
            unpaired=len(run.values) - len(common),
            infra_failures=sum(run.values[key] is None for key in common),
        )

    groups: dict[str, dict[str, list[tuple[Key, dict[str, float], dict[str, float]]]]] = {}
    for pair in pairs:
        for facet, value in one.places[pair[0][0]].facets.items():
            groups.setdefault(facet, {}).setdefault(value, []).append(pair)
    metrics = {name: _paired(name, pairs, one.places) for name in names}
    scores = {
        facet: {value: _paired("score", chosen, one.places) for value, chosen in values.items()}
        for facet, values in groups.items()
    }
    return Comparison(
        env=env.name,
        a=side(one),
        b=side(two),
        differences=_differences(*configs),
        pairs=len(pairs),
        excluded=len(common) - len(pairs),
        metrics={name: metric for name, metric in metrics.items() if metric is not None},
        groups={
            facet: {value: row for value in sorted(rows, key=natural_key) if (row := rows[value]) is not None}
            for facet, rows in scores.items()
        },
        only_in_one=sorted(one.names ^ two.names),
    )


def _check_comparable(a: Path, b: Path, one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    if one.get("env") != two.get("env"):
        raise DataError(
            f"expected two runs of one environment, got {one.get('env')} in {a} and {two.get('env')} in {b}; "
            "compare runs of the same environment"
        )
    for folder, config in ((a, one), (b, two)):
        if not isinstance(config.get("env"), str) or not isinstance(config.get("data_sha256"), str):
            raise DataError(f"expected env and data_sha256 in {folder / CONFIG}, got neither or one; evaluate it again")
    if one["data_sha256"] != two["data_sha256"]:
        told = [name for name in _DATA if one.get(name) != two.get(name)]
        if not told:
            raise DataError(
                f"expected runs on the same tasks, but those of {a} and {b} differ in content although data, limit and "
                "seed agree (the file or the version changed); evaluate both again"
            )
        was, now = (", ".join(f"{name} {dumps(config.get(name))}" for name in told) for config in (one, two))
        raise DataError(
            f"expected runs on the same tasks, got {was} in {a} and {now} in {b}; "
            f"evaluate both with the same {' and '.join(f'--{name}' for name in told)}"
        )


def _differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    was, now = dict(_flat(one)), dict(_flat(two))
    names = [name for name in sorted(was.keys() | now.keys()) if name not in _IDENTITY]
    return {name: (was.get(name), now.get(name)) for name in names if was.get(name) != now.get(name)}


def _flat(config: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{place}{key}.")
        else:
            yield place + key, value


def _read(env: type[Env[Any]], folder: Path, config: Mapping[str, Any]) -> _Run:
    path = folder / EPISODES
    values: dict[Key, dict[str, float] | None] = {}
    places: dict[str, _Place] = {}
    for episode in read_episodes(path):
        values[episode.key] = _values(episode)
        if episode.key[0] not in places:
            places[episode.key[0]] = _place(env, episode, folder)
    _check_finished(folder, config, len(values))
    return _Run(folder, dict(config), values, places)


def _place(env: type[Env[Any]], episode: Episode, folder: Path) -> _Place:
    try:
        task = env.task_type.model_validate(episode.task)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise DataError(
            f"expected a task of {env.name} in {folder / EPISODES}, got {episode.key[0]!r}: {reason}; evaluate it again"
        ) from None
    return _Place(env.cluster(task), env.facets(task))


def _check_finished(folder: Path, config: Mapping[str, Any], found: int) -> None:
    wanted = int(config.get("tasks") or 0) * int(config.get("attempts") or 0)
    if not found or found != wanted:
        fault = f"{found:,} of {wanted:,} episodes"
    elif _is_torn(folder / EPISODES):
        fault = "one whose last line is torn"
    elif not (folder / SUMMARY).is_file():
        fault = f"one without {SUMMARY}"
    else:
        return
    raise DataError(f"expected a finished run in {folder}, got {fault}; continue it with --out {folder} --resume")


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def _values(episode: Episode) -> dict[str, float] | None:
    score = episode.score
    if score is None or not episode.is_sample:
        return None
    parts = {name: float(value) for name, value in score.parts.items() if value is not None}
    calls = model_calls(episode)
    rounds = parts.get("rounds", _turns(episode)) if calls is None else float(calls)
    tokens, seconds = float(episode.tokens.sampled), episode.seconds["total"]
    measured = {"rounds": rounds, "tokens": tokens, "seconds": seconds}
    return {**parts, **measured, "score": score.total, "reward": score.reward}


def _turns(episode: Episode) -> float:
    """Stretches of sampled text that something else stands before."""
    sources = ["prompt", *(turn.source for turn in episode.transcript)]
    return float(sum(now == "sampled" != before for before, now in pairwise(sources)))


def _paired(
    name: str, pairs: Sequence[tuple[Key, Mapping[str, float], Mapping[str, float]]], places: Mapping[str, _Place]
) -> PairedMetric | None:
    known = [
        (old[name], new[name], places[task].cluster) for (task, _), old, new in pairs if name in old and name in new
    ]
    if not known:
        return None
    a, b, clusters = ([row[0] for row in known], [row[1] for row in known], [row[2] for row in known])
    test = None
    if name == "score" and {*a, *b} <= {0.0, 1.0}:
        a_only, b_only = sum(old > new for old, new in zip(a, b, strict=True)), sum(map(float.__lt__, a, b))
        test = McNemar(a_only=a_only, b_only=b_only, p=mcnemar(a_only, b_only))
    return PairedMetric(**paired(a, b, clusters)._asdict(), mcnemar=test)


def rendered(found: Comparison) -> list[RenderableType]:
    """The comparison as lines and a table for the terminal."""
    one, two = found.a, found.b
    lines = [f"A: {one.run} ({one.policy})", f"B: {two.run} ({two.policy})"]
    for name, values in found.differences.items():
        was, now = (_option(name, value) for value in values)
        lines.append(f"differs: {name}: A {was}, B {now}")
    failed = f"infrastructure failures A {one.infra_failures:,}, B {two.infra_failures:,}"
    lines.append(f"pairs: {found.pairs:,}; left out: {found.excluded:,} ({failed})")
    if one.unpaired or two.unpaired:
        lines.append(f"in one run only, left out: A {one.unpaired:,}, B {two.unpaired:,} episodes")
    if found.only_in_one:
        lines.append(f"parts of one run only, left out: {', '.join(found.only_in_one)}")
    below = _notes(found)
    return [*(Text(visible(line)) for line in lines), _table(found), *(Text(visible(line)) for line in below)]


def _option(name: str, value: Any) -> str:
    return str(value)[:12] if name.endswith("sha256") else "not set" if value is None else dumps(value)


def _table(found: Comparison) -> Table:
    with_test = any(row.mcnemar for row in found.metrics.values())
    clustered = any(row.clusters < row.n for row in _rows(found))
    table = Table(title=Text(f"{visible(found.env)}: mean of pairs, B - A [95 % interval]; groups: score"))
    table.title_justify = "left"
    table.add_column("")
    sizes = ("n", "clusters") if clustered else ("n",)
    for name in (*sizes, "A", "B", "B - A", *(("only A / B", "McNemar p") if with_test else ())):
        table.add_column(name, justify="right", min_width=16 if name == "B - A" else None)

    def add(label: str, row: PairedMetric) -> None:
        counts = (row.n, row.clusters) if clustered else (row.n,)
        cells = [*(f"{count:,}" for count in counts), _number(row.a), _number(row.b), _difference(row)]
        if row.mcnemar is not None:
            cells += [f"{row.mcnemar.a_only:,} / {row.mcnemar.b_only:,}", f"{row.mcnemar.p:.3g}"]
        table.add_row(Text(visible(label)), *map(Text, cells))

    for name, row in found.metrics.items():
        add(name, row)
    for facet, rows in found.groups.items():
        table.add_section()
        for value, row in rows.items():
            add(f"{facet} = {value}", row)
    return table


def _rows(found: Comparison) -> list[PairedMetric]:
    return [*found.metrics.values(), *(row for group in found.groups.values() for row in group.values())]


def _notes(found: Comparison) -> list[str]:
    score = found.metrics["score"]
    lines = []
    if any(row.clusters < _FEW_CLUSTERS for row in _rows(found)):
        lines.append(f"with fewer than {_FEW_CLUSTERS} clusters an interval is narrower than it should be")
    if score.mcnemar is not None and score.clusters < score.n:
        lines.append(
            f"McNemar's test takes {score.n:,} pairs as independent, but they share {score.clusters:,} clusters: "
            "where it and the interval disagree, trust the interval"
        )
    return lines


def _difference(row: PairedMetric) -> str:
    if row.low is None or row.high is None:
        return _number(row.difference, "+")
    return f"{_number(row.difference, '+')} [{_number(row.low, '+')}, {_number(row.high, '+')}]"


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}z,.1f}" if abs(value) >= 100 else f"{value:{sign}z.3f}"
