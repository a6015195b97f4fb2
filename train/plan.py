"""What a training run will do, worked out before any weights load: options, batch arithmetic, context and memory."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agl.config import read_yaml
from agl.core import Env, Task
from agl.dialects import dialect_for
from agl.dialects.dialect import Dialect
from agl.errors import UserError
from agl.policies.chat_template import ChatTemplate
from agl.policies.hf import read_template, resolve_model
from agl.registry import env_class
from train.groups import BatchPlan, batch_plan
from train.memory import MemoryPlan, memory_plan, model_config

PROBED = 64
"""Prompts that a plan measures; a run measures all."""

Positive = Annotated[int, Field(ge=1)]


@dataclass
class EpisodeArguments:
    """What the episodes of a training run are. Everything else is an option of TRL's GRPOConfig or ModelConfig."""

    environment: str = dataclasses.field(default="grit", metadata={"help": "Registered name of the environment."})
    environment_options: dict[str, Any] | str | None = dataclasses.field(
        default=None,
        metadata={"help": "Keyword arguments of the environment class, as a map (on the command line: JSON)."},
    )
    source: str | None = dataclasses.field(
        default=None, metadata={"help": "Split or file the tasks come from; default: the environment's small one."}
    )
    task_facets: dict[str, str] | str | None = dataclasses.field(
        default=None,
        metadata={"help": "Keep tasks with these values of the environment's facets, a map (command line: JSON)."},
    )
    task_limit: Annotated[int, Field(ge=1)] | None = dataclasses.field(default=None, metadata={"help": "Most tasks."})
    task_seed: int = dataclasses.field(default=0, metadata={"help": "Seed of a generated split."})
    dialect: str | None = dataclasses.field(
        default=None, metadata={"help": "How actions are written; default: the paper's own."}
    )
    chat_template: str | None = dataclasses.field(
        default=None, metadata={"help": "Jinja file, or `training` for TRL's training template."}
    )
    shots: Annotated[int, Field(ge=0)] = dataclasses.field(
        default=0, metadata={"help": "Worked examples in each prompt."}
    )
    max_prompt_tokens: Positive = dataclasses.field(
        default=4096, metadata={"help": "Longest prompt; a longer one is an error before the run."}
    )
    max_turn_tokens: Positive = dataclasses.field(default=512, metadata={"help": "Most new tokens in one turn."})
    max_turns: Positive = dataclasses.field(
        default=64, metadata={"help": "Most turns; a backstop, environments have budgets of their own."}
    )
    episode_deadline: Annotated[float, Field(gt=0)] = dataclasses.field(
        default=300.0, metadata={"help": "Wall-clock seconds for one episode."}
    )
    episode_retries: Annotated[int, Field(ge=0)] = dataclasses.field(
        default=1, metadata={"help": "Fresh attempts after an infrastructure failure."}
    )
    concurrency: Annotated[int, Field(ge=1)] | None = dataclasses.field(
        default=None, metadata={"help": "Most episodes at once per rank; default: all."}
    )
    truncated_episodes: Literal["train", "mask"] = dataclasses.field(
        default="train",
        metadata={
            "help": (
                "Episodes cut by a token limit: `train` on them like any other; `mask`: they count in the group, "
                "but give no gradient."
            )
        },
    )
    format_credit: Annotated[float, Field(ge=0, allow_inf_nan=False)] = dataclasses.field(
        default=0.0,
        metadata={
            "help": (
                "SHAPING, in no paper, off by default: adds up to this much for keeping to the protocol. "
                "For models that start without any valid episode."
            )
        },
    )
    max_infra_share: Annotated[float, Field(ge=0, le=1)] = dataclasses.field(
        default=0.05,
        metadata={
            "help": "Stop when a larger share of episodes fails for the machinery's fault, three batches in a row."
        },
    )
    save_episodes: bool = dataclasses.field(
        default=True, metadata={"help": "Write every episode to OUTPUT_DIR/episodes."}
    )

    def __post_init__(self) -> None:
        """Check types and ranges.

        Raises:
            UserError: the first option that is out of range.
        """
        for name in ("environment_options", "task_facets"):
            setattr(self, name, _as_map(name, getattr(self, name)))
        for name, adapter in _adapters().items():
            try:
                setattr(self, name, adapter.validate_python(getattr(self, name)))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                said = first["msg"][0].lower() + first["msg"][1:]
                raise UserError(f"option {name}: {said}, got {first['input']!r}; correct it") from None


