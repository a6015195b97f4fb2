"""The setting of a training run: its environment, tasks in order, evaluation set, tokenizer and prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agl.core import Env, Task
from agl.dialects import dialect_for
from agl.dialects.dialect import Dialect
from agl.errors import UserError
from agl.policies.chat_template import ChatTemplate
from agl.policies.hf import read_template, resolve_model
from agl.registry import env_class
from train.groups import batch_of
from train.options import EpisodeArguments, as_map


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
    make_env = partial(cls, **as_map("environment_options", arguments.environment_options) or {})
    try:
        env = make_env()
    except TypeError as error:
        raise UserError(f"option environment_options: {error}; correct or remove it") from None
    dialect = dialect_for(env, arguments.dialect)
    if arguments.decisions != "every" and not dialect.fresh:
        raise UserError(
            f"option decisions: expected every, got {arguments.decisions!r}: under the dialect {dialect.name} an "
            "episode has one context, so nothing would change; leave it out"
        )
    wanted = as_map("task_facets", arguments.task_facets)
    tasks = _tasks(cls, arguments.source, wanted, arguments.task_seed, arguments.task_limit, "task_facets")
    return Setting(make_env, cls.task_type, tasks, dialect, arguments.shots)


def with_curriculum(arguments: EpisodeArguments, found: Setting, grpo: Mapping[str, Any], ranks: int) -> Setting:
    """The same with its tasks from easy to hard, as many as fill whole generations; unchanged without a curriculum.

    Args:
        grpo: values of GRPOConfig fields.

    Raises:
        UserError: tasks or options with which there is no such order.
    """
    wanted = as_map("curriculum", arguments.curriculum)
    if wanted is None:
        return found
    from train.curriculum import arranged, read_curriculum, refuse_disorder, whole_generations

    refuse_disorder({**vars(arguments), **grpo})
    tasks = arranged(found.tasks, read_curriculum(wanted))
    batch = batch_of(grpo, len(tasks), ranks)
    return dataclasses.replace(found, tasks=whole_generations(tasks, batch.prompts_per_generation))


def evaluation_setting(arguments: EpisodeArguments, training: Setting, grpo: Mapping[str, Any]) -> Setting | None:
    """The tasks by which the best checkpoint is chosen; None where the run evaluates nothing.

    Args:
        training: with its tasks made.
        grpo: values of GRPOConfig fields.

    Raises:
        UserError: evaluation without tasks or tasks without evaluation, or a task that is trained on as well.
    """
    asked = str(getattr(grpo["eval_strategy"], "value", grpo["eval_strategy"])) != "no"
    if arguments.eval_source is None:
        if asked:
            raise UserError(
                "option eval_source: expected the split or file of the evaluation tasks, got none; set it, or leave "
                "eval_strategy out"
            )
        return None
    if not asked:
        raise UserError("option eval_source: nothing would be evaluated; set eval_strategy: steps and eval_steps")
    wanted = as_map("eval_facets", arguments.eval_facets)
    source, seed, limit = arguments.eval_source, arguments.eval_seed, arguments.eval_limit
    cls = env_class(arguments.environment)
    found = dataclasses.replace(training, tasks=_tasks(cls, source, wanted, seed, limit, "eval_facets")).read()
    if not found.tasks:
        raise UserError(f"option eval_source: expected tasks in {source}, got none; choose another")
    trained = {task.model_dump_json(exclude={"id"}) for task in training.tasks}
    both = [task.id for task in found.tasks if task.model_dump_json(exclude={"id"}) in trained]
    if both:
        raise UserError(
            f"option eval_source: {len(both)} of {len(found.tasks)} evaluation tasks are trained on as well, such as "
            f"{both[0]!r}; choose another split, seed or facet"
        )
    return found


def _tasks(
    cls: type[Env[Any]], source: str | None, wanted: Mapping[str, str] | None, seed: int, limit: int | None, name: str
) -> Sequence[Task]:
    """Tasks in order: facets first, then the limit. `name` is the option that holds the facets."""
    if not wanted:
        return cls.tasks(source, seed=seed, limit=limit)
    every = list(cls.tasks(source, seed=seed))
    for facet, value in wanted.items():
        values = sorted({cls.facets(task).get(facet, "") for task in every})
        if value not in values:
            known = ", ".join(cls.facets(every[0])) if every else "none"
            legal = f"its values are {', '.join(values)}" if any(values) else f"the facets are {known}"
            raise UserError(f"option {name}: no task has {facet} = {value!r}; {legal}")
    kept = [task for task in every if wanted.items() <= cls.facets(task).items()]
    if not kept:
        raise UserError(f"option {name}: no task has all of {wanted}; drop one of them")
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
        try:
            _, prompt = setting.dialect.open(env, task, setting.shots)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"expected a prompt of task {task.id!r}, got {type(error).__name__} from {env.name}: "
                f"{' '.join(str(error).split())}; mend the environment or leave the task out"
            ) from error
        lengths.append(len(template.first(prompt.messages, prompt.tools)))
    env.close()
    return lengths


class TokenizerError(UserError):
    """No tokenizer at hand."""


def template_at_hand(arguments: EpisodeArguments, model: Mapping[str, Any], *, hub: bool) -> ChatTemplate | None:
    """The checked chat template of `model` (values of ModelConfig fields); None without its tokenizer.

    Raises:
        UserError: a chat template that rewrites earlier turns.
    """
    try:
        name, revision = str(model["model_name_or_path"]), model["model_revision"]
        return tokenizer_template(arguments, name, revision, hub=hub)[1]
    except TokenizerError:
        return None


def tokenizer_template(
    arguments: EpisodeArguments, model: str, revision: str | None = None, *, hub: bool = True
) -> tuple[Any, ChatTemplate]:
    """The tokenizer of `model` and its checked chat template. `hub`: it may be asked.

    Raises:
        TokenizerError: no tokenizer there.
        UserError: a chat template that rewrites earlier turns.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            resolve_model(model), revision=revision, padding_side="left", local_files_only=not hub
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TokenizerError(f"cannot load the tokenizer of {model}: {reason}") from None
    return tokenizer, ChatTemplate(tokenizer, read_template(arguments.chat_template, tokenizer))
