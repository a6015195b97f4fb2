"""From easy to hard: scores, tertiles, quotas, and the order that TRL's own data loader hands out."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.core import Task
from agl.errors import UserError
from agl.graphs.sources.folder import read_folder
from agl.graphs.text_graph import TextGraph
from envs.grit.env import GritEnv
from train.curriculum import (
    NODE_QUOTAS,
    PAIR_QUOTAS,
    Phases,
    Stages,
    arranged,
    ordered,
    phased,
    read_curriculum,
    refuse_disorder,
    tertiles,
    whole_generations,
)
from train.ease import node_ease, node_scores, pair_ease, pair_scores, wilson_low


def tasks_of(count: int) -> list[Task]:
    return [Task(id=f"t{number:05}", env="toy") for number in range(count)]


def rows(tasks: list[Task]) -> list[int]:
    return [int(task.id[1:]) for task in tasks]


# Scores


def test_check_values() -> None:
    assert wilson_low([1.0, 0.5, 0.0, 0.0], [10, 10, 0, 7]) == pytest.approx([0.7225, 0.2366, 0.0, 0.0], abs=5e-5)
    assert node_ease(1.0, 10) == pytest.approx(0.72246 + 0.05 * np.log(11), abs=1e-5)
    assert node_ease(0.5, 10) == pytest.approx(0.23659 + 0.05 * np.log(11), abs=1e-5)
    assert node_ease(0.5, 10, most=10) == pytest.approx(0.23659 + 0.05, abs=1e-5)
    assert node_ease(0.0, 0) == 0.0
    assert pair_ease([0.8, 0.8, -0.2], [True, False, False]) == pytest.approx([0.8, 0.2, 1.2])


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 10_000), st.integers(1, 10_000))
def test_more_neighbours_of_the_same_label_are_easier(p: float, q: float, d: int, e: int) -> None:
    assert 0.0 <= wilson_low(p, d) <= p + 1e-12
    assert (node_ease(p, d) <= node_ease(q, d) + 1e-12) == (p <= q) or abs(p - q) < 1e-5  # flat near 0
    assert node_ease(p, min(d, e)) <= node_ease(p, max(d, e)) + 1e-12


def test_only_training_labels_are_read() -> None:
    #  0 - 1, 2, 3, 4: labels of 3 and 4 lie outside the training part; 5 has no neighbour, 6 no text, 7 no label
    graph = TextGraph.build(
        range(8),
        ["t"] * 6 + ["  ", "t"],
        [(0, 1), (0, 2), (0, 3), (0, 4), (6, 1), (7, 1)],
        labels=[0, 0, 1, 0, 0, 1, 0, -1],
    )
    train = [0, 1, 2, 5, 6, 7]
    scores = node_scores(graph, train)
    assert scores[0] == pytest.approx(node_ease(0.5, 4, observed=2))
    assert scores[2] == pytest.approx(node_ease(0.0, 1))
    assert scores[5] == 0.0
    assert np.isnan(scores[[3, 4, 6, 7]]).all()
    other = graph.replaced(labels=[0, 0, 1, 1, -1, 1, 0, -1])
    assert node_scores(other, train).tolist() == pytest.approx(scores.tolist(), nan_ok=True)
    code = node_scores(graph, train, profile="code")
    assert code[0] == pytest.approx(node_ease(0.75, 4, most=4))
    assert not np.isnan(code[[3, 4]]).any()


def test_scores_of_a_real_graph(shared: Path) -> None:
    graph = read_folder(shared / "data" / "cora")
    train = graph.nodes_in("train")
    scores = node_scores(graph, train)
    mask = np.isin(np.arange(graph.n), train)
    for row in train[::7]:
        seen = [int(n) for n in graph.neighbors(row) if mask[n] and graph.labels[n] >= 0]
        same = sum(graph.labels[n] == graph.labels[row] for n in seen)
        wanted = node_ease(same / len(seen) if seen else 0.0, graph.degree(row), observed=len(seen))
        assert scores[row] == pytest.approx(float(wanted))
    assert np.isnan(scores[~mask]).all()


def test_similarity_is_the_cosine() -> None:
    vectors = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 0.0]], dtype=np.float32)
    assert pair_scores(vectors, [(0, 1), (0, 1), (0, 2)], [True, False, True]) == pytest.approx([0.96, 0.04, 0.0])


# Buckets and quotas


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.5001, 0.9]), max_size=50))
def test_tertiles_are_equal_parts_in_order(scores: list[float]) -> None:
    buckets = tertiles(scores)
    sizes = [int((buckets == bucket).sum()) for bucket in range(3)]
    assert max(sizes) - min(sizes) <= 1
    for score, bucket in zip(scores, buckets, strict=True):
        assert all(score <= other for other, easier in zip(scores, buckets, strict=True) if easier < bucket)


@pytest.mark.parametrize("profile", ["paper", "code"])
def test_quotas_of_nodes_and_no_node_in_both_stages(profile: Any) -> None:
    tasks, scores = tasks_of(3600), np.random.default_rng(0).random(3600)
    taken = [rows(ordered(tasks, scores, Stages(stage=stage, profile=profile))) for stage in (1, 2)]
    for stage, found in enumerate(taken):
        buckets = tertiles(scores)[found].tolist()
        assert buckets == sorted(buckets)
        assert [buckets.count(bucket) for bucket in range(3)] == list(NODE_QUOTAS[profile][stage])
    assert not set(taken[0]) & set(taken[1])
    assert len(set(taken[0]) | set(taken[1])) == 3000


def test_quotas_of_pairs_are_balanced_and_both_stages_see_the_medium_ones() -> None:
    tasks, linked = tasks_of(3000), [number % 2 == 0 for number in range(3000)]
    similarity = np.random.default_rng(0).random(3000) * np.where(linked, 1.0, 0.5)
    scores = pair_ease(similarity, linked)
    taken = [rows(ordered(tasks, scores, Stages(stage=stage), linked=linked)) for stage in (1, 2)]
    own = np.empty(3000, dtype=int)
    for side in (True, False):
        members = np.flatnonzero(np.array(linked) == side)
        own[members] = tertiles(scores[members])
    for stage, found in enumerate(taken):
        buckets = own[found].tolist()
        assert buckets == sorted(buckets)
        assert [buckets.count(bucket) for bucket in range(3)] == list(PAIR_QUOTAS[stage])
        for _, group in groupby(found, key=lambda row: own[row]):
            sides = [linked[row] for row in group]
            assert sum(sides) * 2 == len(sides)
    assert len(set(taken[0]) & set(taken[1])) == 1000
    assert len(set(taken[0]) | set(taken[1])) == 3000


def test_small_graphs_share_their_buckets_in_proportion() -> None:
    tasks, scores = tasks_of(300), np.linspace(1, 0, 300)
    one, two = (ordered(tasks, scores, Stages(stage=stage)) for stage in (1, 2))
    assert len(one) == 80 + 50 + 50
    assert len(two) == 20 + 50 + 50
    assert sorted(rows([*one, *two])) == list(range(300))
    assert len(ordered(tasks, scores, Stages(stage=2, profile="code"))) == 0 + 50 + 50


def test_each_graph_has_its_own_tertiles_and_quota() -> None:
    tasks, graphs = tasks_of(600), ["a"] * 300 + ["b"] * 300
    scores = np.concatenate([np.linspace(1, 0.9, 300), np.linspace(0.1, 0, 300)])
    options = Stages(quotas=((10, 20, 30), (0, 0, 0)))
    found = rows(ordered(tasks, scores, options, graphs=graphs))
    assert [sum(row < 300 for row in part) for part in (found[:20], found[20:60], found[60:])] == [10, 20, 30]


def test_order_within_a_bucket_is_drawn_by_the_seed_and_by_nothing_else() -> None:
    tasks, scores = tasks_of(300), np.linspace(1, 0, 300)
    first = ordered(tasks, scores, Stages())
    assert rows(first[:80]) != sorted(rows(first[:80]))
    assert first == ordered(tasks, scores, Stages())
    assert first != ordered(tasks, scores, Stages(seed=1))
    places = random.Random(0).sample(range(300), 300)
    assert first == ordered([tasks[place] for place in places], scores[places], Stages())


def test_what_has_no_score_is_left_out() -> None:
    tasks = tasks_of(9)
    found = ordered(tasks, [float("nan"), *np.linspace(1, 0, 8)], Stages(quotas=((9, 9, 9), (0, 0, 0))))
    assert sorted(rows(found)) == list(range(1, 9))
    with pytest.raises(UserError, match="got none among 9"):
        ordered(tasks, [float("nan")] * 9, Stages())
    with pytest.raises(UserError, match="each of 9 tasks, got 3"):
        ordered(tasks, [1.0, 2.0, 3.0], Stages())


# Phases


def test_phases_go_by_size_and_share_what_both_have() -> None:
    sizes = [size for size in range(1, 45) for _ in range(10)]
    tasks, graphs = tasks_of(len(sizes)), [f"g{row // 2}" for row in range(len(sizes))]
    found = rows(phased(tasks, sizes, Phases(), graphs=graphs))
    assert len(found) == len(set(found)) == 10 * (40 - 4 + 1)
    place = {row: at for at, row in enumerate(found)}
    border = 1 + max(place[row] for row in found if sizes[row] < 10)
    border = max(border, min(place[row] for row in found if sizes[row] > 14))
    first, second = found[:border], found[border:]
    assert {sizes[row] for row in first} == set(range(4, 15))
    assert {sizes[row] for row in second} == set(range(10, 41))
    assert not {graphs[row] for row in first} & {graphs[row] for row in second}
    for size in range(10, 15):
        assert sum(sizes[row] == size for row in first) in (4, 6)
    with pytest.raises(UserError, match="graphs of 90 to 99 nodes"):
        phased(tasks, sizes, Phases(phases=((90, 99),)))


def test_phases_of_grit_tasks() -> None:
    tasks = list(GritEnv.tasks())
    options = Phases(phases=((1, 6), (7, 60)))
    sizes = [task.n for task in arranged(tasks, options)]
    assert len(sizes) == len(tasks)
    border = sum(size <= 6 for size in sizes)
    assert 0 < border < len(sizes)
    assert max(sizes[:border]) <= 6
    with pytest.raises(UserError, match="ease expects tasks of agentgl"):
        arranged(tasks, Stages())
    with pytest.raises(UserError, match="size expects tasks of grit"):
        arranged(tasks_of(3), options)


# Tasks of AgentGL


def test_stages_of_nodes_and_pairs_of_a_real_graph(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envs.agentgl.tasks import node_tasks, pair_tasks

    monkeypatch.setenv("AGL_CACHE", str(tmp_path))
    place = str(shared / "data" / "cora")
    nodes = node_tasks(f"{place}@train", 0, None, "agentgl-nc")
    graph = read_folder(Path(place))
    scores = node_scores(graph, graph.nodes_in("train"))
    taken = [arranged(nodes, Stages(stage=stage)) for stage in (1, 2)]
    sizes = np.array([len(part) for part in np.array_split(np.arange(len(nodes)), 3)])
    for quotas, found in zip(NODE_QUOTAS["paper"], taken, strict=True):
        counts = np.round(sizes * quotas / 1000).astype(int)
        assert abs(len(found) - counts.sum()) <= 1
        values = [scores[graph.index_of(task.node)] for task in found]
        parts = np.split(values, np.cumsum(counts)[:-1])
        for easier, harder in pairwise(parts):
            assert np.mean(easier) > np.mean(harder)
    assert sorted(task.id for part in taken for task in part) == sorted(task.id for task in nodes)
    pairs = pair_tasks(f"{place}@train", 0, 300, "agentgl-lp")
    links = arranged(pairs, Stages(stage=2), embedding="tfidf")
    assert len(links) == 200
    assert sum(task.linked for task in links) == 100
    with pytest.raises(UserError, match="expected training tasks"):
        arranged(node_tasks(place, 0, 5, "agentgl-nc"), Stages())
    with pytest.raises(UserError, match="size expects tasks of grit"):
        arranged(nodes, Phases())


# Options


def test_options_are_read_from_a_config() -> None:
    assert read_curriculum({"by": "ease", "stage": 2}) == Stages(stage=2)
    assert read_curriculum({"by": "size", "phases": [[4, 10], [8, 16]]}) == Phases(phases=((4, 10), (8, 16)))
    quotas = [[8, 5, 5], [2, 5, 5]]
    assert read_curriculum({"by": "ease", "quotas": quotas}) == Stages(quotas=((8, 5, 5), (2, 5, 5)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stage": 1}, "curriculum.by: expected ease"),
        ({"by": "luck"}, "curriculum.by: expected ease"),
        ({"by": "ease", "phases": [[4, 10]]}, "curriculum.phases: extra inputs"),
        ({"by": "ease", "stage": 3}, "curriculum.stage: input should be 1 or 2"),
        ({"by": "ease", "quotas": [[1, -1, 1], [1, 1, 1]]}, r"curriculum.quotas.0.1: input should be greater"),
        ({"by": "size", "phases": []}, "curriculum.phases: tuple should have at least 1 item"),
        ({"by": "size", "phases": [[9, 4]]}, "expected the smaller number first"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_curriculum(options)


@given(st.integers(1, 200), st.integers(1, 20))
def test_thinning_leaves_whole_generations_and_takes_no_more_from_the_hard_end(count: int, unit: int) -> None:
    kept = rows(whole_generations(tasks_of(count), unit))
    assert len(kept) == count - count % unit
    assert kept == sorted(set(kept))
    dropped = sorted(set(range(count)) - set(kept))
    if kept and dropped:
        share = len(dropped) / count
        for cut in range(count + 1):
            assert abs(sum(row < cut for row in dropped) - share * cut) <= 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shuffle_dataset", True),
        ("ignore_data_skip", True),
        ("zero_variance_groups", "refill"),
        ("dataloader_in_order", False),
        ("accelerator_config", {"split_batches": True}),
    ],
)
def test_options_that_spoil_the_order_are_refused(name: str, value: Any) -> None:
    fine = {"shuffle_dataset": False, "ignore_data_skip": False, "dataloader_in_order": True}
    refuse_disorder(fine)
    with pytest.raises(UserError, match=name):
        refuse_disorder({**fine, name: value})


# The order that TRL hands out

GROUP = 4
PROMPTS = 26
"""Two more than fill the generations below."""


@pytest.fixture(scope="module")
def make_trainer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A real GRPOTrainer on a model of a few weights whose rollout only notes the prompts it is asked for.

    It takes its order from the sampler of EpisodeTrainer.
    """
    pytest.importorskip("trl")
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from train.trainer import EpisodeTrainer

    class Noting(GRPOTrainer):
        _get_train_sampler = EpisodeTrainer._get_train_sampler

    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", "a", "b", "c", "d"])}
    make_tokenizer: Any = PreTrainedTokenizerFast
    tokenizer = make_tokenizer(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, "<pad>")), pad_token="<pad>", eos_token="<eos>"
    )
    config = Qwen3Config(
        vocab_size=6,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        eos_token_id=1,
        pad_token_id=0,
    )
    make_model: Any = Qwen3ForCausalLM

    def make(prompts: list[str], output: Path | None = None, **options: Any) -> Any:
        seen: list[list[str]] = []

        def play(given: list[str], trainer: Any) -> dict[str, Any]:
            seen.append(list(given))
            ids = [[2 + place % 4, 1] for place in range(len(given))]
            return {
                "prompt_ids": [[2]] * len(given),
                "completion_ids": ids,
                "logprobs": [[-1.0, -1.0]] * len(given),
                "env_mask": [[1, 1]] * len(given),
            }

        def reward(completions: list[Any], **_: Any) -> list[float | None]:
            return [float(place % 3) for place in range(len(completions))]

        arguments = {
            "per_device_train_batch_size": 2,
            "num_generations": GROUP,
            "gradient_accumulation_steps": 2,
            "shuffle_dataset": False,
            "max_completion_length": 8,
            "save_strategy": "no",
            **options,
        }
        torch.set_num_threads(1)
        torch.manual_seed(0)
        trainer = Noting(
            model=make_model(config),
            reward_funcs=reward,
            rollout_func=play,
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            processing_class=tokenizer,
            args=GRPOConfig(
                output_dir=str(output or tmp_path_factory.mktemp("run")),
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to="none",
                disable_tqdm=True,
                **arguments,
            ),
        )
        return trainer, seen

    return make