def _as_map(name: str, value: Any) -> dict[str, Any] | None:
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            found = value
    if not isinstance(found, dict | None):
        raise UserError(f"option {name}: expected a map (on the command line a JSON object), got {value!r}; correct it")
    return found


def _adapters() -> dict[str, TypeAdapter[Any]]:
    from typing import get_type_hints

    hints = get_type_hints(EpisodeArguments, include_extras=True)
    strict = ConfigDict(strict=True)
    return {name: TypeAdapter(hint, config=strict) for name, hint in hints.items()}


_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_vllm": (
        (False,),
        "rollouts through vLLM are not part of train/grpo.py yet; set use_vllm: false to sample with transformers",
    ),
    "use_transformers_continuous_batching": ((False,), "episodes are batched by AGL's own sampler; leave it out"),
    "use_transformers_paged": ((False, None), "episodes are batched by AGL's own sampler; leave it out"),
    "top_p": ((1.0,), "training needs the whole distribution, else the importance ratios are wrong; set top_p: 1"),
    "top_k": ((0, None), "training needs the whole distribution, else the importance ratios are wrong; leave it out"),
    "min_p": ((None,), "training needs the whole distribution, else the importance ratios are wrong; leave it out"),
    "repetition_penalty": ((1.0,), "AGL's sampler applies no penalties; leave it out"),
    "generation_kwargs": ((None, {}), "AGL's sampler does not read them; leave them out"),
    "cache_implementation": ((None,), "AGL's sampler does not read it; leave it out"),
    "chat_template_kwargs": ((None, {}), "prompts are written by AGL; use chat_template instead"),
    "max_tool_calling_iterations": ((None,), "episodes are played by AGL; use max_turns instead"),
    "mask_truncated_completions": (
        (False,),
        "TRL judges truncation by the last token, which is wrong for episodes that end in a tag; "
        "use truncated_episodes: mask",
    ),
    "reward_weights": ((None,), "there is one reward, that of the environment; use environment_options"),
    "remove_unused_columns": ((False, None), "the task column is needed; leave it out"),
    "ds3_gather_for_generation": (
        (True,),
        "without gathering, each forward pass is collective and ranks whose episodes differ in length wait for ever; "
        "set ds3_gather_for_generation: true",
    ),
    "fsdp": ((None, "", [], False), "FSDP gathers in each forward pass, so ranks would wait for ever; use ZeRO-3"),
    "do_eval": ((False,), "evaluate checkpoints with `agl eval ENV --policy hf:CHECKPOINT`; leave it out"),
    "eval_strategy": (("no",), "evaluate checkpoints with `agl eval ENV --policy hf:CHECKPOINT`; leave it out"),
}
"""Options of GRPOConfig that AGL's rollout would leave without effect: name -> (values allowed, what to do)."""


def refuse_inert(grpo: Mapping[str, Any], *, but: Iterable[str] = ()) -> None:
    """Refuse options that would be read and do nothing.

    Args:
        grpo: values of GRPOConfig fields.
        but: names not to look at.

    Raises:
        UserError: names the option, its legal value and the remedy.
    """
    for name, (allowed, remedy) in _REFUSED.items():
        if name in grpo and name not in but and grpo[name] not in allowed:
            raise UserError(f"option {name}: expected {allowed[0]!r}, got {grpo[name]!r}: {remedy}")
    if not grpo.get("temperature", 1.0) > 0:
        raise UserError(f"option temperature: expected a number above 0, got {grpo['temperature']!r}; train at 1.0")


