"""The options of a training run: what they are, which are refused, and how a config and flags are read."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agl.config import read_yaml
from agl.errors import UserError

Positive = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Branching(BaseModel):
    """How ARPO branches (option `arpo`). Defaults are those of GRAIN's training table and of the ARPO paper."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    initial: Positive = Field(default=2, description="Episodes of a group that are played from the start.")
    beam: Annotated[int, Field(ge=2)] = Field(default=2, description="Paths that leave a branching place.")
    alpha: Finite = Field(default=0.5, description="Base branch probability.")
    beta: Finite = Field(default=0.2, description="Weight of the rise of entropy.")
    tau: Finite = Field(default=0.5, description="A place qualifies when alpha + beta * rise > tau.")
    entropy_tokens: Positive = Field(default=20, description="Tokens over which entropy is averaged.")
    top_tokens: Positive = Field(default=10, description="Likeliest tokens that count one by one.")
    places: tuple[Literal["result", "think"], ...] = Field(
        default=("result", "think"), min_length=1, description="After a result; at the end of a think block."
    )
    advantage: Literal["soft", "hard"] = Field(
        default="soft", description="hard: shared tokens get the mean advantage of the episodes that share them."
    )


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
    curriculum: dict[str, Any] | str | None = dataclasses.field(
        default=None,
        metadata={
            "help": (
                "From easy to hard, a map (command line: JSON): {by: size, phases: [[4, 14], [10, 40]]} as GRAIN, or "
                "{by: ease, stage: 1} as AgentGL. Wants shuffle_dataset: false."
            )
        },
    )
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
    call_deadline: Annotated[float, Field(gt=0)] = dataclasses.field(
        default=120.0,
        metadata={"help": "Seconds that one call of the environment may block; then its episode fails."},
    )
    truncated_episodes: Literal["train", "mask", "abstain"] = dataclasses.field(
        default="train",
        metadata={
            "help": (
                "Episodes cut by a token limit: `train` on them like any other; `mask`: they count in the group, "
                "but give no gradient; `abstain`: they do neither."
            )
        },
    )
    unanswered_episodes: Literal["train", "mask", "abstain"] = dataclasses.field(
        default="train", metadata={"help": "The same for other episodes that ended without an answer."}
    )
    decisions: Literal["every", "one", "append"] = dataclasses.field(
        default="every",
        metadata={
            "help": (
                "Episodes that rebuild their context, one per decision: train on `every` decision, on `one` drawn per "
                "episode (the same gradient in expectation, cheaper), or `append` each fresh prompt to one growing "
                "context (one row, but not the prompts of evaluation)."
            )
        },
    )
    zero_variance_groups: Literal["keep", "drop", "refill"] = dataclasses.field(
        default="keep",
        metadata={
            "help": (
                "Groups whose task scores are all equal (shaping not counted): `keep` them, `drop` them from the loss, "
                "or `refill`: play other tasks in their place, then drop what is still without spread."
            )
        },
    )
    max_refills: Positive = dataclasses.field(
        default=2, metadata={"help": "Most rounds of `refill` in one generation."}
    )
    arpo: dict[str, Any] | str | None = dataclasses.field(
        default=None,
        metadata={
            "help": (
                "ARPO instead of plain GRPO: a map (command line: JSON; {} for the defaults) of initial, beam, alpha, "
                "beta, tau, entropy_tokens, top_tokens, places, advantage."
            )
        },
    )
    eval_source: str | None = dataclasses.field(
        default=None,
        metadata={"help": "Split or file of the tasks that eval_strategy plays; no task of training may be in it."},
    )
    eval_facets: dict[str, str] | str | None = dataclasses.field(
        default=None, metadata={"help": "task_facets of the evaluation set."}
    )
    eval_limit: Annotated[int, Field(ge=1)] | None = dataclasses.field(
        default=None, metadata={"help": "Most evaluation tasks."}
    )
    eval_seed: int = dataclasses.field(default=0, metadata={"help": "Seed of a generated evaluation split."})
    eval_temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = dataclasses.field(
        default=0.0, metadata={"help": "Sampling temperature of evaluation; 0 is greedy."}
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
    sample_episodes: Annotated[int, Field(ge=0)] = dataclasses.field(
        default=4,
        metadata={"help": "Episodes of each generation in OUTPUT_DIR/episodes.jsonl, which `agl show` reads."},
    )

    def __post_init__(self) -> None:
        """Check types and ranges.

        Raises:
            UserError: the first option that is out of range.
        """
        validate(self, maps=("environment_options", "task_facets", "eval_facets", "arpo", "curriculum"))
        self.branching()
        if self.curriculum is not None:
            from train.curriculum import read_curriculum

            read_curriculum(as_map("curriculum", self.curriculum) or {})

    def branching(self) -> Branching | None:
        """How ARPO branches; None for plain GRPO.

        Raises:
            UserError: an unknown or impossible value.
        """
        given = as_map("arpo", self.arpo)
        if given is None:
            return None
        places = given.get("places")
        try:
            return Branching(**{**given, **({"places": tuple(places)} if isinstance(places, list) else {})})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(map(str, first["loc"]))
            legal = ", ".join(Branching.model_fields)
            raise UserError(
                f"option arpo.{name}: {first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}; "
                f"correct it (legal: {legal})"
            ) from None


def as_map(name: str, value: Any) -> dict[str, Any] | None:
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            found = value
    if not isinstance(found, dict | None):
        raise UserError(f"option {name}: expected a map (on the command line a JSON object), got {value!r}; correct it")
    return found


def validate(options: Any, *, maps: Iterable[str]) -> None:
    """Check the fields of a dataclass of options against their annotations, in place; `maps` may be given as JSON.

    Raises:
        UserError: the first field of the wrong type or out of range.
    """
    for name in maps:
        setattr(options, name, as_map(name, getattr(options, name)))
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(strict=True))
        try:
            setattr(options, name, adapter.validate_python(getattr(options, name)))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = first["msg"][0].lower() + first["msg"][1:]
            raise UserError(f"option {name}: {said}, got {first['input']!r}; correct it") from None


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "vllm_tensor_parallel_size": (
        (1,),
        "episodes of different ranks take turns of their own, which an engine over several ranks does not allow; leave "
        "it out (a server may be parallel: vllm serve --tensor-parallel-size)",
    ),
    "vllm_structured_outputs_regex": ((None,), "AGL's requests do not read it; leave it out"),
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
}
"""Options of GRPOConfig that AGL's rollout would leave without effect: name -> (values allowed, what to do)."""


