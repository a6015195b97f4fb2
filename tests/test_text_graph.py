"""TextGraph: rows, views, cache, pickles, the folder format and PyTorch Geometric."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agl.errors import DataError, UserError
from agl.graphs.naming import NamingError, natural_key, node_id
from agl.graphs.sources.folder import problems, read_folder, write_folder
from agl.graphs.sources.text_table import join
from agl.graphs.text_graph import SPLITS, TextGraph, TextGraphError, cache_folder, edge_rows, natural_order
from tests.conftest import check_case, handed_cases
from tests.text_graphs import node, write


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("cache")))


def sample(directed: bool = True) -> TextGraph:
    return TextGraph.build(
        ["a", 2, "c", " d ", "hermit"],
        ["apple", "שלום 🚉", "", "line\nbreak\u2028here", "alone"],
        [(0, 1), (1, 0), (2, 1), (2, 2), (2, 1), (3, 0)],
        labels=[0, 1, -1, 1, 0],
        class_names=["fruit", "city"],
        split=[0, 1, 2, -1, 0],
        splits={"other": [2, 2, 2, 0, 1]},
        directed=directed,
        meta={"name": "sample"},
        extras=[{"year": 1999}, None, None, None, {"tags": ["x", "ü"]}],
    )


def test_views_of_a_directed_graph() -> None:
    graph = sample()
    assert graph.ids == ("a", "2", "c", "d", "hermit")
    assert [graph.neighbors(i).tolist() for i in range(5)] == [[1, 3], [0, 2], [1], [0], []]
    assert [graph.successors(i).tolist() for i in range(5)] == [[1], [0], [1], [0], []]
    assert graph.edges().tolist() == [[0, 1], [0, 3], [1, 2]]
    assert graph.arcs().tolist() == [[0, 1], [1, 0], [2, 1], [3, 0]]
    assert graph.degrees.tolist() == [2, 2, 1, 1, 0] == [graph.degree(i) for i in range(5)]
    assert graph.has_edge(1, 2)
    assert not graph.has_edge(2, 2)
    assert not graph.has_edge(2, 3)
    assert not graph.has_edge(4, 0)
    counts = graph.meta["counts"]
    assert (counts["edge_lines"], counts["self_loops"], counts["duplicate_edges"]) == (6, 1, 1)
    assert (counts["undirected_edges"], counts["isolated_nodes"]) == (3, 1)
    assert graph.nodes_in("train").tolist() == [0, 4]
    assert graph.nodes_in("test", of="other").tolist() == [0, 1, 2]
    assert [graph.label_name(i) for i in range(3)] == ["fruit", "city", None]
    assert graph.extra(0) == {"year": 1999}
    assert graph.extra(1) == {}


def test_both_directions_of_an_undirected_edge_are_a_repeat() -> None:
    graph = sample(directed=False)
    assert graph.meta["counts"]["duplicate_edges"] == 2
    assert graph.num_arcs == 2 * graph.num_edges == 6


def test_neighbours_are_views_and_the_stored_graph_is_mapped() -> None:
    graph = sample().stored()
    assert np.shares_memory(graph.neighbors(0), graph.indices)
    assert not graph.indices.flags.writeable
    assert isinstance(graph.indices.base, np.memmap)
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    assert [graph.text(i) for i in range(graph.n)] == [sample().text(i) for i in range(5)] == graph.texts()


def test_a_pickle_is_a_path_and_reads_in_another_process(tmp_path: Path) -> None:
    graph = sample()
    data = pickle.dumps(graph)
    assert len(data) < 500
    again = pickle.loads(data)
    assert again.content_hash == graph.content_hash
    assert again.path == graph.stored().path
    (tmp_path / "graph.pickle").write_bytes(data)
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'graph.pickle')!r}, 'rb')).text(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stdout == "שלום 🚉\n"


def test_a_removed_cache_says_so() -> None:
    graph = sample().stored()
    data = pickle.dumps(graph)
    assert graph.path is not None
    (graph.path / "graph.json").unlink()
    with pytest.raises(TextGraphError, match="expected a cached graph"):
        pickle.loads(data)
    assert sample().stored().texts() == sample().texts()
    assert pickle.loads(data).n == 5


def test_graphs_that_differ_in_splits_share_their_texts() -> None:
    graph = sample().stored()
    other = graph.replaced(split=[2, 2, 2, 2, 2]).stored()
    assert other.path != graph.path
    assert other.content_hash != graph.content_hash
    assert other.nodes_in("test").tolist() == [0, 1, 2, 3, 4]
    assert graph.nodes_in("test").tolist() == [2]
    assert len(list(cache_folder().glob("texts-*"))) == 1
    assert not list(cache_folder().glob(".draft*"))


def test_the_content_decides_the_hash() -> None:
    hashes = {
        sample().content_hash,
        sample(directed=False).content_hash,
        sample().replaced(labels=[1, 1, -1, 1, 0]).content_hash,
        sample().replaced(splits={}).content_hash,
        TextGraph.build(["a", "b"], ["xy", ""]).content_hash,
        TextGraph.build(["a", "b"], ["x", "y"]).content_hash,
        TextGraph.build(["ab", "c"], ["x", "y"]).content_hash,
        TextGraph.build(["a", "bc"], ["x", "y"]).content_hash,
    }
    assert len(hashes) == 8
    assert sample().content_hash == sample().replaced(meta={"name": "renamed"}).content_hash


@pytest.mark.parametrize("bad", [True, 1.0, None, "", "b", ["a"], np.float64(1)])
def test_no_row_for_what_is_no_id(bad: Any) -> None:
    with pytest.raises(TextGraphError) as caught:
        sample().index_of(bad)
    assert caught.value.code in ("bad_id", "unknown_id")


def test_rows_of_ids() -> None:
    graph = sample()
    assert [graph.index_of(name) for name in ("a", 2, "2", " d")] == [0, 1, 1, 3]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"ids": [1, True]}, "bad_id"),
        ({"ids": [1, 1.0]}, "bad_id"),
        ({"ids": ["1", 1]}, "duplicate_id"),
        ({"ids": ["a\tb", "c"]}, "bad_id"),
        ({"texts": ["one"]}, "bad_length"),
        ({"texts": ["one", None]}, "bad_text"),
        ({"texts": ["one", "\ud800"]}, "bad_text"),
        ({"edges": [(0, 2)]}, "bad_edge"),
        ({"edges": [(-1, 0)]}, "bad_edge"),
        ({"labels": [0]}, "bad_length"),
        ({"labels": [0, 0.5]}, "bad_label"),
        ({"labels": [True, False]}, "bad_label"),
        ({"labels": [0, 2], "class_names": ["x"]}, "bad_label"),
        ({"labels": [0, -2]}, "bad_label"),
        ({"labels": [0, 1], "class_names": ["x", "x"]}, "bad_label"),
        ({"split": [0, 3]}, "bad_split"),
        ({"splits": {"s": [0]}}, "bad_length"),
        ({"extras": [None]}, "bad_length"),
    ],
)
def test_what_makes_no_graph(arguments: dict[str, Any], code: str) -> None:
    given = {"ids": ["a", "b"], "texts": ["one", "two"], **arguments}
    with pytest.raises(TextGraphError) as caught:
        TextGraph.build(given.pop("ids"), given.pop("texts"), given.pop("edges", ()), **given)
    assert caught.value.code == code


def test_edge_cases() -> None:
    hub = TextGraph.build(range(10_001), ["t"] * 10_001, [(0, k) for k in range(1, 10_001)]).stored()
    assert hub.degree(0) == 10_000
    assert hub.neighbors(0).tolist() == list(range(1, 10_001))
    assert hub.neighbors(10_000).tolist() == [0]
    bare = TextGraph.build(["x"], [""]).stored()
    assert (bare.n, bare.num_edges, bare.class_names, bare.label_name(0)) == (1, 0, (), None)
    assert bare.neighbors(0).tolist() == []
    assert TextGraph.build([], []).stored().n == 0
    assert TextGraph.build(["x", "y"], ["", ""], labels=[0, 0]).class_names == ("0",)


ids = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=6)
    | st.sampled_from(["#1", "a b", "</graph>", "🚉", "0", "-1"]),
    min_size=1,
    max_size=8,
    unique=True,
).filter(lambda names: all(name.strip() == name and name.strip() for name in names))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), names=ids, directed=st.booleans())
def test_write_and_read_gives_the_same_graph(
    data: st.DataObject, names: list[str], directed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    n = len(names)
    row = st.integers(0, n - 1)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    graph = TextGraph.build(
        names,
        data.draw(st.lists(text, min_size=n, max_size=n)),
        data.draw(st.lists(st.tuples(row, row), max_size=20)),
        labels=data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)),
        class_names=["10", "9", "ü"],
        split=data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)),
        splits={"named": data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))},
        directed=directed,
        extras=[{"year": k} if k % 2 else None for k in range(n)],
        meta={"name": "drawn", "licence": "CC0-1.0"},
    )
    folder = tmp_path_factory.mktemp("graph") / "out"
    write_folder(graph, folder)
    again = read_folder(folder)
    assert again.content_hash == graph.content_hash
    assert again.ids == graph.ids
    assert again.texts() == graph.texts()
    assert again.arcs().tolist() == graph.arcs().tolist()
    assert again.name == "drawn"
    assert again.meta["licence"] == "CC0-1.0"
    assert [again.extra(k) for k in range(n)] == [graph.extra(k) for k in range(n)]
    both = {tuple(sorted(pair)) for pair in graph.arcs().tolist()}
    assert sorted(both) == [tuple(pair) for pair in again.edges().tolist()]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", [node("a", label="x"), node("b", label="y")], ["a\tb"])
    first = read_folder(folder)
    assert first.directed
    assert read_folder(folder).path == first.path
    write(folder, [node("a", "other words", label="x"), node("b", label="y")], ["a\tb"], {"directed": False})
    again = read_folder(folder)
    assert again.text(0) == "other words"
    assert not again.directed
    assert first.text(0) == "words"


def test_labels_and_splits_of_a_folder(tmp_path: Path) -> None:
    nodes = [
        node(1, label=10, split="train", title="kept"),
        node("2", label=9, split="valid"),
        node("3", label="ten", split=None),
        node("4", label=None),
        node("5", label=-1, split="none"),
        node("6", split="test"),
    ]
    graph = read_folder(write(tmp_path / "g", nodes, ["1\t2\textra", "2\t1", "3 \t 3", ""], {"classes": 3}))
    assert graph.class_names == ("9", "10", "ten")
    assert graph.labels.tolist() == [1, 0, 2, -1, -1, -1]
    assert [SPLITS[code] if code >= 0 else None for code in graph.split] == ["train", "val", None, None, None, "test"]
    assert graph.extra(0) == {"title": "kept"}
    assert graph.meta["ignored_edge_columns"] == 1
    assert graph.meta["counts"]["self_loops"] == 1
    assert graph.name == "g"


def test_class_names_of_the_meta_keep_their_order(tmp_path: Path) -> None:
    nodes = [node("a", label="x"), node("b", label="y")]
    graph = read_folder(write(tmp_path / "g", nodes, [], {"class_names": ["y", "unused", "x"], "name": "named"}))
    assert graph.class_names == ("y", "unused", "x")
    assert graph.labels.tolist() == [2, 0]
    assert graph.name == "named"


@pytest.mark.parametrize(
    ("nodes", "edges", "meta", "code", "sentence"),
    [
        ([node("a"), node("a")], [], None, "duplicate_id", "line 2: expected ids that differ, got 'a' again (line 1)"),
        ([node(1), node("1")], [], None, "duplicate_id", "line 2"),
        ([node("a"), node(True)], [], None, "bad_id", "line 2: a node name is a string or an integer, got bool"),
        ([node(1.0)], [], None, "bad_id", "line 1"),
        ([node(" ")], [], None, "bad_id", "line 1"),
        ([node("a\tb")], [], None, "bad_id", "line 1: expected an id without tab"),
        ([{"text": "x"}], [], None, "bad_id", "line 1: expected the field id, got text"),
        ([{"id": "a"}], [], None, "bad_text", "line 1: expected a string as text (it may be empty), got no field text"),
        ([{"id": "a", "text": None}], [], None, "bad_text", "line 1"),
        ([{"id": "a", "text": 5}], [], None, "bad_text", "got a text of type int"),
        ([node("a"), "", '{"id": "b", '], [], None, "bad_line", "line 3: expected one JSON object"),
        (["[1]"], [], None, "bad_line", "line 1: expected one JSON object, got list"),
        (['{"id": "a", "text": "", "x": NaN}'], [], None, "bad_line", "line 1"),
        ([node("a", label=True)], [], None, "bad_label", "line 1"),
        ([node("a", label=["x"])], [], None, "bad_label", "line 1"),
        ([node("a", label="")], [], None, "bad_label", "line 1"),
        ([node("a", label=1.5)], [], None, "bad_label", "line 1"),
        ([node("a", label="z")], [], {"class_names": ["x"]}, "bad_label", "line 1: expected one of the class_names"),
        ([node("a", split="dev")], [], None, "bad_split", "line 1: expected train, val, test or null"),
        ([node("a", split=1)], [], None, "bad_split", "line 1"),
        ([node("a")], ["a\tb"], None, "unknown_endpoint", "edges.tsv, line 1: expected the id of a node"),
        ([node("a")], ["a\ta", "a a"], None, "bad_line", "edges.tsv, line 2: expected source, tab, target"),
        ([node("a")], [], {"directed": "yes"}, "bad_meta", "expected true or false as directed"),
        ([node("a")], [], {"class_names": "x"}, "bad_meta", "expected a list of strings"),
        ([], [], None, "no_nodes", "expected at least one node"),
    ],
)  # fmt: skip
def test_what_makes_no_folder(
    tmp_path: Path, nodes: list[Any], edges: list[str], meta: dict[str, Any] | None, code: str, sentence: str
) -> None:
    folder = write(tmp_path / "g", nodes, edges, meta)
    with pytest.raises(DataError) as caught:
        read_folder(folder)
    assert isinstance(caught.value, TextGraphError)
    assert caught.value.code == code
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert code in {error.code for error in problems(folder)}


def test_bytes_that_are_no_text_and_files_that_are_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", [node("a")])
    (folder / "nodes.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "BOM"}\r\n{"id": "b", "text": "\xff"}\n')
    with pytest.raises(TextGraphError, match=r"line 2: expected UTF-8"):
        read_folder(folder)
    (folder / "nodes.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "BOM"}\r\n')
    assert read_folder(folder).text(0) == "BOM"
    (folder / "edges.tsv").unlink()
    with pytest.raises(TextGraphError, match=r"found no edges\.tsv"):
        read_folder(folder)


def test_named_splits_are_checked(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", [node("a"), node("b")])
    (folder / "splits.json").write_text('{"s": {"train": ["a"], "test": ["b"]}}')
    assert read_folder(folder).splits["s"].tolist() == [0, 2]
    for wrong in ('{"s": {"train": ["z"]}}', '{"s": {"train": ["a"], "val": ["a"]}}', '{"s": {"dev": []}}', "[]", "{"):
        (folder / "splits.json").write_text(wrong)
        with pytest.raises(TextGraphError):
            read_folder(folder)
    with pytest.raises(TextGraphError, match="expected a split of"):
        sample().nodes_in("train", of="none such")


def test_no_folder_is_overwritten(tmp_path: Path) -> None:
    write_folder(sample(), tmp_path / "out")
    with pytest.raises(UserError, match="which holds something"):
        write_folder(sample(), tmp_path / "out")


def test_pyg_and_back() -> None:
    pytest.importorskip("torch_geometric")
    graph = sample()
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    data = graph.to_pyg(features)
    assert data.num_nodes == 5
    assert data.num_edges == 2 * graph.num_edges
    assert data.y.tolist() == graph.labels.tolist()
    assert data.train_mask.tolist() == [True, False, False, False, True]
    assert data.x.tolist() == features.tolist()
    again = TextGraph.from_pyg(data, graph.texts(), ids=graph.ids, class_names=graph.class_names)
    assert again.labels.tolist() == graph.labels.tolist()
    assert again.edges().tolist() == graph.edges().tolist()
    assert again.split.tolist() == graph.split.tolist()
    assert not again.directed
    arcs = TextGraph.from_pyg(graph.to_pyg(directed=True), graph.texts())
    assert arcs.directed
    assert arcs.arcs().tolist() == graph.arcs().tolist()
    with pytest.raises(TextGraphError, match="rows of features"):
        graph.to_pyg(features[:3])


def test_pyg_masks_with_columns_become_named_splits() -> None:
    torch = pytest.importorskip("torch")
    data_class = pytest.importorskip("torch_geometric.data").Data
    train = torch.tensor([[True, False], [False, True], [False, False]])
    data = data_class(
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        num_nodes=3,
        train_mask=train,
        test_mask=torch.tensor([False, False, True]),
    )
    graph = TextGraph.from_pyg(data, ["a", "b", "c"])
    assert graph.split.tolist() == [0, -1, 2]
    assert graph.splits["1"].tolist() == [-1, 0, 2]
    assert graph.labels.tolist() == [-1, -1, -1]
    assert graph.directed


def test_cora(shared: Path) -> None:
    graph = read_folder(shared / "data" / "cora")
    assert (graph.n, graph.num_edges, len(graph.class_names)) == (2708, 5278, 7)
    assert [len(graph.nodes_in(split)) for split in SPLITS] == [140, 500, 1000]
    assert graph.extra(0)["paper_id"] == 1110563
    assert graph.text(0).startswith("CONVIS")
    assert graph.label_name(0) == "Neural_Networks"


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "dataset"))
def test_handed_data_cards(case: dict[str, Any], shared: Path) -> None:
    name = case["input"]["name"]
    if name == "metaqa_mini":
        pytest.skip("a knowledge graph with typed relations, not a text-attributed graph")

    def run(data: dict[str, Any]) -> dict[str, Any]:
        graph = read_folder(shared / "data" / data["name"])
        lines = graph.meta["counts"]["edge_lines"]
        pairs = graph.num_edges
        classes = len(graph.class_names)
        return {"status": "ok", "nodes": graph.n, "edge_lines": lines, "undirected_pairs": pairs, "classes": classes}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "ids"))
def test_handed_ids(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        try:
            for value in data["values"]:
                graph = TextGraph.build([value], ["text"])
                assert graph.index_of(value) == 0
            return {"status": "ok", "ids": [node_id(value) for value in data["values"]]}
        except (TextGraphError, NamingError) as error:
            return {"status": "error", "code": error.code}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "join"))
def test_handed_joins(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"status": "ok", "values": join(data["nodes"], data["table"], data["key"], data["value"])}
        except TextGraphError as error:
            return {"status": "error", "code": error.code}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "index_table"))
def test_handed_index_tables(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        rows = [{"id": name, "text": text} for name, text in zip(data["labels"], data["features"], strict=True)]
        if data["order"] == "natural":
            rows.sort(key=lambda row: natural_key(node_id(row["id"])))
        names = [node_id(row["id"]) for row in rows]
        graph = TextGraph.build(names, [row["text"] for row in rows], edge_rows(names, data["edges"]), directed=True)
        assert all(graph.text(graph.index_of(row["id"])) == row["text"] for row in rows)
        return {
            "status": "ok",
            "ids": list(graph.ids),
            "features": graph.texts(),
            "edge_index": [list(pair) for pair in graph.arcs().tolist()],
        }

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "file_graph"))
def test_handed_file_graphs(case: dict[str, Any], tmp_path: Path) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        names = natural_order(name for row in data["rows"] for name in row)
        write_folder(TextGraph.build(names, names, edge_rows(names, data["rows"])), tmp_path / "out")
        graph = read_folder(tmp_path / "out")
        return {"status": "ok", "nodes": graph.n, "edges": graph.num_edges, "names": sorted(graph.ids)}

    check_case(case, run)
