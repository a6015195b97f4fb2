"""`agl eval`: frozen evaluation from the command line."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from agl.config import load_config
from agl.core import Frozen
from agl.errors import InfraError, UserError
from agl.policies.build import SPECS, build_policy, inner_spec
from agl.policies.policy import Policy, Sampling
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

    @property
    def policies(self) -> list[str]:
        return [self.policy] if isinstance(self.policy, str) else self.policy


def evaluate(
    env: Annotated[str | None, typer.Argument(help="Environment; `agl envs` lists them.", show_default=False)] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="oracle, random, silent, replay:FILE, smollm2, hf:NAME|DIR, vllm:NAME|DIR or "
            "openai:MODEL@http://HOST:PORT/v1; repeat it to compare policies.",
            show_default=False,
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
    dialect: Annotated[str | None, typer.Option(help="tags or tools. Default: as published.")] = None,
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
    specs = chosen.policies
    _check_policies(specs)
    checked = plan(
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
    root = Path(chosen.out) if chosen.out is not None else _default_out(chosen)
    folders = {
        spec: checked.folder(spec, root if len(specs) == 1 else root / folder_name(spec), resume=resume)
        for spec in specs
    }
    summaries = {spec: _run(checked, folder, spec, chosen, root) for spec, folder in folders.items()}
    _print(checked, folders, summaries, root, chosen, as_json)


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None and value != {}}


def _default_out(chosen: EvalConfig) -> Path:
    policies = (
        folder_name("+".join(chosen.policies)) if len(chosen.policies) < 4 else f"{len(chosen.policies)}-policies"
    )
    return Path("runs") / f"{chosen.env}-{policies}-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_policies(specs: Sequence[str]) -> None:
    if not specs:
        raise UserError("expected at least one --policy, got none; try --policy oracle")
    for spec in specs:
        nested = inner_spec(spec)
        kind, colon, rest = (nested[1] if nested else spec).partition(":")
        if not any(known == kind + colon + rest or (rest and known.startswith(kind + colon)) for known in SPECS):
            near = get_close_matches(spec, SPECS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(SPECS)}"
            raise UserError(f"expected a policy, got {spec!r}; {hint}")
        if specs.count(spec) > 1:
            raise UserError(f"expected different policies, got --policy {spec} twice; remove one")


def _run(checked: Plan, folder: RunFolder, spec: str, chosen: EvalConfig, root: Path) -> Summary:
    from eval.progress import shown
    from eval.tables import console

    def make_policy() -> Policy:
        return build_policy(spec, chosen.sampling, **chosen.policy_options)

    try:
        with shown(f"{chosen.env}, {spec}", console(stderr=True)) as on_episode:
            return run(checked, folder, make_policy, on_episode=on_episode)
    except KeyboardInterrupt:
        print(f"agl: interrupted; finished episodes are kept; continue with: {_again(root)}", file=sys.stderr)
        raise typer.Exit(130) from None
    except InfraError as error:
        if not folder.path.exists():
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
    checked: Plan,
    folders: Mapping[str, RunFolder],
    summaries: Mapping[str, Summary],
    root: Path,
    chosen: EvalConfig,
    as_json: bool,
) -> None:
    if as_json:
        dumped = [summary.model_dump(mode="json") for summary in summaries.values()]
        print(json.dumps(dumped[0] if len(dumped) == 1 else dumped, ensure_ascii=False, indent=2))
        return
    from eval.tables import cell, comparison_table, console, fitting, notes, result_table

    screen = console()
    for spec, summary in summaries.items():
        if len(summaries) == 1:
            metrics = checked.env.metrics
            leading = [metrics[:count] for count in range(len(metrics), -1, -1)]
            screen.print(fitting(screen, partial(result_table, summary), leading))
        else:
            screen.print(f"{spec}: score {cell(summary.metrics['score'])}, n {summary.n:,}", markup=False)
        for line in [*notes(summary), f"run folder: {folders[spec].path}"]:
            screen.print(f"  {line}", markup=False, soft_wrap=True)
    if len(summaries) > 1:
        screen.print(fitting(screen, lambda wide: comparison_table(summaries, with_interval=wide), (True, False)))
    paths = [shlex.quote(str(folder.path)) for folder in folders.values()]
    lines = _next(paths, checked.tasks[0].id, chosen)
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