def easy_to_hard(count: int = PROMPTS) -> tuple[list[str], dict[str, float]]:
    """Prompts as a curriculum orders them, and the score of each."""
    tasks, scores = tasks_of(count), np.random.default_rng(1).random(count)
    found = ordered(tasks, scores, Stages(quotas=((count, count, count), (0, 0, 0))))
    return [task.id for task in found], {task.id: float(score) for task, score in zip(tasks, scores, strict=True)}


def distinct(batches: list[list[str]]) -> list[str]:
    """Prompts in the order of their first appearance."""
    return list(dict.fromkeys(prompt for batch in batches for prompt in batch))


def prompts_of(batch: Any) -> list[str]:
    return [row["prompt"] for row in batch]


SHAPES = [
    pytest.param({}, id="plain"),
    pytest.param({"gradient_accumulation_steps": 4}, id="accumulated"),
    pytest.param({"steps_per_generation": 4}, id="several steps per generation"),
    pytest.param({"steps_per_generation": 4, "num_iterations": 2}, id="iterated"),
    pytest.param({"per_device_train_batch_size": 8, "dataloader_num_workers": 2}, id="workers"),
    pytest.param({"accelerator_config": {"use_seedable_sampler": True}, "data_seed": 7}, id="seedable sampler"),
]


