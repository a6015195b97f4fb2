"""`agl eval`: frozen evaluation from the command line."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from agl.completion import env_names, policy_names
from agl.config import load_config
from agl.core import Frozen
from agl.errors import InfraError, UserError
from agl.policies.build import SPECS, build_policy, inner_spec
from agl.policies.policy import Policy, Sampling
from agl.registry import env_class
from agl.rollout import Limits
from agl.run_folder import EPISODES, RunFolder, folder_name
from eval.runner import Plan, plan, run
from eval.summary import Summary


class EvalConfig(Frozen):
    """What `--config` files and `--set` may say. Flags of the same name win over the file, `--set` wins over both."""

    env: str
    policy: str | list[str]
    data: str | None = None
    limit: int | None = None
    attempts: int = 1
    seed: int = 0
    dialect: str | None = None
    concurrency: int = 8
    shots: int = 0
    out: str | None = None
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    env_options: dict[str, Any] = Field(default_factory=dict)
    policy_options: dict[str, Any] = Field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Name -> options that differ from the rest of the file: one run each, all in one table. For ablations."""

    def variant(self, name: str) -> EvalConfig:
        """This config with the options of one variant.

        Raises:
            UserError: it names an unknown option or gives a value of the wrong type.
        """
        rest = self.model_dump(mode="json", exclude={"variants"})
        overrides = [f"{key}={json.dumps(value)}" for key, value in self.variants[name].items()]
        return load_config(EvalConfig, None, values=rest, overrides=overrides)

    def each(self) -> dict[str, EvalConfig]:
        """Every variant by its name; this config under the name "" where it has none.

        Raises:
            UserError: as `variant`.
        """
        return {name: self.variant(name) for name in self.variants} or {"": self}

    @property
    def policies(self) -> list[str]:
        return [self.policy] if isinstance(self.policy, str) else self.policy


def evaluate(
    env: Annotated[
        str | None,
        typer.Argument(help="Environment; `agl envs` lists them.", show_default=False, autocompletion=env_names),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="oracle, random, silent, a player of the environment (`agl envs`), replay:FILE, smollm2, "
            "hf:NAME|DIR, vllm:NAME|DIR or openai:MODEL@http://HOST:PORT/v1; repeat it to compare policies.",
            show_default=False,
            autocompletion=policy_names,
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="NAME|FILE|DIR", help="Split, file or folder of tasks.")] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="Format of the --data file where an env reads several: greal, nlgraph, ..."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Most tasks.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Episodes per task. Default: 1.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of generated tasks and of sampling. Default: 0.")] = None,
    dialect: Annotated[str | None, typer.Option(help="tags, tools or the paper's own, which is the default.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Most episodes at once. Default: 8.")] = None,
    shots: Annotated[int | None, typer.Option(help="Worked examples in the prompt. Default: 0.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most new tokens per turn. Default: 512.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy. Default: 0.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Most seconds per episode. Default: 600.")] = None,
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Run folder. Default: runs/ENV-POLICY-TIME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Options as YAML.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any option of the YAML, such as sampling.top_p=0.9."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json, and nothing else, on stdout.")] = False,
) -> None:
    """Evaluate one or more policies on an environment; nothing is trained.

    Example: agl eval grit --policy smollm2 --shots 1 --limit 12 --out runs/first

    Example: agl eval grit --policy oracle --policy random --data test --json
    """
    if format_ is not None and data is None:
        raise UserError(f"expected --data FILE with --format {format_}, got none; name the file")
    flags = {
        "env": env,
        "policy": policy or None,
        "data": data if format_ is None else f"{format_}:{data}",
        "limit": limit,
        "attempts": attempts,
        "seed": seed,
        "dialect": dialect,
        "concurrency": concurrency,
        "shots": shots,
        "out": out,
        "sampling": _given({"max_tokens": max_tokens, "temperature": temperature}),
        "limits": _given({"deadline": deadline}),
    }
    chosen = load_config(EvalConfig, config, values=_given(flags), overrides=set_ or ())
    if resume and chosen.out is None:
        raise UserError("expected --out RUN with --resume, got none; name the run folder to continue")
    root = Path(chosen.out) if chosen.out is not None else _default_out(chosen)
    runs = _runs(chosen, root, resume)
    summaries = {name: _play(one, root) for name, one in runs.items()}
    _print(runs, summaries, root, chosen, as_json)


@dataclass(frozen=True)
class _Run:
    """One policy under one variant of the config, checked and not started."""

    spec: str
    chosen: EvalConfig
    checked: Plan
    folder: RunFolder


def _runs(chosen: EvalConfig, root: Path, resume: bool) -> dict[str, _Run]:
    """Everything that is to be played, by the name its row in the table has."""
    found = {}
    for name, config in chosen.each().items():
        check_policies(config.policies, env_class(config.env).players)
        plan = checked(config)
        for spec in config.policies:
            parts = [name] * bool(name) + [spec] * (len(config.policies) > 1)
            folder = root.joinpath(*map(folder_name, parts))
            found[", ".join(parts) or spec] = _Run(spec, config, plan, plan.folder(spec, folder, resume=resume))
    return found


def checked(chosen: EvalConfig) -> Plan:
    return plan(
        chosen.env,
        data=chosen.data,
        limit=chosen.limit,
        attempts=chosen.attempts,
        seed=chosen.seed,
        dialect=chosen.dialect,
        concurrency=chosen.concurrency,
        shots=chosen.shots,
        limits=chosen.limits,
        sampling=chosen.sampling,
        env_options=chosen.env_options,
    )


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None and value != {}}


