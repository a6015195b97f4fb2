"""Baselines: who votes, what is unanswered, what is never read, and tables that can be made again."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agl.cli import _run
from agl.errors import UserError
from agl.graphs.sources.splits import random_split
from agl.graphs.text_graph import TextGraph
from agl.graphs.view import GraphView, NodeTarget
from eval.baselines import cells, networks
from eval.baselines.cells import MODELS, Asked, cell, predict
from eval.baselines.networks import GRID
from eval.baselines.table import Baselines, baselines, rendered, split_codes
from eval.baselines.votes import VOTES
from tests.text_graphs import node, write

TRAIN, VAL, TEST = 0, 1, 2


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "baselines"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of a few epochs, where it does not matter what is learned."""
    monkeypatch.setattr(networks, "EPOCHS", 5)


def graph_of(
    texts: list[str], labels: list[int], split: list[int], edges: list[tuple[int, int]] | None = None, **more: Any
) -> TextGraph:
    return TextGraph.build(range(len(texts)), texts, edges or [], labels=labels, split=split, **more)


def answers(graph: TextGraph, model: str) -> list[int]:
    return [int(label) for label in predict(graph, graph.split, model)]


def blocks(n: int = 60, classes: int = 2, seed: int = 0) -> TextGraph:
    """Classes that tell by neighbours and by words; a few nodes are isolated, one has no text."""
    draw = random.Random(seed)
    labels = [row % classes for row in range(n)]
    words = [[f"word{label}x{k}" for k in range(6)] for label in range(classes)]
    texts = [" ".join(draw.choices(words[label], k=4)) for label in labels]
    texts[3] = ""
    edges = [
        (i, j) for i in range(n - 4) for j in range(i) if draw.random() < (0.25 if labels[i] == labels[j] else 0.02)
    ]
    graph = graph_of(texts, labels, [-1] * n, edges, meta={"name": "blocks"})
    return graph.replaced(split=random_split(graph, (0.5, 0.2, 0.3), seed=seed))


# Votes.


def test_the_majority_of_labelled_neighbours_decides() -> None:
    graph = graph_of([""] * 5, [1, 1, 0, 0, 0], [0, 0, 0, TEST, TEST], [(3, 0), (3, 1), (3, 2), (4, 3)])
    assert answers(graph, "vote") == [-1, -1, -1, 1, -1]


def test_class_0_is_an_answer_like_any_other() -> None:
    graph = graph_of(["moss", "moss"], [0, 1], [TRAIN, TEST], [(0, 1)])
    assert {model: answers(graph, model)[1] for model in ("vote", "knn", "vote+knn", "labelprop")} == {
        "vote": 0,
        "knn": 0,
        "vote+knn": 0,
        "labelprop": 0,
    }


def test_a_tie_goes_to_the_most_similar_voters_then_to_the_lower_class() -> None:
    texts = ["red stone", "blue bird", "blue bird", "green glass"]
    graph = graph_of(texts, [0, 1, 1, 0], [TRAIN, TRAIN, TEST, TEST], [(2, 0), (2, 1), (3, 0), (3, 1)])
    assert answers(graph, "vote") == [-1, -1, 1, 0]


def test_a_node_without_labelled_neighbours_goes_by_its_nearest_texts() -> None:
    texts = ["owl", "owl", "fox", "owl"]
    graph = graph_of(texts, [1, 1, 0, 1], [TRAIN, TRAIN, TRAIN, TEST])
    assert answers(graph, "vote")[3] == 1


def test_only_the_five_nearest_texts_vote_and_equal_ones_go_by_row() -> None:
    graph = graph_of(["owl"] * 9, [0, 0, 0, 1, 1, 1, 1, 1, 0], [TRAIN] * 8 + [TEST])
    assert answers(graph, "knn")[8] == 0


def test_a_text_without_a_word_in_common_is_no_evidence() -> None:
    graph = graph_of(["owl", "fox", "", "elk"], [0, 1, 0, 1], [TRAIN, TRAIN, TEST, TEST])
    assert answers(graph, "knn") == answers(graph, "vote+knn") == answers(graph, "vote") == [-1, -1, -1, -1]


def test_neighbours_and_nearest_texts_vote_together() -> None:
    texts = ["owl", "owl", "fox", "fox", "owl", "owl"]
    graph = graph_of(texts, [0, 0, 1, 1, 0, 0], [TRAIN] * 4 + [TEST] * 2, [(4, 2), (4, 3), (5, 2), (5, 3), (5, 0)])
    assert answers(graph, "vote")[4:] == [1, 1]
    assert answers(graph, "knn")[4:] == [0, 0]
    assert answers(graph, "vote+knn")[4:] == [0, 0]  # 2 to 2, by similarity; then 3 to 2