@pytest.mark.slow
@pytest.mark.parametrize("options", SHAPES)
def test_loader_hands_out_the_order_it_is_given(make_trainer: Callable[..., Any], options: dict[str, Any]) -> None:
    prompts, scores = easy_to_hard()
    trainer, _ = make_trainer(prompts, **options)
    loader = trainer.get_train_dataloader()
    per_generation = trainer.args.generation_batch_size // GROUP
    repeats = trainer.args.steps_per_generation * trainer.num_iterations
    for _ in range(2):  # every epoch
        batches = [prompts_of(batch) for batch in loader]
        assert distinct(batches) == prompts[: PROMPTS // per_generation * per_generation]
        generations = batches[::repeats]
        for number, generation in enumerate(generations):
            wanted = prompts[number * per_generation : (number + 1) * per_generation]
            assert generation == [prompt for prompt in wanted for _ in range(GROUP)]
            assert batches[number * repeats : (number + 1) * repeats] == [generation] * repeats
    rank = dict(zip(scores, tertiles(list(scores.values())).tolist(), strict=True))
    means = [np.mean([rank[prompt] for prompt in generation]) for generation in generations]
    assert means == sorted(means)


@pytest.mark.slow
@pytest.mark.parametrize("options", SHAPES)
def test_sampler_of_trl_has_the_same_order(make_trainer: Callable[..., Any], options: dict[str, Any]) -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer

    trainer, _ = make_trainer(easy_to_hard()[0], **options)
    assert list(trainer._get_train_sampler()) == list(GRPOTrainer._get_train_sampler(trainer))


@pytest.mark.slow
def test_thinned_tasks_fill_every_generation(make_trainer: Callable[..., Any]) -> None:
    prompts, _ = easy_to_hard()
    tasks = whole_generations([Task(id=prompt, env="toy") for prompt in prompts], 4)
    kept = [task.id for task in tasks]
    trainer, _ = make_trainer(kept, per_device_train_batch_size=8)
    assert distinct([prompts_of(batch) for batch in trainer.get_train_dataloader()]) == kept
    assert kept[-1] == prompts[-1]


@pytest.mark.slow
def test_default_of_trl_shuffles(make_trainer: Callable[..., Any]) -> None:
    """What the refusal of `shuffle_dataset` is there for."""
    prompts, _ = easy_to_hard()
    trainer, _ = make_trainer(prompts, shuffle_dataset=True)
    assert distinct([prompts_of(batch) for batch in trainer.get_train_dataloader()]) != prompts


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("steps_per_generation", [2, 4])
def test_ranks_together_see_the_order(make_trainer: Callable[..., Any], ranks: int, steps_per_generation: int) -> None:
    """What each of several ranks reads, by accelerate's own sharding of TRL's own sampler."""
    from accelerate.data_loader import BatchSamplerShard, prepare_data_loader
    from torch.utils.data import DataLoader

    prompts, _ = easy_to_hard(34)
    per_rank = 2
    # One process with the rows of all ranks has the sampler that each of them has.
    trainer, _ = make_trainer(
        prompts, per_device_train_batch_size=ranks * per_rank, steps_per_generation=steps_per_generation
    )
    loaders = []
    for rank in range(ranks):
        loader = DataLoader(
            trainer.train_dataset,
            batch_size=per_rank * steps_per_generation,
            sampler=trainer._get_train_sampler(),
            collate_fn=trainer.data_collator,
        )
        loaders.append(prepare_data_loader(loader, num_processes=ranks, process_index=rank))
        assert isinstance(loaders[-1].batch_sampler, BatchSamplerShard)
    per_generation = ranks * per_rank * steps_per_generation // GROUP
    generations = []
    for parts in zip(*loaders, strict=True):
        rows = [prompt for part in parts for prompt in prompts_of(part)]
        generations.append(rows)
    for number, rows in enumerate(generations[::steps_per_generation]):
        wanted = prompts[number * per_generation : (number + 1) * per_generation]
        assert rows == [prompt for prompt in wanted for _ in range(GROUP)]
    assert distinct(generations) == prompts[: 34 // per_generation * per_generation]


@pytest.mark.slow
def test_skipping_batches_goes_on_where_it_stopped(make_trainer: Callable[..., Any]) -> None:
    from accelerate import skip_first_batches

    prompts, _ = easy_to_hard()
    trainer, _ = make_trainer(prompts, steps_per_generation=4)
    loader = trainer.get_train_dataloader()
    every = [prompts_of(batch) for batch in loader]
    for skipped in range(len(every)):
        rest = [prompts_of(batch) for batch in skip_first_batches(trainer.get_train_dataloader(), skipped)]
        assert rest == every[skipped:]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "stop"), [({}, 5), ({"steps_per_generation": 4}, 3), ({"num_iterations": 2}, 5)])