def refuse_others(legal: Mapping[str, tuple[tuple[Any, ...], str]], values: Mapping[str, Any]) -> None:
    """Refuse a value that is not among those allowed in `legal`: name -> (values allowed, what to do).

    Raises:
        UserError: names the option, its legal value and the remedy.
    """
    for name, (allowed, remedy) in legal.items():
        if name in values and values[name] not in allowed:
            raise UserError(f"option {name}: expected {allowed[0]!r}, got {values[name]!r}: {remedy}")


def refuse_inert(grpo: Mapping[str, Any]) -> None:
    """Refuse options that would be read and do nothing.

    Args:
        grpo: values of GRPOConfig fields.

    Raises:
        UserError: names the option, its legal value and the remedy.
    """
    refuse_others(REFUSED, grpo)
    if not grpo.get("temperature", 1.0) > 0:
        raise UserError(f"option temperature: expected a number above 0, got {grpo['temperature']!r}; train at 1.0")


def read_arguments(argv: Sequence[str]) -> tuple[EpisodeArguments, Any, Any]:
    """(EpisodeArguments, GRPOConfig, ModelConfig) out of `--config FILE` and flags; flags win.

    Raises:
        UserError: an unreadable file, an unknown option, a value out of range.
    """
    episode, grpo, model = read_sections(argv, _sections())
    return episode, grpo, model


def _sections() -> tuple[type[Any], ...]:
    from trl.trainer.model_config import ModelConfig

    from train.grpo_config import GRPOConfig

    return EpisodeArguments, GRPOConfig, ModelConfig


def check_file(file: Path, sections: Sequence[type[Any]] = ()) -> dict[str, Any]:
    """The options in a config, their names checked; `sections` as in `read_sections`, else of reinforcement learning.

    Raises:
        UserError: an unreadable file or an unknown option.
    """
    return _checked_file(file, sections or _sections())


def read_sections(argv: Sequence[str], sections: Sequence[type[Any]]) -> tuple[Any, ...]:
    """One object of each of `sections` (dataclasses: our own options, then TRL's, a ModelConfig last) out of `--config
    FILE` and flags; flags win.

    Raises:
        UserError: an unreadable file, an unknown option, a value out of range.
    """
    from trl.scripts.utils import TrlParser

    argv = list(argv)
    flags = argv
    if "--config" in argv:
        place = argv.index("--config")
        if place + 1 == len(argv):
            raise UserError("expected a file after --config, got nothing; name a YAML file of configs/train")
        _checked_file(Path(argv[place + 1]), sections)
        flags = argv[:place] + argv[place + 2 :]
    all_sections: Any = tuple(sections)
    parser = TrlParser(all_sections, allow_abbrev=False)
    vars(parser)["error"] = _refuse
    try:
        # The sections are not filled here: alone, flags need not make sense.
        _, unknown = parser.parse_known_args(flags)
        if unknown:
            given = [word[2:].partition("=")[0].replace("-", "_") for word in unknown if word.startswith("--")]
            _check_keys(given, "given", sections)
            raise UserError(f"expected options (--name value), got {' '.join(unknown)}; remove it")
        filled = parser.parse_args_and_config(argv)
    except (ValueError, TypeError) as error:
        raise UserError(f"the options do not fit together: {' '.join(str(error).split())}") from None
    if not filled[-1].model_name_or_path:
        raise UserError("expected model_name_or_path, got none; set it to smollm2, a folder or a Hub id")
    return tuple(filled)


def _checked_file(file: Path, sections: Sequence[type[Any]]) -> dict[str, Any]:
    values = read_yaml(file)
    if not isinstance(values.get("env", {}), dict):
        raise UserError(
            f"option env in {file}: TRL keeps that name for a map of environment variables; "
            f"write environment: {values['env']}"
        )
    _check_keys(values, f"in {file}", sections)
    return values


def _check_keys(keys: Iterable[str], place: str, sections: Sequence[type[Any]]) -> None:
    """Refuse keys that are options of nothing, with the nearest legal one and our own in full."""
    ours, *others = ([field.name for field in dataclasses.fields(cls)] for cls in sections)
    legal = {*ours, *(name for names in others for name in names), "env"}
    for key in keys:
        if key not in legal:
            near = difflib.get_close_matches(key, sorted(legal), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "correct or remove it."
            theirs = " and ".join(cls.__name__ for cls in sections[1:])
            raise UserError(
                f"unknown option {key!r} {place}; {hint} Legal: {', '.join(ours)}, "
                f"and every option of TRL's {theirs} (see --help)"
            )


def _refuse(message: str) -> NoReturn:
    raise UserError(f"{' '.join(message.split())}; correct it, --help lists every option")