def test_labels_spread_along_edges_but_not_to_other_components() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 7)]
    graph = graph_of([""] * 8, [0, 0, 0, 1, 1, 1, 0, 1], [TRAIN, TEST, TEST, TEST, TEST, TRAIN, TEST, TEST], edges)
    assert answers(graph, "labelprop") == [-1, 0, 0, 1, 1, -1, -1, -1]


def test_lookup_finds_the_class_that_a_text_names() -> None:
    names = ["Neural_Networks", "CaseBased", "Theory"]
    texts = ["", "a case based view, neural networks, case-based", "theory of neural networks", "theoretical"]
    graph = graph_of(texts, [0, 1, 0, 2], [TRAIN, TEST, TEST, TEST], class_names=names)
    assert answers(graph, "lookup") == [-1, 1, 0, -1]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_votes_are_what_a_guarded_view_of_the_graph_counts(seed: int, classes: int) -> None:
    draw = random.Random(seed)
    n = draw.randrange(2, 25)
    edges = [(draw.randrange(n), draw.randrange(n)) for _ in range(draw.randrange(3 * n))]
    texts = [" ".join(draw.choices(["owl", "fox", "elk", "ant"], k=draw.randrange(4))) for _ in range(n)]
    split = [TRAIN] + [draw.choice([TRAIN, VAL, TEST, -1]) for _ in range(n - 1)]
    graph = graph_of(texts, [draw.randrange(classes) for _ in range(n)], split, edges)
    found = answers(graph, "vote")
    for row in range(n):
        view = GraphView(graph, NodeTarget(row))
        labels = [view.label(int(other)) for other in view.neighbor_rows(row)]
        votes = Counter(label.index for label in labels if label is not None)
        if split[row] == TRAIN:
            assert found[row] == -1
        elif votes:
            assert votes[found[row]] == max(votes.values())
        elif not texts[row]:
            assert found[row] == -1


def test_a_hub_of_ten_thousand_is_counted_at_once() -> None:
    n = 10_001
    labels = [0] + [row % 3 for row in range(1, n)]
    split = [TEST] + [TRAIN if row % 2 else TEST for row in range(1, n)]
    graph = graph_of(["hub owl"] + ["owl"] * (n - 1), labels, split, [(0, row) for row in range(1, n)])
    start = time.process_time()
    votes = Counter(int(label) for label in graph.labels[graph.split == TRAIN])
    assert votes[answers(graph, "vote")[0]] == max(votes.values())
    assert votes[answers(graph, "labelprop")[0]] == max(votes.values())
    assert time.process_time() - start < 30


# What may be read.


@pytest.mark.parametrize("model", MODELS)
def test_labels_outside_train_and_val_change_nothing(model: str, cache: Path, short: None) -> None:
    graph = blocks()
    hidden = np.flatnonzero((graph.split != TRAIN) & (graph.split != VAL))
    labels = np.array(graph.labels)
    labels[hidden] = 1 - labels[hidden]
    twin = graph.replaced(labels=labels)
    assert predict(graph, graph.split, model).tobytes() == predict(twin, graph.split, model).tobytes()
    assert len(list(cache.glob("*.npz"))) == 2


@pytest.mark.parametrize("model", VOTES)
def test_votes_do_not_read_validation_labels(model: str) -> None:
    graph = blocks()
    labels = np.where(graph.split == VAL, 1 - graph.labels, graph.labels)
    assert answers(graph, model) == answers(graph.replaced(labels=labels), model)


@pytest.mark.parametrize("model", MODELS)
def test_training_nodes_are_not_asked(model: str, short: None) -> None:
    graph = blocks()
    found = predict(graph, graph.split, model)
    assert (found[graph.split == TRAIN] == -1).all()
    assert found.shape == (graph.n,)
    assert found.max() < 2


# Networks.


@pytest.mark.parametrize("model", GRID)
def test_networks_learn_and_repeat_to_the_byte(model: str, cache: Path) -> None:
    import torch

    graph = blocks(90)
    test = graph.nodes_in("test")
    before = torch.random.get_rng_state()
    first = cell(graph, graph.split, model)
    assert (before == torch.random.get_rng_state()).all()
    assert float((first.predictions[:, test] == graph.labels[test]).mean()) > 0.85
    for file in cache.glob("*.npz"):
        file.unlink()
    torch.manual_seed(99)
    again = cell(graph, graph.split, model)
    assert not again.cached
    assert again.predictions.tobytes() == first.predictions.tobytes()
    assert again.chosen == first.chosen


