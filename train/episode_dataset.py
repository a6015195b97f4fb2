"""Tasks as the dataset that TRL draws prompts from."""

from __future__ import annotations

from typing import Any

from agl.core import Task
from train.setting import Setting


def dataset_of(setting: Setting) -> Any:
    """Tasks as the dataset TRL wants. The prompt column is what its completion tables show: the first observation.

    The model's own prompt is made by the rollout. A task is one JSON text, since Arrow would give all rows the keys
    of any.
    """
    from datasets import Dataset

    env = setting.make_env()
    rows = [{"prompt": _shown(env, task), "task": task.model_dump_json()} for task in setting.tasks]
    env.close()
    return Dataset.from_list(rows)


def _shown(env: Any, task: Task) -> str:
    try:
        text: str = env.reset(task).text
    except Exception as error:  # the rollout will make a failed episode of it
        return f"(no prompt: {error})"
    return text
