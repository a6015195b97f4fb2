"""ReaGAN's memory, labels, fallback and prompts' texts: laws that hold for any entries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.reagan.fallback import fallback, majority
from envs.reagan.labels import Labels
from envs.reagan.memory import Entry, deduplicated, examples, labelled, messages, normalised, summary
from envs.reagan.neighbourhood import cut
from envs.reagan.prompts import first_sentence


def entry(source: str, label: int | None = None, **more: Any) -> Entry:
    status = more.pop("status", None if label is None else "gold")
    fields = {"text": f"text of {source}", "source_type": "local", "layer": 1, "similarity": 0.5} | more
    return Entry(source=source, label=label, label_status=status, **fields)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    label = draw(st.none() | st.integers(0, 2))
    return Entry(
        text=draw(st.sampled_from(["", "A b.", "a  B", "other", "third one"])),
        label=label,
        source=draw(st.sampled_from("xyz")),
        source_type=draw(st.sampled_from(["local", "local_hop", "global", "broadcast"])),
        layer=draw(st.integers(1, 3)),
        similarity=draw(st.sampled_from([-0.1, 0.0, 0.5, 0.9])),
        label_status=None if label is None else draw(st.sampled_from(["gold", "predicted"])),
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(entries(), max_size=12))
def test_memory_without_repetitions(given_entries: list[Entry]) -> None:
    kept = deduplicated(given_entries)
    assert deduplicated(kept) == kept
    assert [one.layer for one in kept] == sorted(one.layer for one in kept)
    words = {(one.part, one.source): (one.label, one.label_status) for one in kept if one.label is not None}
    for one in kept:
        if one.label is not None:
            assert words[one.part, one.source] == (one.label, one.label_status), "a source has two labels in one part"
    texts = [(one.part, normalised(one.text), one.label) for one in kept if normalised(one.text)]
    assert len(set(texts)) == len(texts)
    for one in given_entries:
        rivals = [other for other in given_entries if (other.part, other.source) == (one.part, one.source)]
        if one.label_status == "gold" and {other.label for other in rivals if other.label_status == "gold"} == {
            one.label
        }:
            evidence = [other for other in kept if other.part == one.part and other.label == one.label]
            assert any(
                other.source == one.source or normalised(other.text) in {normalised(r.text) for r in rivals}
                for other in evidence
            ), "a gold label was lost"
        if one.source_type == "broadcast" and normalised(one.text):
            assert any(normalised(other.text) == normalised(one.text) for other in kept if other.part == "local")


def test_the_earlier_layer_wins_and_gold_replaces_a_guess() -> None:
    early, late = entry("x", 1, layer=1, text="first"), entry("x", 1, layer=2, text="second")
    assert deduplicated([late, early]) == [early]
    guess, gold = entry("x", 0, status="predicted"), entry("x", 1, layer=2)
    assert deduplicated([guess, gold]) == [gold] == deduplicated([gold, guess])
    older, newer = entry("x", 0, status="predicted"), entry("x", 2, status="predicted", layer=2)
    assert deduplicated([older, newer]) == [newer]


def test_equal_texts_count_once_only_with_the_same_label() -> None:
    same = [entry("x", 1, text="A  Graph, network."), entry("y", 1, text="a graph network")]
    assert deduplicated(same) == same[:1]
    other = [entry("x", 1, text="same"), entry("y", 2, text="same")]
    assert deduplicated(other) == other
    empty = [entry("x", 1, text=""), entry("y", 1, text="")]
    assert deduplicated(empty) == empty
    parts = [entry("x", 1), entry("x", 1, source_type="global")]
    assert deduplicated(parts) == parts


def test_examples_are_the_most_similar_of_each_part_and_no_node_twice() -> None:
    local = [entry(f"l{i}", i % 2, similarity=i / 10) for i in range(8)]
    far = [entry(f"g{i}", 1, source_type="global", similarity=i / 10) for i in range(8)]
    twice = [entry("l7", 1, source_type="global", similarity=0.7)]
    near, distant = examples([*local, entry("none"), *far, *twice], 5, 0.0, "A", 2)
    assert [one.source for one in near] == ["l7", "l6", "l5", "l4", "l3"]
    assert [one.source for one in distant] == ["g7", "g6", "g5", "g4", "g3"]


def test_diversity_lets_a_slightly_less_similar_label_in() -> None:
    crowd = [entry(f"g{i}", 0, source_type="global", similarity=0.9 - i / 100) for i in range(10)]
    other = entry("odd", 1, source_type="global", similarity=0.7)
    assert {one.label for one in examples([*crowd, other], 5, 0.3, "A", 2)[1]} == {0, 1}
    assert {one.label for one in examples([*crowd, other], 5, 0.0, "A", 2)[1]} == {0}


@settings(max_examples=100, deadline=None)
@given(st.lists(entries(), max_size=12), st.integers(1, 5), st.sampled_from([0.0, 0.3, 2.0]))
def test_examples_are_a_part_of_memory(given_entries: list[Entry], k: int, mu: float) -> None:
    kept = deduplicated(given_entries)
    near, far = examples(kept, k, mu, "A", 2)
    assert len(near) <= k
    assert len(far) <= k
    assert all(one in kept and one.label is not None for one in [*near, *far])
    available = {one.source for one in labelled(kept, "global")} - {one.source for one in near}
    assert len(far) == min(k, len([one for one in labelled(kept, "global") if one.source in available]))


@pytest.mark.parametrize(("count", "shown"), [(0, True), (1, True), (2, False), (3, False)])
def test_strategy_b_wants_fewer_than_two_local_examples(count: int, shown: bool) -> None:
    memory = [*(entry(f"l{i}", 0) for i in range(count)), entry("g", 1, source_type="global"), entry("unlabelled")]
    assert bool(examples(memory, 5, 0.3, "B", 2)[1]) is shown
    assert examples(memory, 5, 0.3, "A", 2)[1]


def test_fallback_goes_by_local_then_global_then_train() -> None:
    local = [entry("a", 2), entry("b", 0), entry("c", 2)]
    far = [
        entry("d", 1, source_type="global", similarity=0.9),
        *(entry(f"e{i}", 0, source_type="global", similarity=0.2) for i in range(3)),
    ]
    assert fallback([*local, *far], (5, 0, 0)) == (2, "local")
    assert fallback(far, (5, 0, 0)) == (1, "global")
    assert fallback([entry("x")], (1, 3, 3)) == (1, "train")


def test_ties_go_to_the_closest_then_to_the_lowest() -> None:
    assert majority([entry("a", 1, similarity=0.9), entry("b", 0, similarity=0.2)]) == 1
    assert majority([entry("a", 1), entry("b", 0)]) == 0
    with pytest.raises(ValueError, match="label"):
        majority([entry("a")])


def test_messages_without_label_are_kept_apart_and_the_summary_leaves_out_what_is_shown() -> None:
    said = entry("m", source_type="broadcast", text="look at b")
    seen, other = entry("a", 1), entry("b", text="unlabelled text")
    assert messages([said, seen, other], 5) == [said]
    assert summary([said, seen, other], [seen], 3) == {"local": ["unlabelled text"]}


LABELS = Labels(("Neural_Networks", "Theory", "Case_Based", "3"))


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("Label_0", 0),
        ("label 0", 0),
        ("LABEL-2", 2),
        (" Label_1. ", 1),
        ("0", 0),
        (0, 0),
        (3, 3),
        ("3", 3),
        ("neural networks", 0),
        ("case-based", 2),
        ("Theory", 1),
        ("Label_4", None),
        ("Label_", None),
        ("", None),
        (-1, None),
        ("Theor", None),
        ("Label_-1", None),
        ("Label_1 or Label_2", None),
    ],
)
def test_a_label_is_found_in_any_usual_spelling(said: str | int, label: int | None) -> None:
    assert LABELS.find(said) == label


def test_real_names_are_matched_as_they_are_shown() -> None:
    named = Labels(("C", "C++", "c#", "A b"), anonymise=False)
    assert [named.find(said) for said in ("C", "C++", "c#", "C#", "a_b")] == [0, 1, 2, 2, 3]
    assert named.find("Label_0") is None
    assert named.find(0) is None


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True), st.booleans())
def test_every_shown_label_is_its_own_class(names: list[str], anonymise: bool) -> None:
    labels = Labels(tuple(names), anonymise)
    assert [labels.find(shown) for shown in labels.shown] == list(range(len(names)))


@given(st.text(max_size=400), st.integers(20, 200))
def test_texts_are_one_line_and_no_longer_than_asked(text: str, chars: int) -> None:
    short = cut(text, chars)
    assert len(short) <= chars
    assert len(short.splitlines()) <= 1
    assert short == " ".join(text.split()) or short.endswith("...")


@pytest.mark.parametrize("text", ["👩‍👩‍👧‍👦" * 40, "مرحبا بالعالم " * 30, "שלום עולם " * 40, "e\u0301" * 300])
def test_texts_of_other_scripts_are_cut_without_a_dangling_joiner(text: str) -> None:
    short = cut(text, 50)
    assert len(short) <= 50
    assert short.removesuffix("...")[-1] not in "\u200d\ufe0f "


def test_a_sentence_does_not_end_at_an_abbreviation() -> None:
    assert first_sentence("Covering vs. divide and conquer in induction. More.") == (
        "Covering vs. divide and conquer in induction."
    )
    assert first_sentence("short") == "short"