def test_networks_without_edges_read_texts_alone() -> None:
    graph = blocks()
    bare = graph_of(graph.texts(), graph.labels.tolist(), graph.split.tolist())
    test = bare.nodes_in("test")
    for model in GRID:
        found = predict(bare, bare.split, model)[test]
        assert (found >= 0).all()
        assert float((found == bare.labels[test]).mean()) > 0.8, model


def test_networks_need_validation_nodes() -> None:
    graph = blocks()
    split = np.where(graph.split == VAL, np.int8(TEST), graph.split)
    with pytest.raises(UserError, match="expected validation nodes"):
        predict(graph, split, "mlp")


def test_the_setting_is_chosen_on_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRID, "mlp", (networks.Setting(0.0, 0.0, 0.5), networks.Setting(0.01, 5e-4, 0.5)))
    graph = blocks()
    assert cell(graph, graph.split, "mlp").chosen["lr"] == 0.01


# Edge cases.


@pytest.mark.parametrize("model", MODELS)
def test_one_class(model: str, short: None) -> None:
    graph = graph_of(["owl", "owl", "owl", ""], [0, 0, 0, 0], [TRAIN, VAL, TEST, TEST], [(0, 1), (1, 2)])
    found = answers(graph, model)
    assert found[0] == -1
    assert set(found) <= {0, -1}
    assert model == "lookup" or found[2] == 0


@pytest.mark.parametrize("model", MODELS)
def test_no_text_anywhere(model: str, short: None) -> None:
    graph = graph_of([""] * 4, [0, 1, 0, 1], [TRAIN, VAL, TEST, TEST], [(0, 2)])
    found = answers(graph, model)
    wanted = {"knn": [-1, -1, -1, -1], "lookup": [-1, -1, -1, -1]}.get(model, [-1, -1, 0, -1])
    assert model in GRID or found == wanted


def test_a_graph_without_labels_is_refused() -> None:
    graph = graph_of(["owl", "fox"], [-1, -1], [TRAIN, TEST], class_names=["a"])
    with pytest.raises(UserError, match="expected a graph with labels"):
        predict(graph, graph.split, "vote")


def test_a_split_without_training_labels_is_refused() -> None:
    graph = graph_of(["owl", "fox"], [-1, 0], [TRAIN, TEST], class_names=["a"])
    with pytest.raises(UserError, match="expected training nodes with labels"):
        predict(graph, graph.split, "vote")


def test_unlabelled_nodes_are_answered_but_not_scored() -> None:
    graph = graph_of(["owl"] * 4, [0, -1, 0, -1], [TRAIN, TEST, TEST, -1], class_names=["a"])
    assert answers(graph, "knn") == [-1, 0, 0, 0]
    assert baselines(graph, ["knn"], ["own"]).rows[0].accuracy == 1.0


# Cache.


def test_a_finished_cell_is_read_and_a_torn_one_is_made_again(cache: Path) -> None:
    graph = blocks()
    first = cell(graph, graph.split, "knn")
    assert cell(graph, graph.split, "knn").cached
    (file,) = cache.glob("*.npz")
    file.write_bytes(file.read_bytes()[:100])
    again = cell(graph, graph.split, "knn")
    assert not again.cached
    assert again.predictions.tobytes() == first.predictions.tobytes()


def test_a_cell_is_found_from_any_copy_of_the_graph_and_from_no_other_split(cache: Path) -> None:
    graph = blocks()
    other = random_split(graph, (0.5, 0.2, 0.3), seed=7)
    predict(graph, graph.split, "vote")
    assert cell(graph.replaced(split=other, splits={"more": other}), graph.split, "vote").cached
    assert not cell(graph, other, "vote").cached


def test_a_stopped_run_goes_on() -> None:
    graph = blocks()

    seen: list[str] = []

    def stop(asked: Asked, made: cells.Cell) -> None:
        seen.append(asked.model)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        baselines(graph, ["vote", "knn"], ["60/20/20"], count=3, progress=stop)
    read: list[bool] = []
    after = baselines(
        graph, ["vote", "knn"], ["60/20/20"], count=3, progress=lambda asked, made: read.append(made.cached)
    )
    assert read == [True] * 4 + [False] * 2
    assert baselines(graph, ["vote", "knn"], ["60/20/20"], count=3) == after


def test_processes_change_no_figure(cache: Path) -> None:
    graph = blocks()
    one = baselines(graph, ["knn", "sgc", "mlp"], ["60/20/20"], count=2)
    for file in cache.glob("*.npz"):
        file.unlink()
    assert baselines(graph, ["knn", "sgc", "mlp"], ["60/20/20"], count=2, jobs=2) == one


