"""TokenLog: tokens are appended, and the loss mask follows from who produced them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.tokens import Source, TokenLog
from tests.conftest import check_case, handed_cases

IDS = st.lists(st.integers(0, 9), max_size=5)
LATER: st.SearchStrategy[Source] = st.sampled_from(["sampled", "injected"])
PIECES = st.lists(st.tuples(LATER, IDS, st.booleans()), max_size=8)


def build(prompt: list[int], pieces: list[tuple[Source, list[int], bool]]) -> TokenLog:
    log = TokenLog()
    log.append("prompt", prompt)
    for source, ids, known in pieces:
        log.append(source, ids, [-0.5] * len(ids) if known and source == "sampled" else None)
    return log


@pytest.mark.parametrize("case", handed_cases("verifier.jsonl", "token_row"))
def test_handed_rows(case: dict[str, Any]) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        log = TokenLog()
        log.append("prompt", given["prompt"])
        for turn in given["turns"]:
            log.append("sampled" if turn["by"] == "policy" else "injected", turn["ids"])
        return {"status": "ok", "length": len(log), "trained": sum(log.row().mask), "mask": log.mask}

    check_case(case, run)


@given(IDS, PIECES)
def test_provenance_decides_the_mask(prompt: list[int], pieces: list[tuple[Source, list[int], bool]]) -> None:
    log = build(prompt, pieces)
    assert log.ids == prompt + [token for _, ids, _ in pieces for token in ids]
    assert log.mask == [0] * len(prompt) + [int(source == "sampled") for source, ids, _ in pieces for _ in ids]
    assert sum(log.mask) == log.count("sampled")
    assert log.count("prompt") + log.count("sampled") + log.count("injected") == len(log)


@given(IDS, PIECES)
def test_spans_tile_the_log_and_neighbours_differ(
    prompt: list[int], pieces: list[tuple[Source, list[int], bool]]
) -> None:
    spans = build(prompt, pieces).spans
    assert all(span.start < span.stop for span in spans)
    assert [span.start for span in spans] == [0, *(span.stop for span in spans)][: len(spans)]
    assert all(left.source != right.source for left, right in itertools.pairwise(spans))


@given(IDS, PIECES)
def test_rows_have_equal_lengths_and_lose_nothing(
    prompt: list[int], pieces: list[tuple[Source, list[int], bool]]
) -> None:
    log = build(prompt, pieces)
    row = log.row()
    assert row.prompt_ids + row.completion_ids == log.ids
    assert row.prompt_ids == prompt
    assert len(row.completion_ids) == len(row.mask)
    assert row.mask == log.mask[len(prompt) :]
    if all(known or source == "injected" or not ids for source, ids, known in pieces):
        assert row.logprobs == [-0.5 * sampled for sampled in row.mask]
    else:
        assert row.logprobs is None


@given(IDS, PIECES, PIECES)
def test_a_fork_extends_its_prefix_and_leaves_the_original_alone(
    prompt: list[int],
    pieces: list[tuple[Source, list[int], bool]],
    more: list[tuple[Source, list[int], bool]],
) -> None:
    log, untouched = build(prompt, pieces), build(prompt, pieces)
    fork = log.fork()
    for source, ids, _ in more:
        fork.append(source, ids)
    assert fork.ids[: len(log)] == log.ids
    assert fork.mask[: len(log)] == log.mask
    assert log == untouched


def test_what_cannot_be_is_refused() -> None:
    log = TokenLog()
    log.append("sampled", [1, 2], [-0.1, -0.2])
    for source, ids, logprobs in [("sampled", [3], []), ("injected", [3], [-0.1]), ("prompt", [3], [-0.1])]:
        with pytest.raises(ValueError, match="log-probabilities"):
            log.append(source, ids, logprobs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start of a log"):
        log.append("prompt", [3])
    assert log.ids == [1, 2]
