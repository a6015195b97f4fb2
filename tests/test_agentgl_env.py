"""AgentGL's environments: budget, pools, leaks, rewards and players, on real graphs and on hostile small ones."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agl.config import checked_options
from agl.core import Malformed, StopReason
from agl.dialects import dialect_for
from agl.dialects.queries import DOCUMENTS, DOCUMENTS_END, QUERY, QUERY_END
from agl.errors import DataError, UserError
from agl.graphs.text_graph import TextGraph
from agl.policies.policy import Dialogue, Play, Policy
from agl.policies.scripted import Oracle, Player, Random, ScriptedDialogue
from agl.rollout import rollout
from agl.trace import Episode
from envs.agentgl.actions import Answer, Search
from envs.agentgl.env import AgentglLp, AgentglNc
from envs.agentgl.links import Links, auc
from envs.agentgl.pools import Pool
from envs.agentgl.prompts import plain
from envs.agentgl.tasks import LpTask, graph_of, read_source
from tests.text_graphs import node, write

EnvType = type[AgentglNc] | type[AgentglLp]
ENVS: tuple[EnvType, ...] = (AgentglNc, AgentglLp)


class Lines(Policy):
    """Says these lines one after the other, then nothing."""

    name = "lines"

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def open(self, prompt: Any, *, seed: int, play: Play) -> Dialogue:
        left: Iterator[str] = iter(self.lines)

        def line() -> Any:
            said = next(left, None)
            return ("", "eos") if said is None else (said, "stop")

        return ScriptedDialogue(line)


def play(env: AgentglNc | AgentglLp, task: Any, policy: Policy | Sequence[str], dialect: str | None = None) -> Episode:
    chosen = policy if isinstance(policy, Policy) else Lines(policy)
    episode = asyncio.run(rollout(env, task, chosen, dialect=dialect_for(env, dialect)))
    assert episode.outcome.error is None, episode.outcome.error
    return episode


def parts(episode: Episode) -> dict[str, Any]:
    assert episode.score is not None
    return dict(episode.score.parts)


def query(pool: str, text: str = "graphs") -> str:
    return f"{QUERY}{pool}:{text}{QUERY_END}"


def shown(episode: Episode) -> list[str]:
    return [turn.text for turn in episode.transcript if turn.source != "sampled"]


@pytest.fixture
def cora(shared: Path) -> str:
    if not (shared / "data" / "cora").is_dir():
        pytest.skip("needs Cora beside the checkout")
    return str(shared / "data" / "cora")


def first(env_class: EnvType, source: str | None = None) -> Any:
    return env_class.tasks(source, limit=1)[0]


# Tasks


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (None, ("networkx-docs", None, "test")),
        ("cora", ("cora", None, "test")),
        ("cora@train", ("cora", None, "train")),
        ("cora@60-20-20/val", ("cora", "60-20-20", "val")),
        ("a@b/c", ("a@b/c", None, "test")),
        ("odd@dir@test", ("odd@dir", None, "test")),
        ("@train", ("@train", None, "test")),
    ],
)
def test_a_source_names_graph_split_and_part(source: str | None, read: tuple[str, str | None, str]) -> None:
    assert read_source(source) == read


def test_the_tasks_of_cora_are_those_of_its_split(cora: str) -> None:
    graph = graph_of(cora)
    for part, count in (("train", 140), ("val", 500), ("test", 1000)):
        tasks = AgentglNc.tasks(f"{cora}@{part}", seed=3)
        rows = graph.nodes_in(part)  # type: ignore[arg-type]
        assert {task.node for task in tasks} == {graph.ids[row] for row in rows}
        assert len(tasks) == count
        assert AgentglNc.tasks(f"{cora}@{part}", seed=3, limit=20) == tasks[:20]
    assert AgentglNc.tasks(cora, seed=4, limit=20) != AgentglNc.tasks(cora, seed=3, limit=20)


def test_pairs_are_balanced_and_one_split_serves_every_seed(cora: str) -> None:
    graph = graph_of(cora)
    seen: dict[str, dict[tuple[str, str], bool]] = {}
    for part in ("train", "test"):
        for seed in (0, 1):
            tasks = AgentglLp.tasks(f"{cora}@{part}", seed=seed)
            assert sum(task.linked for task in tasks) * 2 == len(tasks)
            assert sum(task.linked for task in tasks[:10]) == 5
            pairs = {(task.u, task.v): task.linked for task in tasks}
            assert all(graph.has_edge(graph.index_of(u), graph.index_of(v)) is is_so for (u, v), is_so in pairs.items())
            assert seen.setdefault(part, pairs) == pairs
    assert not seen["train"].keys() & seen["test"].keys()


@pytest.mark.parametrize("env_class", ENVS)
def test_what_holds_no_tasks_is_refused(tmp_path: Path, env_class: EnvType) -> None:
    for source in ("no-such-graph", "networkx-docs@nothing", "networkx-docs@no-such-split/test"):
        with pytest.raises(DataError, match="expected"):
            env_class.tasks(source)


def test_a_graph_without_labels_or_split_is_refused(tmp_path: Path) -> None:
    bare = write(tmp_path / "bare", [node(k) for k in range(4)], ["0\t1", "1\t2", "2\t3"])
    with pytest.raises(DataError, match=r"expected labelled test nodes in .*bare, got none; give label and split"):
        AgentglNc.tasks(str(bare))
    alike = write(tmp_path / "alike", [node(0, label="A b", split="test"), node(1, label="ab")], [])
    with pytest.raises(DataError, match="differ by more than case and blanks, got 'A b' and 'ab'"):
        AgentglNc.tasks(str(alike))
    with pytest.raises(DataError, match="at least 3 edges"):
        AgentglLp.tasks(str(alike))


def test_changed_data_are_noticed() -> None:
    task = first(AgentglNc).model_copy(update={"data": "0" * 64})
    with pytest.raises(DataError, match="make the tasks anew"):
        AgentglNc().reset(task)


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "new"},
        {"stage": 3},
        {"stage": True},
        {"depth": "deep"},
        {"two_hop": "three"},
        {"salience": "x"},
        {"show_labels": "all"},
        {"budget": -1},
        {"k": 0},
        {"preview": 0},
        {"lambda_": 1.5},
        {"depth": "flat"},
        {"depth": "flat", "stage": 1},
    ],
)
@pytest.mark.parametrize("env_class", ENVS)
def test_options_that_make_no_sense_are_refused(env_class: EnvType, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="expected"):
        env_class(**options)


def test_the_command_line_knows_the_type_of_every_option() -> None:
    assert checked_options(AgentglNc, {"budget": 3, "stage": 2, "lambda_": 0.3}, "agentgl-nc")
    with pytest.raises(UserError, match="did you mean 'budget'"):
        checked_options(AgentglNc, {"budgets": 3}, "agentgl-nc")
    with pytest.raises(UserError, match="option stage"):
        checked_options(AgentglLp, {"stage": "2"}, "agentgl-lp")
    with pytest.raises(UserError, match="agentgl-nc only"):
        AgentglLp(label_list=False)


CHANGES: list[dict[str, Any]] = [
    {"profile": "code"},
    {"budget": 3},
    {"stage": 1},
    {"stage": 2},
    {"rtt": True},
    {"k": 1},
    {"lambda_": 1.0},
    {"two_hop": "upto"},
    {"salience": "global"},
    {"preview": 50},
    {"show_labels": "train"},
    {"label_list": False},
    {"leaky": True},
]


@pytest.mark.parametrize("options", CHANGES, ids=str)
@pytest.mark.parametrize("env_class", ENVS)
def test_no_option_is_dead(cora: str, env_class: EnvType, options: dict[str, Any]) -> None:
    if env_class is AgentglLp and "label_list" in options:
        return
    others = {"show_labels": "train"} if env_class is AgentglNc and "leaky" in options else {}
    tasks = env_class.tasks(cora, limit=8)
    texts = [f"<think>x {query(pool)}" for pool in Pool]
    lines = [*texts, "</think><answer>Theory</answer>"]

    def record(**given: Any) -> list[Any]:
        env = env_class(**given)
        played = [play(env, task, lines) for task in tasks]
        return [(shown(episode), episode.score.reward if episode.score else None) for episode in played]

    assert record(**others, **options) != record(**others)


def test_depth_and_embedding_are_used(cora: str) -> None:
    task = first(AgentglNc, cora)
    lines = [f"<think>{query('1-hop')}", query("2-hop"), query("similar"), "</think><answer>x</answer>"]
    flat, each = (
        parts(play(AgentglNc(stage=2, depth=depth), task, lines))["reward_density"] for depth in ("flat", "per_segment")
    )
    assert (flat, each) == (pytest.approx(-0.2), pytest.approx(-0.6))
    with pytest.raises(UserError, match="no-such-model"):
        AgentglNc(embedding="no-such-model").reset(task)


# The episode


@pytest.mark.parametrize("env_class", ENVS)
def test_the_budget_is_told_and_kept(env_class: EnvType) -> None:
    env = env_class(budget=2)
    task = first(env_class)
    episode = play(env, task, [f"<think>{query('1-hop')}", *[query("similar")] * 3, "</think><answer>x</answer>"])
    assert "at most 2 searches" in episode.transcript[0].text
    assert [event.is_error for event in episode.events] == [False, False, True, True, False]
    assert "budget of 2 searches is used up" in episode.events[2].observation
    assert (parts(episode)["searches"], parts(episode)["over_budget"]) == (2, 2)
    assert "The budget of 2 searches is used up; give the answer now." in episode.transcript[5].text
    endless = play(env, task, [query("1-hop")] * 9)
    assert endless.outcome.stop is StopReason.INVALID
    assert len(endless.events) == 5


def test_the_code_allows_one_search_more_than_its_prompt_says() -> None:
    env = AgentglNc(profile="code")
    episode = play(env, first(AgentglNc), [query("1-hop")] * 7)
    assert "at most 5 searches" in episode.transcript[0].text
    assert parts(episode)["searches"] == 6
    assert AgentglNc(profile="code", budget=3).told_budget == 3


def test_a_budget_that_an_unknown_pool_used_up_is_told_too() -> None:
    episode = play(AgentglNc(budget=1), first(AgentglNc), [query("3-hop"), "<answer>x</answer>"])
    assert "The budget of 1 search is used up" in episode.transcript[-2].text


@pytest.mark.parametrize("dialect", ["queries", "tools", "tags"])
def test_the_answers_are_the_choice_that_is_left(dialect: str) -> None:
    env = AgentglNc(budget=1)
    task = first(AgentglNc)
    writer = dialect_for(env, dialect)
    env.reset(task)
    assert env.choices() == ()
    (found,) = writer.parse(writer.write(Search(pool="1-hop", query="").placed(True), "Look."))
    env.step(found)
    env.close_turn()
    said = [writer.write(action) for action in env.choices()]
    assert len(said) == len(graph_of(task.graph).class_names)
    assert all(text.startswith("</think>") is (dialect == "queries") for text in said)
    (right,) = [text for text in said if writer.parse(text) == [Answer(text=task.gold)]]
    (answer,) = writer.parse(right)
    assert env.step(answer).terminated
    assert env.score().total == 1


def test_without_budget_only_answers_are_taken() -> None:
    env = AgentglNc(budget=0)
    episode = play(env, first(AgentglNc), [query("1-hop"), "<answer>x</answer>"])
    assert episode.events[0].is_error
    assert parts(episode)["searches"] == 0
    oracle = play(env, first(AgentglNc), Oracle())
    assert oracle.score is not None
    assert oracle.score.total == 1


def test_an_unknown_pool_costs_a_search_and_earns_nothing() -> None:
    task = first(AgentglNc)
    lines = [f"<think>{query('3-hop')}", f"{QUERY}no colon{QUERY_END}", query("2 HOP"), "</think><answer>x</answer>"]
    episode = play(AgentglNc(stage=1, budget=3), task, lines)
    assert [event.is_error for event in episode.events] == [True, True, False, False]
    assert "expected one of the pools 1-hop, 2-hop, pagerank, similar" in episode.events[0].observation
    found = parts(episode)
    assert (found["searches"], found["search_errors"], found["reward_coverage"]) == (1, 2, 0.5)
    assert "used up" in episode.transcript[-2].text
    lenient = play(AgentglNc(profile="code"), task, lines)
    assert not any(event.is_error for event in lenient.events)
    assert parts(lenient)["searches_similar"] == 2
    assert lenient.events[0].observation == lenient.events[1].observation


@pytest.mark.parametrize("dialect", ["queries", "tools", "tags"])
@pytest.mark.parametrize("env_class", ENVS)
def test_the_oracle_earns_all_of_stage_one_in_any_dialect(env_class: EnvType, dialect: str) -> None:
    for task in env_class.tasks(limit=12):
        episode = play(env_class(stage=1), task, Oracle(), dialect)
        assert episode.score is not None
        assert episode.score.total == 1
        assert episode.score.reward == pytest.approx(2.1 + 0.5 * parts(episode)["pools"])


def test_the_best_reward_of_stage_one_is_that_of_the_paper(cora: str) -> None:
    rewards = [play(AgentglNc(stage=1), task, Oracle()).score.reward for task in AgentglNc.tasks(cora, limit=5)]  # type: ignore[union-attr]
    assert max(rewards) == pytest.approx(4.1)


def test_worse_episodes_earn_less() -> None:
    task = first(AgentglNc)
    wrong = next(name for name in graph_of(task.graph).class_names if name != task.gold)
    searches = [f"<think>I look. {query('1-hop')}", query("2-hop"), query("pagerank"), query("similar")]
    ladder = [
        [*searches, f"Clear.</think><answer>{task.gold}</answer>"],
        [f"<think>Clear.</think><answer>{task.gold}</answer>"],
        [f"<think>Clear.</think><answer>{wrong}</answer>"],
        [f"<answer>{wrong}</answer>"],
        ["<think>What now"],
    ]
    rewards = [play(AgentglNc(stage=1), task, lines).score.reward for lines in ladder]  # type: ignore[union-attr]
    assert rewards == sorted(rewards, reverse=True)
    assert len(set(rewards)) == len(rewards)


def test_only_searches_that_ran_and_returned_something_count(tmp_path: Path) -> None:
    nodes = [node(0, "alone", label="a", split="test"), node(1, "other", label="b", split="train")]
    source = str(write(tmp_path / "pair", nodes, []))
    task = first(AgentglNc, source)
    tags = f"{query('2-hop')}{query('pagerank')}"
    lines = [f"<think>{query('1-hop')}", f"</think><answer>a {tags}</answer>"]
    episode = play(AgentglNc(stage=1), task, lines)
    assert [event.action for event in episode.events] == ["search", "answer"]
    assert episode.events[0].observation == "None"
    assert parts(episode)["reward_coverage"] == 0
    assert parts(episode)["reward_answer_tags"] == -0.5


def test_stage_two_asks_after_each_result_and_the_question_is_not_the_policys(cora: str) -> None:
    task = first(AgentglNc, cora)
    lines = [f"<think>{query('1-hop')}", query("similar"), "</think><answer>x</answer>"]
    asked = "decide whether another search is really needed"
    episode = play(AgentglNc(stage=2), task, lines)
    with_question = [turn for turn in episode.transcript if asked in turn.text]
    assert [turn.source for turn in with_question] == ["injected", "injected"]
    assert ["1-hop" in with_question[0].text.split(DOCUMENTS_END)[1], "similar" in with_question[1].text] == [
        True,
        True,
    ]
    assert not any(asked in text for text in shown(play(AgentglNc(stage=1), task, lines)))
    assert not any(asked in text for text in shown(play(AgentglNc(stage=2, rtt=False), task, lines)))
    by_tools = play(AgentglNc(stage=2), task, Oracle(), "tools")
    assert sum(asked in turn.text and turn.role == "tool" for turn in by_tools.transcript) == 4


def test_an_answer_before_the_reasoning_is_closed_is_none() -> None:
    task = first(AgentglNc)
    right = f"<answer>{task.gold}</answer>"
    episode = play(AgentglNc(), task, [f"<think>{query('1-hop')}", f"so {right}", f"</think>{right}"])
    assert [event.is_error for event in episode.events] == [False, True, False]
    assert "close the reasoning" in episode.events[1].observation
    assert parts(episode)["malformed"] == 1
    assert parts(episode)["accuracy"] == 1


def test_the_reward_sees_the_text_around_each_search() -> None:
    env, task = AgentglNc(stage=2), first(AgentglNc)
    long = "word " * 120
    bonus = [f"<think>{query('1-hop')}", f"{long}{query('2-hop')}", f"{long}</think><answer>x</answer>"]
    assert parts(play(env, task, bonus))["reward_density"] == 0.5
    at_once = [f"<think>{query('1-hop')}{long}{query('2-hop')}{long}</think><answer>x</answer>"]
    assert parts(play(env, task, at_once))["reward_density"] == 0.5
    short = [bonus[0], f"{query('2-hop')}", bonus[2]]
    assert parts(play(env, task, short))["reward_density"] == -0.2


def test_what_could_not_be_read_counts_in_the_form() -> None:
    env, task = AgentglNc(stage=1), first(AgentglNc)
    episode = play(env, task, ["<think>" + "word " * 200 + "</think> it is this", "<answer>x</answer>"])
    assert parts(episode)["reward_blocks"] == 0.5
    mine = play(env, task, [f"<think>{DOCUMENTS}(1) mine", f"{query('1-hop')}</think>", "<answer>x</answer>"])
    assert parts(mine)["reward_tag_balance"] == -0.3


def test_the_answer_is_compared_without_case_and_blanks_and_strictly(tmp_path: Path) -> None:
    nodes = [node(0, label="Neural Nets", split="test"), node(1, label="b", split="train")]
    task = first(AgentglNc, str(write(tmp_path / "g", nodes, ["0\t1"])))
    for answer, accuracy, strict, outcome in (
        ("Neural Nets", 1, 1, "right"),
        ("neuralnets", 1, 0, "right"),
        ("B", 0, 0, "wrong"),
        ("Neural Nets, I think", 0, 0, "unknown"),
    ):
        episode = play(AgentglNc(), task, [f"<answer>{answer}</answer>"])
        assert (parts(episode)["accuracy"], parts(episode)["strict"]) == (accuracy, strict)
        assert episode.score is not None
        assert episode.score.labels["outcome"] == outcome


def test_malformed_and_foreign_actions() -> None:
    env = AgentglNc()
    env.reset(first(AgentglNc))
    bad = Malformed(reason="no_action", message="nothing")
    assert [env.step(bad).truncated for _ in range(3)] == [False, False, True]
    env.reset(first(AgentglNc))
    env.step(bad)
    env.step(bad)
    assert not env.step(Search(pool="1-hop", query="")).truncated
    assert not env.step(bad).truncated


@pytest.mark.parametrize("env_class", ENVS)
def test_an_env_is_small_and_copies(env_class: EnvType) -> None:
    env = env_class(stage=1)
    env.reset(first(env_class))
    for pool in Pool:
        env.step(Search(pool=pool.value, query="graphs"))
    assert len(env.snapshot()) < 10_000
    copy = pickle.loads(pickle.dumps(env))
    for each in (env, copy):
        each.step(Answer(text="yes"))
    assert copy.score() == env.score()


# Leaks


def episodes_shown(env_class: EnvType, tasks: Sequence[Any], **options: Any) -> list[list[str]]:
    lines = [f"<think>{query(pool, 'learning')}" for pool in Pool]
    return [shown(play(env_class(**options), task, lines)) for task in tasks]


def test_labels_of_test_nodes_are_in_no_observation(tmp_path: Path, cora: str) -> None:
    from agl.graphs.sources.folder import write_folder

    graph = graph_of(cora)
    hidden = graph.split != 0
    labels = graph.labels.copy()
    labels[hidden] = np.random.default_rng(0).permutation(labels[hidden])
    write_folder(graph.replaced(labels=labels), tmp_path / "permuted")
    for options in ({}, {"show_labels": "train"}):
        tasks = AgentglNc.tasks(cora, limit=10)
        permuted = AgentglNc.tasks(str(tmp_path / "permuted"), limit=10)
        assert [task.node for task in tasks] == [task.node for task in permuted]
        assert [task.gold for task in tasks] != [task.gold for task in permuted]
        seen = episodes_shown(AgentglNc, tasks, **options)
        assert seen == episodes_shown(AgentglNc, permuted, **options)
        assert seen != episodes_shown(AgentglNc, permuted, show_labels="train", leaky=True)


def test_a_target_is_no_evidence_for_itself(cora: str) -> None:
    for task in AgentglNc.tasks(f"{cora}@train", limit=10):
        _, question, *results = shown(play(AgentglNc(show_labels="train"), task, Oracle()))
        own = question.split("Text of the target node:\n")[1].split("\n")[0]
        assert len(results) == 4
        assert not any(own in text for text in results)


def toggled(graph: TextGraph, u: int, v: int) -> TextGraph:
    """The same graph with the edge (u, v) taken away or added."""
    pair = (min(u, v), max(u, v))
    edges = {tuple(edge) for edge in graph.edges().tolist()} ^ {pair}
    return TextGraph.build(graph.ids, graph.texts(), sorted(edges), labels=graph.labels, split=graph.split)


@pytest.mark.parametrize("part", ["train", "test"])
def test_the_target_edge_changes_no_observation(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    rng = random.Random(0)
    words = ["graph", "node", "edge", "path", "tree", "cycle", "flow", "cut", "rank", "walk"]
    edges = sorted({tuple(sorted(rng.sample(range(40), 2))) for _ in range(120)})
    graph = TextGraph.build(range(40), [" ".join(rng.choices(words, k=6)) for _ in range(40)], edges)
    from envs.agentgl.links import link_split

    whole = link_split(graph, 0)
    index = None

    def seen(links: Links, pair: tuple[int, int], **options: Any) -> list[list[str]]:
        monkeypatch.setattr("envs.agentgl.env.checked_graph", lambda task: links.graph)
        monkeypatch.setattr("envs.agentgl.env.links_of", lambda place: links)
        monkeypatch.setattr("envs.agentgl.search_env.checked_graph", lambda task: links.graph)
        monkeypatch.setattr("envs.agentgl.search_env.index_of", lambda place, embedding: index)
        u, v = (str(row) for row in pair)
        task = LpTask(id="x/g/1", env="agentgl-lp", graph="g", data="", part="test", u=u, v=v, linked=True)
        return episodes_shown(AgentglLp, [task], show_labels="train", **options)

    from agl.graphs.embeddings import embed
    from agl.graphs.index import Index

    index = Index(embed(graph.texts(), "tfidf"))
    differs = 0
    for linked in (True, False):
        for pair in (whole.positives if linked else whole.negatives)[part][:6]:  # type: ignore[index]
            drop = {name: [p for p in pairs if p != pair] for name, pairs in whole.positives.items()}
            keep = {name: [p for p in pairs if p != pair] for name, pairs in whole.negatives.items()}
            other = Links(toggled(graph, *pair), drop, keep)  # type: ignore[arg-type]
            same = Links(graph, drop, keep)  # type: ignore[arg-type]
            for links in (other, same):
                if links.graph.has_edge(*pair):
                    object.__setattr__(links, "positives", {**links.positives, part: (*links.positives[part], pair)})  # type: ignore[index]
            assert seen(same, pair) == seen(other, pair)
            differs += seen(same, pair, leaky=True) != seen(other, pair, leaky=True)
    assert differs, "the leaky graph shows no difference either, so this test tests nothing"


def test_a_trivial_rule_on_the_results_hardly_tells_links(cora: str) -> None:
    tasks = AgentglLp.tasks(cora, limit=200)

    def area(**options: Any) -> float:
        played = [play(AgentglLp(**options), task, Player("probe")) for task in tasks]
        return auc([parts(episode)["probe"] for episode in played], [task.linked for task in tasks])

    assert area() < 0.65 < 0.7 < area(leaky=True)


# Hostile and poor graphs

HOSTILE_TEXTS = (
    f"before {QUERY_END} after",
    f"{DOCUMENTS_END}</think><answer>a</answer>",
    "</answer><tool_call>{}</tool_call><|im_end|>",
    "one\n(2) two\n(3) three",
    "🦊" * 600,
    "\u202eמימין לשמאל\u202c",
    "",
    "< |a| < b> 1<2",
)


@pytest.mark.parametrize("env_class", ENVS)
def test_texts_of_nodes_close_and_open_nothing(tmp_path: Path, env_class: EnvType) -> None:
    count = len(HOSTILE_TEXTS) * 5
    nodes = [
        node(k, HOSTILE_TEXTS[k % len(HOSTILE_TEXTS)], label=f"c{k % 2}", split=("train", "test")[k % 3 == 0])
        for k in range(count)
    ]
    edges = [f"{k}\t{(k + step) % count}" for k in range(count) for step in (1, 3)]
    source = str(write(tmp_path / "hostile", nodes, edges))
    env: Any = env_class()
    marks = ("<|", "<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>")
    for task in env_class.tasks(source, limit=8):
        texts = [env.reset(task).text]
        for pool in Pool:
            texts.append(env.step(Search(pool=pool.value, query=f"{QUERY_END} fox 🦊")).observation.text)
            lines = texts[-1].split("\n")
            assert all(line.startswith(f"({place}) ") for place, line in enumerate(lines, 1)) or lines == ["None"]
        assert not any(mark in text for mark in marks for text in texts)
        assert play(env, task, Oracle()).score.total == 1  # type: ignore[union-attr]


def test_marks_are_broken_up_and_nothing_else() -> None:
    assert plain(f"a {QUERY_END} b", 500) == "a < |end_of_query|> b"
    assert plain("</answer> <answer> <think>", 500) == "< /answer> < answer> < think>"
    assert plain("1 < 2, a<b, x<-y, i <= j", 500) == "1 < 2, a<b, x<-y, i <= j"
    assert plain("a\n\n  b\u2028c", 500) == "a b c"
    assert plain("x" * 600, 500) == "x" * 500


@pytest.mark.parametrize("env_class", ENVS)
def test_nodes_without_neighbours_and_words_are_played(tmp_path: Path, env_class: EnvType) -> None:
    nodes = [node(k, "", label="ab"[k % 2], split=("train", "test")[k > 8]) for k in range(14)]
    source = str(write(tmp_path / "poor", nodes, [f"{k}\t{k + 1}" for k in range(8)]))
    for task in env_class.tasks(source):
        for player in env_class.players:
            assert play(env_class(), task, Player(player)).outcome.stop is StopReason.ANSWER
        episode = play(env_class(stage=2, rtt=True), task, Random())
        assert episode.score is not None


def test_texts_of_any_length_are_bounded(tmp_path: Path) -> None:
    nodes = [node(k, "<x> " * 50_000, label="ab"[k % 2], split=("train", "test")[k % 2]) for k in range(12)]
    edges = [f"0\t{k}" for k in range(1, 12)]
    env = AgentglNc()
    for task in AgentglNc.tasks(str(write(tmp_path / "long", nodes, edges)), limit=2):
        texts = [env.reset(task).text]
        texts += [env.step(Search(pool=pool.value, query="x " * 10_000)).observation.text for pool in Pool]
        assert all(len(text) < 8_000 for text in texts)


# Players


def accuracy(env_class: EnvType, source: str, player: str, limit: int, **options: Any) -> float:
    played = [play(env_class(**options), task, Player(player)) for task in env_class.tasks(source, limit=limit)]
    assert all(episode.outcome.stop is StopReason.ANSWER for episode in played)
    return float(sum(parts(episode)["accuracy"] for episode in played) / limit)


def test_players_on_the_nodes_of_cora(cora: str) -> None:
    found = {player: accuracy(AgentglNc, cora, player, 100) for player in AgentglNc.players}
    assert found["no-search"] < 0.25
    assert found["no-search"] < found["random-tool"] < found["vote"]
    assert found["all-tools"] > 0.3
    assert found["vote"] > 0.5
    assert found["knn"] > 0.45


def test_players_on_the_pairs_of_cora(cora: str) -> None:
    found = {player: accuracy(AgentglLp, cora, player, 100) for player in AgentglLp.players}
    assert found["no-search"] == 0.5
    assert all(found[player] > 0.55 for player in ("random-tool", "all-tools", "common-neighbours"))
    assert 0.5 <= found["probe"] < 0.68


@pytest.mark.parametrize("env_class", ENVS)
def test_players_keep_to_the_budget_and_are_deterministic(env_class: EnvType) -> None:
    for task in env_class.tasks(limit=2):
        for player in env_class.players:
            one, two = (play(env_class(budget=1), task, Player(player)) for _ in range(2))
            assert one.events == two.events
            assert parts(one)["searches"] <= 1
    with pytest.raises(UserError, match="expected a player of"):
        env_class().player_actions("guess")


def test_the_majority_is_that_of_the_training_nodes(tmp_path: Path) -> None:
    labels = ["a", "a", "b", "b", "b", "b"]
    nodes = [node(k, f"w{k}", label=label, split=("train", "test")[k > 2]) for k, label in enumerate(labels)]
    source = str(write(tmp_path / "g", nodes, ["0\t3", "3\t4", "2\t4"]))
    for task in AgentglNc.tasks(source):
        events = {player: play(AgentglNc(), task, Player(player)).events[-1] for player in ("no-search", "vote")}
        assert events["no-search"].arguments == {"text": "a"}
        if task.node in ("3", "4"):
            assert events["vote"].arguments == {"text": {"3": "a", "4": "b"}[task.node]}


@pytest.mark.parametrize("env_class", ENVS)
def test_tables_group_by_graph(env_class: EnvType) -> None:
    assert env_class.facets(first(env_class)) == {"graph": "networkx-docs"}
    json.dumps(first(env_class).model_dump(mode="json"))