# Tables.


def test_means_and_standard_errors_are_over_splits() -> None:
    graph = blocks()
    found = baselines(graph, ["vote", "knn"], ["60-20-20", "own"], count=4)
    row = next(row for row in found.rows if (row.model, row.split) == ("knn", "60/20/20"))
    assert row.n == 4
    shares = []
    for seed in range(4):
        split = random_split(graph, (0.6, 0.2, 0.2), seed=seed)
        test = np.flatnonzero(split == TEST)
        shares.append(float((predict(graph, split, "knn")[test] == graph.labels[test]).mean()))
    assert row.by_split == shares
    assert row.accuracy == pytest.approx(np.mean(shares))
    assert row.se == pytest.approx(np.std(shares, ddof=1) / 2)
    assert [row.se for row in found.rows if row.split == "own"] == [None, None]
    assert found.references == []


def test_unanswered_nodes_count_as_wrong_and_are_told() -> None:
    graph = graph_of(["owl", "owl", "elk", ""], [0, 0, 0, 0], [TRAIN, TEST, TEST, TEST])
    found = baselines(graph, ["knn"], ["own"])
    assert found.rows[0].accuracy == pytest.approx(1 / 3)
    assert found.rows[0].unanswered == pytest.approx(2 / 3)
    assert "unanswered, counted as wrong: knn on own 66.7 %" in rendered(found)


def test_planetoid_is_offered_where_the_main_split_is_planetoids() -> None:
    n = 120
    split = [TRAIN] * 40 + [VAL] * 30 + [TEST] * 50
    graph = graph_of(["owl"] * n, [row % 2 for row in range(n)], split)
    assert [kind.name for kind in baselines(graph, ["vote"], count=1).splits] == ["planetoid", "60/20/20", "79/1/20"]
    with pytest.raises(UserError, match="use --split own"):
        split_codes(blocks(), "planetoid", 1, 0)
    with pytest.raises(UserError, match="expected a split"):
        split_codes(graph, "fifty", 1, 0)
    assert [(codes == TRAIN).sum() for codes in split_codes(graph, "5-per-class", 2, 0)] == [10, 10]


def command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = _run(["baseline", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_prints_the_same_bytes_twice(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], short: None
) -> None:
    nodes = [node(row, f"owl{row % 2} ant", label=str(row % 2)) for row in range(60)]
    folder = write(tmp_path / "cora", nodes, [f"{row}\t{(row + 2) % 60}" for row in range(60)])
    arguments = ["--data", str(folder), "--model", "vote", "--model", "sgc", "--splits", "2", "--jobs", "1", "--json"]
    code, first, notes = command(arguments, capsys)
    assert code == 0
    assert "8 cells computed, 0 read" in notes
    assert "0 cells computed, 8 read" in command(arguments, capsys)[2]
    for file in cache.glob("*.npz"):
        file.unlink()
    assert command(arguments, capsys)[1] == first
    found = Baselines.model_validate(json.loads(first))
    assert {(item.model, item.accuracy) for item in found.references} >= {("vote", 0.849), ("ReaGAN", 0.8495)}
    table = command(arguments[:-1], capsys)[1]
    assert "vote" in table
    assert "ReaGAN" in table


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "svm"], "expected a baseline (vote, knn, vote+knn"),
        (["--features", "bow"], "expected --features tfidf or minilm"),
        (["--split", "50/50"], "expected a split"),
        (["--split", "planetoid"], "expected x with Planetoid's split"),
        (["--split", "80/20/0"], "expected test nodes with labels"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "x", [node(row, label="ab"[row % 2]) for row in range(10)], [])
    code, out, notes = command(["--data", str(folder), "--model", "vote", *arguments], capsys)
    assert (code, out) == (2, "")
    assert said in notes
    assert notes.count("\n") == 1


def test_cora_agrees_with_the_recomputed_figures(shared: Path) -> None:
    from agl.graphs.sources import open_graph

    if not (shared / "data" / "cora").is_dir():
        pytest.skip("needs Cora beside the checkout")
    graph = open_graph(shared / "data" / "cora")
    found = {row.model: 100 * row.accuracy for row in baselines(graph, ["vote", "knn", "vote+knn"], ["79/1/20"]).rows}
    for model, wanted in {"vote": 84.9, "knn": 78.0, "vote+knn": 85.8}.items():
        assert found[model] == pytest.approx(wanted, abs=1.5), model
    (planetoid,) = baselines(graph, ["vote"], ["planetoid"]).splits
    assert (planetoid.train, planetoid.val, planetoid.test) == (140, 500, 1000)
