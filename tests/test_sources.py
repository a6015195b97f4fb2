"""Sources of text-attributed graphs: networkx-docs, Debian, tables, downloads that fail, random splits."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.errors import UserError
from agl.graphs.data_check import check
from agl.graphs.sources import SOURCES, debian, open_graph
from agl.graphs.sources.promptgfm import read_tables
from agl.graphs.sources.splits import PER_CLASS, random_split
from agl.graphs.sources.text_table import join, read_texts
from agl.graphs.text_graph import TextGraph, TextGraphError
from tests.agl_process import agl
from tests.text_graphs import node, write

CONTROL = """Package: zlib1g
Version: 1
Section: libs
Depends: libc6 (>= 2.14)
Description: compression library - runtime
 zlib is a library implementing the deflate compression method.
 .
 It is found in gzip.

Package: libc6
Section: libs
Recommends: nowhere, zlib1g:any
Description: GNU C Library
Description-md5: abc

Package: editor
Section: contrib/editors
Pre-Depends: libc6 | libc6.1, editor
Depends: zlib1g, virtual-package | zlib1g (<< 2) [amd64]
Suggests: lonely

Package: lonely
Description: no section here

Package: libc6
Section: newer
Description: another version
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> TextGraph:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("docs")))
        return open_graph("networkx-docs")


def test_networkx_docs(docs: TextGraph) -> None:
    import networkx

    assert docs.n > 800
    assert docs.num_edges > 1_000
    assert len(docs.class_names) > 20
    assert docs.directed
    assert (docs.labels >= 0).all()
    row = docs.index_of("dijkstra_path")
    assert docs.label_name(row) == "algorithms.shortest_paths"
    assert docs.extra(row) == {"path": "networkx.algorithms.shortest_paths.weighted.dijkstra_path"}
    assert {"density", "density~2", "density~3"} <= set(docs.ids)
    assert not any("." in name for name in docs.ids)  # the path would tell the label
    assert docs.text(row) == networkx.dijkstra_path.__doc__.strip() or docs.text(row).startswith("Returns the shortest")
    told = {docs.ids[i] for i in docs.successors(row)}
    assert "single_source_dijkstra" in told  # called
    assert "bellman_ford_path" in told  # See Also
    assert "path_graph" not in told  # in an example only
    report = check(docs)
    assert report.ok
    assert report.shift == 0
    assert report.homophily is not None
    assert report.homophily > 0.4
    sizes = Counter(docs.split.tolist())
    assert sizes[0] + sizes[1] + sizes[2] == docs.n
    assert abs(sizes[0] / docs.n - 0.6) < 0.01
    assert set(docs.splits) == {"60-20-20", "79-1-20", PER_CLASS}