def _default_out(chosen: EvalConfig) -> Path:
    policies = (
        folder_name("+".join(chosen.policies)) if len(chosen.policies) < 4 else f"{len(chosen.policies)}-policies"
    )
    return Path("runs") / f"{chosen.env}-{policies}-{time.strftime('%Y%m%d-%H%M%S')}"


def check_policies(specs: Sequence[str], players: Sequence[str]) -> None:
    """Refuse what no policy is called, before anything else is read.

    Args:
        players: of the environment, see `Env.players`.

    Raises:
        UserError: names the policy that is nearest, or all.
    """
    if not specs:
        raise UserError("expected at least one --policy, got none; try --policy oracle")
    known_specs = (*players, *SPECS)
    for spec in specs:
        nested = inner_spec(spec)
        kind, colon, rest = (nested[1] if nested else spec).partition(":")
        if not any(known == kind + colon + rest or (rest and known.startswith(kind + colon)) for known in known_specs):
            # What has a slash looks like a model of the hub or a folder.
            near = [f"hf:{spec}"] if "/" in spec and ":" not in spec else get_close_matches(spec, known_specs, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(known_specs)}"
            raise UserError(f"expected a policy, got {spec!r}; {hint}")
        if specs.count(spec) > 1:
            raise UserError(f"expected different policies, got --policy {spec} twice; remove one")


def _play(one: _Run, root: Path) -> Summary:
    from eval.progress import shown
    from eval.tables import console

    def make_policy() -> Policy:
        return build_policy(one.spec, one.chosen.sampling, one.checked.env.players, **one.chosen.policy_options)

    try:
        with shown(f"{one.chosen.env}, {one.spec}", console(stderr=True)) as on_episode:
            return run(one.checked, one.folder, make_policy, on_episode=on_episode)
    except KeyboardInterrupt:
        print(f"agl: interrupted; finished episodes are kept; continue with: {_again(root)}", file=sys.stderr)
        raise typer.Exit(130) from None
    except InfraError as error:
        if not one.folder.path.exists():
            raise
        raise InfraError(f"{error}; finished episodes are kept; continue with: {_again(root)}") from error


def _again(root: Path) -> str:
    words = sys.argv[1:]
    if not any(word == "--out" or word.startswith("--out=") for word in words):
        words += ["--out", str(root)]
    if "--resume" not in words:
        words += ["--resume"]
    return shlex.join(["agl", *words])


def _alike(policy: str) -> str:
    """This command with another policy and its own run folder."""
    kept: list[str] = []
    words = iter(sys.argv[1:])
    for word in words:
        if word in ("--policy", "--out"):
            next(words, None)
        elif not word.startswith(("--policy=", "--out=")) and word not in ("--resume", "--json"):
            kept.append(word)
    return f"{shlex.join(['agl', *kept])} --policy {policy}"


def _print(
    runs: Mapping[str, _Run], summaries: Mapping[str, Summary], root: Path, chosen: EvalConfig, as_json: bool
) -> None:
    if as_json:
        dumped = [summary.model_dump(mode="json") for summary in summaries.values()]
        if chosen.variants:
            dumped = [{"variant": name, **summary} for name, summary in zip(summaries, dumped, strict=True)]
        print(json.dumps(dumped[0] if len(dumped) == 1 else dumped, ensure_ascii=False, indent=2))
        return
    from eval.tables import cell, comparison_table, console, fitting, notes, result_table

    screen = console()
    for name, summary in summaries.items():
        if len(summaries) == 1:
            metrics = runs[name].checked.env.metrics
            leading = [metrics[:count] for count in range(len(metrics), -1, -1)]
            screen.print(fitting(screen, partial(result_table, summary), leading))
        else:
            screen.print(f"{name}: score {cell(summary.metrics['score'])}, n {summary.n:,}", markup=False)
        for line in [*notes(summary), f"run folder: {runs[name].folder.path}"]:
            screen.print(f"  {line}", markup=False, soft_wrap=True)
    if len(summaries) > 1:
        screen.print(fitting(screen, lambda wide: comparison_table(summaries, with_interval=wide), (True, False)))
    paths = [shlex.quote(str(one.folder.path)) for one in runs.values()]
    lines = _next(paths, next(iter(runs.values())).checked.tasks[0].id, chosen)
    if any(summary.outcomes.infra_failure for summary in summaries.values()):
        lines.append(f"{_again(root)}   (plays the infrastructure failures again)")
    for line in ["next:", *(f"  {line}" for line in lines)]:
        screen.print(line, markup=False, soft_wrap=True)


def _next(paths: Sequence[str], task: str, chosen: EvalConfig) -> list[str]:
    """Commands that make sense now, as far as `agl` has them."""
    from agl.cli import MOUNTS

    arguments = {
        "report": paths[0],
        "show": f"{paths[0]} --episode {shlex.quote(task)}",
        "compare": " ".join(paths[:2]) if len(paths) > 1 else f"{paths[0]} OTHER_RUN",
    }
    lines = [f"agl {name} {words}" for name, words in arguments.items() if name in MOUNTS]
    lines.append(f"{_alike('hf:NAME_OR_FOLDER')}   (your model on the same tasks)")
    lines.append(f"{_alike(f'replay:{paths[-1]}/{EPISODES}')}   (score the same words again)")
    training = Path("configs/train", f"{chosen.env}_tiny_cpu.yaml")
    if training.is_file():
        launch = "accelerate launch --config_file configs/accelerate/cpu.yaml"
        lines.append(f"{launch} train/grpo.py --config {training}   (train the small model here)")
    return lines