def check_keys(keys: Iterable[str], place: str) -> None:
    """Refuse keys that are options of nothing.

    Raises:
        UserError: with the nearest legal option, and the episode options in full.
    """
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.model_config import ModelConfig

    sections: Any = (EpisodeArguments, GRPOConfig, ModelConfig)
    episode, *others = ([field.name for field in dataclasses.fields(cls)] for cls in sections)
    legal = {*episode, *(name for names in others for name in names), "env"}
    for key in keys:
        if key not in legal:
            near = difflib.get_close_matches(key, sorted(legal), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "correct or remove it"
            raise UserError(
                f"unknown option {key!r} {place}; {hint} Legal: {', '.join(episode)}, "
                "and every option of TRL's GRPOConfig and ModelConfig (see --help)"
            )


def read_arguments(argv: Sequence[str]) -> tuple[EpisodeArguments, Any, Any]:
    """(EpisodeArguments, GRPOConfig, ModelConfig) out of `--config FILE` and flags; flags win.

    Raises:
        UserError: an unreadable file, an unknown option, a value out of range.
    """
    from trl.scripts.utils import TrlParser
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.model_config import ModelConfig

    argv = list(argv)
    flags = argv
    if "--config" in argv:
        place = argv.index("--config")
        if place + 1 == len(argv):
            raise UserError("expected a file after --config, got nothing; name a YAML file of configs/train")
        check_file(Path(argv[place + 1]))
        flags = argv[:place] + argv[place + 2 :]
    sections: Any = (EpisodeArguments, GRPOConfig, ModelConfig)
    parser = TrlParser(sections, allow_abbrev=False)
    vars(parser)["error"] = _refuse
    _, unknown = parser.parse_known_args(flags)
    if unknown:
        check_keys([word[2:].partition("=")[0].replace("-", "_") for word in unknown if word.startswith("--")], "given")
        raise UserError(f"expected options (--name value), got {' '.join(unknown)}; remove it")
    try:
        filled = parser.parse_args_and_config(argv)
    except (ValueError, TypeError) as error:
        raise UserError(f"the options do not fit together: {' '.join(str(error).split())}") from None
    episode, grpo, model = filled
    if not model.model_name_or_path:
        raise UserError("expected model_name_or_path, got none; set it to smollm2, a folder or a Hub id")
    return episode, grpo, model


def _refuse(message: str) -> NoReturn:
    raise UserError(f"{' '.join(message.split())}; correct it, --help lists every option")


def check_file(file: Path) -> dict[str, Any]:
    """The options in a training config, their names checked.

    Raises:
        UserError: an unreadable file or an unknown option.
    """
    values = read_yaml(file)
    if not isinstance(values.get("env", {}), dict):
        raise UserError(
            f"option env in {file}: TRL keeps that name for a map of environment variables; "
            f"write environment: {values['env']}"
        )
    check_keys(values, f"in {file}")
    return values


@dataclass(frozen=True)
class Setting:
    """The environment of a run and its tasks."""

    make_env: Callable[[], Env[Any]]
    task_type: type[Task]
    tasks: Sequence[Task]
    dialect: Dialect
    shots: int

    def read(self) -> Setting:
        """The same with every task made and their ids checked; a generated split may be lazy until then.

        Raises:
            UserError: two tasks of one id.
        """
        tasks = list(self.tasks)
        seen: set[str] = set()
        for task in tasks:
            if task.id in seen:
                raise UserError(f"expected tasks with different ids, got {task.id!r} twice; correct the data")
            seen.add(task.id)
        return dataclasses.replace(self, tasks=tasks)


def setting(arguments: EpisodeArguments) -> Setting:
    """Look the environment up and make its tasks.

    Raises:
        UserError: unknown environment, dialect, data or environment option.
    """
    cls = env_class(arguments.environment)
    make_env = partial(cls, **_as_map("environment_options", arguments.environment_options) or {})
    try:
        env = make_env()
    except TypeError as error:
        raise UserError(f"option environment_options: {error}; correct or remove it") from None
    return Setting(
        make_env, cls.task_type, _tasks(cls, arguments), dialect_for(env, arguments.dialect), arguments.shots
    )


def _tasks(cls: type[Env[Any]], arguments: EpisodeArguments) -> Sequence[Task]:
    """The tasks of a run, in order: facets first, then the limit."""
    wanted = _as_map("task_facets", arguments.task_facets)
    limit = arguments.task_limit
    if not wanted:
        return cls.tasks(arguments.source, seed=arguments.task_seed, limit=limit)
    every = list(cls.tasks(arguments.source, seed=arguments.task_seed))
    for facet, value in wanted.items():
        values = sorted({cls.facets(task).get(facet, "") for task in every})
        if value not in values:
            known = ", ".join(cls.facets(every[0])) if every else "none"
            legal = f"its values are {', '.join(values)}" if any(values) else f"the facets are {known}"
            raise UserError(f"option task_facets: no task has {facet} = {value!r}; {legal}")
    kept = [task for task in every if wanted.items() <= cls.facets(task).items()]
    if not kept:
        raise UserError(f"option task_facets: no task has all of {wanted}; drop one of them")
    return kept[:limit]


def prompt_lengths(setting: Setting, template: ChatTemplate, at_most: int | None = None) -> list[int]:
    """Tokens in the prompt of each task, in order: the prompt that the rollout will open with, to the byte.

    Args:
        at_most: look only at so many tasks, spread evenly.
    """
    env = setting.make_env()
    lengths = []
    count = len(setting.tasks)
    looked_at = count if at_most is None else min(at_most, count)
    for place in range(looked_at):
        task = setting.tasks[place * count // looked_at]
        _, prompt = setting.dialect.open(env, task, setting.shots)
        lengths.append(len(template.first(prompt.messages, prompt.tools)))
    env.close()
    return lengths


@dataclass(frozen=True)
class Plan:
    """A checked run. `prompt_tokens` is (shortest, longest), or None without a tokenizer at hand."""

    model: str
    environment: str
    batch: BatchPlan
    epochs: float
    total_steps: int
    prompt_tokens: tuple[int, int] | None
    max_prompt_tokens: int
    response_tokens: int
    model_context: int | None
    memory: MemoryPlan | None
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data, stable names."""
        out = dataclasses.asdict(self)
        out["context_tokens"] = self.max_prompt_tokens + self.response_tokens
        if self.memory is not None:
            out["memory"]["peak"] = self.memory.peak
        return out

    def lines(self) -> list[tuple[str, str]]:
        """(what, value) for people."""
        batch = self.batch
        rows = [
            ("model", self.model),
            ("environment", f"{self.environment}, {batch.prompts} prompts"),
            (
                "one generation",
                f"{batch.prompts_per_generation} prompts x {batch.group_size} = {batch.rows_per_generation} rows, "
                f"{batch.rows_per_rank} on each of {batch.ranks} ranks",
            ),
            ("one step", f"{batch.rows_per_step} rows = {batch.prompts_per_step:g} prompts"),
            (
                "one epoch",
                f"{batch.generations_per_epoch} generations, {batch.steps_per_epoch} steps, "
                f"{batch.dropped_prompts} prompts dropped",
            ),
            ("whole run", f"{self.total_steps} steps"),
        ]
        context = f"prompt {self.max_prompt_tokens} + response {self.response_tokens}"
        context += f" = {self.max_prompt_tokens + self.response_tokens} tokens"
        context += f"; the model holds {self.model_context}" if self.model_context else ""
        rows.append(("context", context))
        if self.prompt_tokens is not None:
            rows.append(("prompts", f"{self.prompt_tokens[0]} to {self.prompt_tokens[1]} tokens"))
        if self.memory is not None:
            rows.extend(self.memory.lines())
        rows.extend(("note", note) for note in self.notes)
        return rows


def make_plan(
    arguments: EpisodeArguments,
    grpo: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    prompts: int,
    ranks: int,
    zero3: bool = False,
    lengths: Sequence[int] | None = None,
    notes: Sequence[str] = (),
    hub: bool = True,
) -> Plan:
    """Check the arithmetic of a run.

    Args:
        grpo: values of GRPOConfig fields.
        model: values of ModelConfig fields.
        zero3: weights, gradients and optimiser are sharded over the ranks.
        lengths: tokens of each prompt; None when there is no tokenizer at hand.
        hub: it may be asked for the model's configuration.

    Raises:
        UserError: batches that are not whole groups, prompts or budgets that do not fit.
    """
    batch = batch_plan(
        prompts=prompts,
        group_size=grpo["num_generations"],
        ranks=ranks,
        per_rank=grpo["per_device_train_batch_size"],
        steps_accumulated=grpo["gradient_accumulation_steps"],
        steps_per_generation=_feeds(grpo, ranks),
        iterations=grpo["num_iterations"],
    )
    response = grpo["max_completion_length"]
    if response is None:
        raise UserError("expected max_completion_length, the token budget of one episode's response; got none; set it")
    if lengths and max(lengths) > arguments.max_prompt_tokens:
        over = sum(length > arguments.max_prompt_tokens for length in lengths)
        raise UserError(
            f"option max_prompt_tokens: {over} of {len(lengths)} prompts are longer than "
            f"{arguments.max_prompt_tokens} tokens; set it to at least {max(lengths)}"
        )
    if ranks > 1:
        waves = -(-batch.rows_per_rank // (arguments.concurrency or batch.rows_per_rank))
        longest = arguments.episode_deadline * (arguments.episode_retries + 1) * waves
        if longest >= grpo["ddp_timeout"]:
            raise UserError(
                f"a rank may wait {longest:g} s for another one's episodes (episode_deadline x "
                f"{arguments.episode_retries + 1} attempts x {waves} waves), but ddp_timeout ends the run after "
                f"{grpo['ddp_timeout']} s; raise ddp_timeout or lower episode_deadline"
            )
    name = str(model["model_name_or_path"])
    found = model_config(name, model.get("model_revision"), hub=hub)
    context = None if found is None else found.get_text_config().max_position_embeddings
    wanted = arguments.max_prompt_tokens + response
    if context is not None and wanted > context:
        raise UserError(
            f"max_prompt_tokens {arguments.max_prompt_tokens} + max_completion_length {response} = {wanted} tokens, "
            f"but {name} holds {context}; lower one of them"
        )
    said = list(notes)
    if found is None:
        said.append(f"memory and context are not known: no configuration of {name} here (agl plan --hub asks the Hub)")
    if lengths is None:
        said.append("prompt lengths are not known: the tokenizer is not here (agl plan --hub asks the Hub)")
    elif len(lengths) < prompts:
        said.append(f"prompt lengths are those of {len(lengths)} tasks")
    memory = None
    if found is not None:
        memory = memory_plan(
            found,
            grpo,
            model,
            ranks=ranks,
            zero3=zero3,
            rows_generated=min(batch.rows_per_rank, arguments.concurrency or batch.rows_per_rank),
            tokens=min(wanted, (max(lengths) if lengths else arguments.max_prompt_tokens) + response),
        )
    steps = grpo["max_steps"] if grpo["max_steps"] > 0 else round(batch.steps_per_epoch * grpo["num_train_epochs"])
    return Plan(
        model=name,
        environment=arguments.environment,
        batch=batch,
        epochs=grpo["num_train_epochs"],
        total_steps=steps,
        prompt_tokens=(min(lengths), max(lengths)) if lengths else None,
        max_prompt_tokens=arguments.max_prompt_tokens,
        response_tokens=response,
        model_context=context,
        memory=memory,
        notes=tuple(said),
    )


def _feeds(grpo: Mapping[str, Any], ranks: int) -> int | None:
    """Forward passes fed by one generation, as GRPOConfig works it out."""
    feeds: int | None = grpo.get("steps_per_generation")
    rows = grpo.get("generation_batch_size")
    if feeds is not None or rows is None:
        return feeds
    passes = ranks * grpo["per_device_train_batch_size"]
    if rows % passes:
        raise UserError(
            f"option generation_batch_size: expected a multiple of {passes} (ranks x per_device_train_batch_size), "
            f"got {rows}; set it to {max(1, rows // passes) * passes} or {-(-rows // passes) * passes}"
        )
    return int(rows // passes)


def tokenizer_template(
    arguments: EpisodeArguments, model: str, revision: str | None = None, *, hub: bool = True
) -> tuple[Any, ChatTemplate]:
    """The tokenizer of `model` and its checked chat template. `hub`: it may be asked.

    Raises:
        UserError: no tokenizer there, or a chat template that rewrites earlier turns.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            resolve_model(model), revision=revision, padding_side="left", local_files_only=not hub
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"cannot load the tokenizer of {model}: {reason}") from None
    return tokenizer, ChatTemplate(tokenizer, read_template(arguments.chat_template, tokenizer))


def plan_file(file: Path, *, ranks: int | None = None, accelerate: Path | None = None, hub: bool = False) -> Plan:
    """Plan the run of a training config without loading weights or starting processes.

    Args:
        ranks: processes; None takes those of `accelerate`, else 1.
        accelerate: the file for `accelerate launch --config_file`.
        hub: it may be asked for the model's configuration and tokenizer.

    Raises:
        UserError: the run could not start as configured.
    """
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.model_config import ModelConfig

    values = check_file(file)
    values.pop("env", None)
    launch = read_yaml(accelerate) if accelerate is not None else {}
    ranks = ranks or int(launch.get("num_processes") or 1)
    names = [{field.name for field in dataclasses.fields(cls)} for cls in (EpisodeArguments, GRPOConfig, ModelConfig)]
    episode, grpo_given, model_given = ({key: values[key] for key in values if key in part} for part in names)
    arguments = EpisodeArguments(**episode)
    model = dataclasses.asdict(ModelConfig(**model_given))
    if not model["model_name_or_path"]:
        raise UserError(f"expected model_name_or_path in {file}, got none; set it to smollm2, a folder or a Hub id")
    grpo = _grpo_values(grpo_given, ranks)
    refuse_inert(grpo, but=["use_vllm"])
    notes = []
    if grpo["use_vllm"]:
        share = grpo["vllm_gpu_memory_utilization"]
        notes.append(f"use_vllm: {_REFUSED['use_vllm'][1]}")
        if grpo["vllm_mode"] == "colocate":
            notes.append(f"vLLM in colocate mode takes {share:.0%} of the GPU on top")
    found = setting(arguments)
    lengths: list[int] | None = None
    try:
        name, revision = str(model["model_name_or_path"]), model["model_revision"]
        _, template = tokenizer_template(arguments, name, revision, hub=hub)
    except UserError as error:
        if "cannot load the tokenizer" not in str(error):
            raise
    else:
        lengths = prompt_lengths(found, template, at_most=PROBED)
    return make_plan(
        arguments,
        grpo,
        model,
        prompts=len(found.tasks),
        ranks=ranks,
        zero3=(launch.get("deepspeed_config") or {}).get("zero_stage") == 3,
        lengths=lengths,
        notes=notes,
        hub=hub,
    )


def _grpo_values(given: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """All values of GRPOConfig for `ranks` processes, checked by GRPOConfig itself in this one process.

    One process stands for all: it takes the rows of all ranks, and the CPU, so that bf16 needs no GPU here.
    """
    from trl.trainer.grpo_config import GRPOConfig

    per_rank = given.get("per_device_train_batch_size", 8)
    batch_plan(
        prompts=10**9,
        group_size=given.get("num_generations", 8),
        ranks=ranks,
        per_rank=per_rank,
        steps_accumulated=given.get("gradient_accumulation_steps", 1),
        steps_per_generation=_feeds({"per_device_train_batch_size": per_rank, **given}, ranks),
    )
    here = {"use_cpu": True, "bf16": False, "fp16": False, "tf32": None, "output_dir": "plan", "report_to": "none"}
    try:
        config = GRPOConfig(**{**given, **here, "per_device_train_batch_size": per_rank * ranks})
    except (ValueError, TypeError) as error:
        raise UserError(f"the options do not fit together: {' '.join(str(error).split())}") from None
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(GRPOConfig)}
    precision = {name: given.get(name) for name in ("use_cpu", "fp16")}
    precision["bf16"] = given.get("bf16", not given.get("fp16"))
    return {**values, **precision, "per_device_train_batch_size": per_rank, "generation_batch_size": None}