def test_a_second_opening_is_mapped_and_equal(docs: TextGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert docs.path is not None
    monkeypatch.setenv("AGL_CACHE", str(docs.path.parent.parent))
    assert open_graph("networkx-docs").path == docs.path


def test_the_same_bytes_in_any_process(docs: TextGraph, tmp_path: Path) -> None:
    code = "from agl.graphs.sources import open_graph; print(open_graph('networkx-docs').content_hash)"
    env = {"AGL_CACHE": str(tmp_path), "PYTHONHASHSEED": "77", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == docs.content_hash


def test_a_debian_index() -> None:
    graph = debian.graph_of(CONTROL)
    assert graph.ids == ("editor", "libc6", "lonely", "zlib1g")
    arcs = {(graph.ids[a], graph.ids[b]) for a, b in graph.arcs().tolist()}
    assert arcs == {("editor", "libc6"), ("editor", "zlib1g"), ("libc6", "zlib1g"), ("zlib1g", "libc6")}
    assert graph.class_names == ("editors", "libs")
    assert [graph.label_name(i) for i in range(4)] == ["editors", "libs", None, "libs"]
    assert graph.text(1) == "GNU C Library"
    assert graph.text(3).endswith("deflate compression method.\n\nIt is found in gzip.")
    assert graph.text(0) == ""
    assert graph.meta["counts"]["self_loops"] == 1
    assert graph.split[2] == -1


def test_no_debian_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian, "LISTS", tmp_path)
    with pytest.raises(UserError, match="run `apt-get update`"):
        open_graph("debian")
    with pytest.raises(UserError, match="run `apt-get update`"):
        debian.graph_of("")


@pytest.mark.slow
def test_the_debian_index_of_this_machine() -> None:
    try:
        graph = open_graph("debian")
    except UserError as error:
        pytest.skip(str(error))
    if graph.n < 10_000:
        pytest.skip("another package index than Debian's own")
    assert graph.num_arcs > 3 * graph.n
    assert len(graph.class_names) > 40
    assert graph.degree(graph.index_of("libc6")) > 10_000
    assert check(graph).ok


def tables(folder: Path, first: int = 0, nodes: int = 60) -> Path:
    """Three topics in mixed order; texts numbered from `first`, labels and edges from 0."""
    words = ("solar panel roof energy", "whale reef ocean krill", "sorting network depth bound")
    draw = random.Random(0)
    topics = [draw.randrange(3) for _ in range(nodes)]
    folder.mkdir()
    texts = "".join(f'{k + first},"Title, {k}","{words[topics[k]]} ""{k}"""\n' for k in range(nodes))
    labels = "".join(f"{k},T{topics[k]}\n" for k in range(nodes))
    edges = "".join(f"{a},{b}\n" for a in range(nodes) for b in range(a) if topics[a] == topics[b] and (a + b) % 3 == 0)
    (folder / "node_info.csv").write_text("paper_id,title,abs\n" + texts)
    (folder / "data.csv").write_text("id,label\n" + labels)
    (folder / "graph.csv").write_text("a,b\n" + edges)
    (folder / "label_info.csv").write_text("Label,text attribute\nT0,Energy\nT1,Sea\nT2,Sorting\n")
    return folder


def test_promptgfm_tables(tmp_path: Path) -> None:
    graph = open_graph(tables(tmp_path / "toy"))
    assert graph.n == 60
    assert graph.class_names == ("Energy", "Sea", "Sorting")
    assert graph.text(0).startswith("Title, 0\n")
    assert graph.text(0).endswith(' "0"')
    assert check(graph).ok


def test_a_shift_of_promptgfm_ids_is_refused_with_its_repair(tmp_path: Path) -> None:
    folder = tables(tmp_path / "toy", first=1)
    with pytest.raises(TextGraphError, match=r"--shift 1$") as caught:
        open_graph(folder)
    assert caught.value.code == "misaligned"
    repaired = read_tables(folder, shift=1)
    assert repaired.texts() == open_graph(tables(tmp_path / "right")).texts()


def test_promptgfm_tables_that_lack_something(tmp_path: Path) -> None:
    folder = tables(tmp_path / "toy")
    (folder / "node_info.csv").write_text("paper_id,title,abs\n0,x,y\n")
    with pytest.raises(TextGraphError, match="expected a row for each of 60 nodes"):
        open_graph(folder)
    (folder / "graph.csv").write_text("a,b\n0,99\n")
    with pytest.raises(TextGraphError, match="expected edges between listed nodes, got '99'"):
        open_graph(folder)
    (folder / "data.csv").write_text("id,label\n0,T0\n0,T1\n")
    (folder / "graph.csv").write_text("a,b\n")
    with pytest.raises(TextGraphError, match="'0' twice"):
        open_graph(folder)
    (folder / "graph.csv").unlink()
    with pytest.raises(TextGraphError, match=r"found no graph\.csv"):
        open_graph(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'paper_id,title,abstract\n30,"a, b",\n10,one,two\n20,x,y\n'),
        ("t.tsv", "node_idx\ttitle\tabs\n30\ta, b\t\n10\tone\ttwo\n"),
        ("t.jsonl", '{"id": 10, "text": "one\\ntwo"}\n{"id": "30", "text": "a, b", "label": 3}\n'),
    ],
)
def test_texts_by_id(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read_texts(tmp_path / name, ["30", "10"]) == ["a, b", "one\ntwo"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "paper_id,title\n1,a\n1,b\n", "expected one row for each key, got '1' twice"),
        ("t.csv", "paper_id,title\n2,a\n", "expected a row for each of 1 nodes, got none for 1, '1' first"),
        ("t.csv", "number,words\n1,a\n", "to have a column for the id"),
        ("t.csv", "", "got no row"),
        ("t.jsonl", "{\n", "expected a readable table"),
        ("t.jsonl", "[]\n", "line 1: expected one JSON object"),
        ("t.txt", "x", "expected a table ending in"),
    ],
)
def test_texts_that_cannot_be_joined(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as caught:
        read_texts(tmp_path / name, ["1"])
    assert sentence in str(caught.value)


@given(st.permutations(range(8)))
def test_a_join_does_not_depend_on_the_order_of_the_table(order: list[int]) -> None:
    rows = [{"k": k, "v": f"text {k}"} for k in order]
    assert join([3, "1", 4], rows, "k", "v") == ["text 3", "text 1", "text 4"]


def test_a_hub_file_in_a_folder(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data_class = pytest.importorskip("torch_geometric.data").Data
    masks = torch.tensor([[True, False], [False, True]])
    data = data_class(edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1, 0]), train_mask=masks, num_nodes=2)
    torch.save(data, tmp_path / "processed_data.pt")
    with pytest.raises(UserError, match=r"expected raw_texts\.pt"):
        open_graph("cora", texts=tmp_path)
    torch.save(["Title: one", "Title: two"], tmp_path / "raw_texts.pt")
    (tmp_path / "categories.csv").write_text("name\nx\ny\n")
    graph = open_graph("cora", texts=tmp_path)
    assert graph.texts() == ["Title: one", "Title: two"]
    assert graph.label_name(0) == "y"
    assert graph.num_edges == 1
    assert graph.splits["1"].tolist() == [-1, 0]
    assert graph.split.tolist() == [0, -1]
    (tmp_path / "processed_data.pt").write_bytes(b"no graph")
    with pytest.raises(UserError, match="which cannot be read"):
        open_graph("cora", texts=tmp_path)


