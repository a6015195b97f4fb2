"""The order in which a training run serves its tasks, from the episodes that it wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from agl.errors import DataError
from agl.policies.scripted import Oracle
from agl.trace import read_episodes
from envs.agentgl.tasks import graph_of, node_tasks
from eval.runner import evaluate
from tests.served_tasks import Served, served
from tests.test_agentgl_sources import ring
from tests.tiny_model import save_tiny
from tests.tiny_trainer import quiet_config
from train.curriculum import tertiles
from train.ease import node_scores

GROUP = 2


def test_files_are_put_together_by_step_draw_and_rank(tmp_path: Path) -> None:
    evaluate("agentgl-nc", Oracle(), limit=4, out=tmp_path / "run")
    lines = {episode.task["id"]: episode.line() for episode in read_episodes(tmp_path / "run" / "episodes.jsonl")}
    a, b, c, d = lines
    (tmp_path / "episodes").mkdir()
    for name, ids in {
        "000002-0-rank1": [b],
        "000002-0-rank0": [a, a],
        "000010-0-rank0": [d],
        "000002-1-rank0": [c, a, c],
    }.items():
        (tmp_path / "episodes" / f"{name}.jsonl").write_text("".join(f"{lines[one]}\n" for one in ids))
    assert served(tmp_path) == [Served(2, (a, b)), Served(2, (c, a)), Served(10, (d,))]
    with pytest.raises(DataError, match="save_episodes"):
        served(tmp_path / "run")


def trainer(model: str, source: str, output: Path) -> Any:
    import torch
    from transformers import AutoTokenizer

    from train.options import EpisodeArguments
    from train.setting import setting, with_curriculum
    from train.trainer import EpisodeTrainer

    torch.set_num_threads(1)
    arguments = EpisodeArguments(
        environment="agentgl-nc",
        source=source,
        environment_options={"stage": 1, "budget": 1, "k": 1, "preview": 20},
        curriculum={"by": "ease", "quotas": [[1, 1, 1], [0, 0, 0]]},
        max_turn_tokens=4,
        max_infra_share=1.0,
    )
    grpo = quiet_config(
        output,
        per_device_train_batch_size=2 * GROUP,
        num_generations=GROUP,
        max_completion_length=24,
        num_train_epochs=1,
        save_strategy="steps",
        save_steps=1,
        shuffle_dataset=False,
    )
    values = {field.name: getattr(grpo, field.name) for field in dataclasses.fields(grpo)}
    return EpisodeTrainer(
        with_curriculum(arguments, setting(arguments).read(), values, 1),
        arguments,
        model=model,
        args=grpo,
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )


@pytest.mark.slow
def test_a_run_on_two_graphs_goes_from_easy_to_hard_over_a_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path / "cache"))
    folders = [ring(tmp_path / "red", 60, "red", "fox"), ring(tmp_path / "blue", 40, "blue", "whale")]
    source = "+".join(f"{folder}@train" for folder in folders)
    model = save_tiny(tmp_path / "model", context=8192)
    output = tmp_path / "run"
    trainer(model, source, output).train()
    whole = served(output)
    assert [one.step for one in whole] == [0, 1, 2]

    bucket: dict[str, int] = {}
    for folder in folders:
        graph = graph_of(str(folder))
        scores = node_scores(graph, graph.split == 0)
        own = sorted(node_tasks(f"{folder}@train", 0, None, "agentgl-nc"), key=lambda task: task.id)
        found = tertiles([scores[graph.index_of(task.node)] for task in own])
        bucket |= {task.id: int(part) for task, part in zip(own, found, strict=True)}
    assert [[bucket[task] for task in one.tasks] for one in whole] == [[0, 0], [1, 1], [2, 2]]
    for one in whole:
        assert sorted(task.split("/")[1] for task in one.tasks) == ["blue", "red"]

    for file in (output / "episodes").glob("00000[12]-*.jsonl"):
        file.unlink()
    again = trainer(model, source, output)
    again.train(resume_from_checkpoint=str(output / "checkpoint-1"))
    assert again.state.global_step == 3
    assert served(output) == whole