def test_training_and_a_resumed_run_go_from_easy_to_hard(
    make_trainer: Callable[..., Any], tmp_path: Path, options: dict[str, Any], stop: int
) -> None:
    """The prompts that the rollout is asked for, over two epochs; the second run starts amid the first epoch."""
    prompts, _ = easy_to_hard(8)
    fixed = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": stop, **options}
    whole, seen = make_trainer(prompts, tmp_path, **fixed)
    whole.train()
    per_generation = whole.args.generation_batch_size // GROUP
    slices = [prompts[start : start + per_generation] for start in range(0, 8, per_generation)]
    assert [distinct([generation]) for generation in seen] == slices * 2
    again, rest = make_trainer(prompts, tmp_path / "again", **fixed)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    assert again.state.global_step == whole.state.global_step
    found = [distinct([generation]) for generation in rest]
    # A generation that the checkpoint cut is sampled again, since its episodes are not saved; none is left out.
    left = len(found)
    assert found == (slices * 2)[-left:]
    generations_done = stop * len(slices) * 2 // whole.state.global_step
    assert left == 2 * len(slices) - generations_done


def test_networkx_agrees_on_the_share_of_neighbours() -> None:
    nets = nx.karate_club_graph()
    labels = [int(nets.nodes[node]["club"] != "Mr. Hi") for node in nets]
    graph = TextGraph.build(range(len(labels)), ["t"] * len(labels), list(nets.edges()), labels=labels)
    scores = node_scores(graph, np.ones(len(labels), dtype=bool))
    for node in nets:
        share = sum(labels[other] == labels[node] for other in nets[node]) / nets.degree(node)
        unweighted = len(nets[node])
        assert scores[node] == pytest.approx(float(node_ease(share, unweighted)))