def test_a_download_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="check the network") as caught:
        open_graph("pubmed")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"expected --texts FILE with amazon-photo"):
        open_graph("amazon-photo")
    with pytest.raises(UserError, match=r"expected --texts FILE with ogbn-products"):
        open_graph("ogbn-products")


def test_texts_that_nobody_wrote_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TextGraphError, match="allow-synthetic-text"):
        open_graph("chameleon")
    folder = write(tmp_path / "g", [node("a")], [], {"synthetic_text": True})
    with pytest.raises(TextGraphError, match="allow-synthetic-text"):
        open_graph(folder)
    assert open_graph(folder, allow_synthetic_text=True).n == 1


def test_names_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'debian'"):
        open_graph("debain")
    with pytest.raises(UserError, match="known names are"):
        open_graph(str(tmp_path / "none"))
    with pytest.raises(TextGraphError, match=r"found no nodes\.jsonl"):
        open_graph(tmp_path)
    folder = write(tmp_path / "g", [node("a")])
    with pytest.raises(UserError, match="give its folder"):
        open_graph(folder / "nodes.jsonl")
    assert all(source.entry.partition(":")[2] == "build" for source in SOURCES.values())


def labelled(sizes: list[int]) -> TextGraph:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    return TextGraph.build(range(len(labels) + 2), ["t"] * (len(labels) + 2), labels=[-1, *labels, -1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 3), st.booleans())
def test_random_splits(sizes: list[int], seed: int, by_class: bool) -> None:
    graph = labelled(sizes)
    if by_class:
        codes = random_split(graph, per_class=20, seed=seed)
        again = random_split(graph, per_class=20, seed=seed)
        drawn = Counter(graph.labels[codes == 0].tolist())
        assert all(drawn[k] == (20 if size >= 40 else max(1, min(20, size // 2))) for k, size in enumerate(sizes))
        assert (codes[graph.labels >= 0] >= 0).all()
    else:
        codes = random_split(graph, (0.6, 0.2, 0.2), seed=seed)
        again = random_split(graph, (0.6, 0.2, 0.2), seed=seed)
        assert abs(int((codes == 0).sum()) - 0.6 * sum(sizes)) <= 1
        assert (codes[graph.labels >= 0] >= 0).all()
    assert codes.tolist() == again.tolist()
    assert codes[0] == codes[-1] == -1


def test_splits_as_published() -> None:
    graph = labelled([400, 600, 1000])
    planetoid = random_split(graph, per_class=20)
    assert [int((planetoid == code).sum()) for code in range(3)] == [60, 500, 1000]
    reagan = random_split(graph, (0.79, 0.01, 0.2))
    assert [int((reagan == code).sum()) for code in range(3)] == [1580, 20, 400]
    assert not np.array_equal(reagan, random_split(graph, (0.79, 0.01, 0.2), seed=1))


def test_splits_that_cannot_be() -> None:
    graph = labelled([5])
    for fractions in ((0.5, 0.6, 0.2), (0.5, 0.5), (-0.1, 0.5, 0.5), (0.0, 0.0, 0.0)):
        with pytest.raises(UserError, match="expected fractions"):
            random_split(graph, fractions)
    with pytest.raises(UserError, match="one of the two"):
        random_split(graph)
    with pytest.raises(UserError, match="per_class of at least 1"):
        random_split(graph, per_class=0)
    with pytest.raises(UserError, match="expected a graph with labels"):
        random_split(TextGraph.build(["a"], [""]), per_class=1)


def test_a_hub_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    # In a process of its own: submodules of the Hub's client that a test has imported hide a missing import.
    found = agl("data", "info", "citeseer", cwd=tmp_path, settings={"HF_HUB_OFFLINE": "1", "AGL_CACHE": str(tmp_path)})
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr
    assert found.stderr.startswith("agl: expected")
