"""From episodes to the rows of a loss: one per context, since a context is what a forward pass reads.

An episode that rebuilds its context (ReaGAN: a fresh prompt in every layer) is several decisions. The policy gradient
of its reward is the sum over all of them, each with the episode's advantage; `every` trains on that sum. `one` draws a
decision per episode and weights it by their number: the same gradient in expectation, for one row per episode.

TRL's losses average over rows or over tokens as if a row were an episode; `row_weight` undoes that, so that an episode
counts as it would if all its tokens stood in one row.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agl.errors import InfraError
from agl.trace import Episode

Decisions = Literal["every", "one", "append"]

OVER_TOKENS = frozenset({"dapo", "cispo", "bnpo", "vespo"})
"""Loss types of TRL that divide by a number of tokens."""
OVER_ROWS = frozenset({"dr_grpo", "luspo"})
"""Those that divide the sum over a row's tokens by a number of rows."""
OVER_ROW_MEANS = frozenset({"grpo", "sapo"})
"""Those that average over the tokens of a row, then over rows."""


@dataclass(frozen=True)
class LossRow:
    """One row; all completion fields are equally long.

    Attributes:
        mask: 1 exactly on tokens that the policy sampled and that are trained on.
        start: where its completion begins when the contexts of the episode are written one after another.
        drawn_from: decisions that this one stands for; 1 unless it was drawn.
        episode_tokens: trained tokens in all rows of the episode.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    start: int = 0
    drawn_from: int = 1
    episode_tokens: int = field(default=0)

    @property
    def tokens(self) -> int:
        """Trained tokens."""
        return sum(self.mask)


def rows_of(episode: Episode, *, filler: int, mute: bool = False) -> list[LossRow]:
    """The rows of an episode in the order of its contexts, at least one.

    A context without sampled tokens gives none. `mute` keeps the tokens and zeroes the mask. What is no sample, and an
    episode in which nothing was sampled, is one row of `filler` that trains nothing.

    Raises:
        InfraError: sampled tokens without log-probabilities.
    """
    if not episode.is_sample:
        return [LossRow([filler], [filler], [0], [0.0])]
    rows: list[LossRow] = []
    offset = 0
    for log in episode.logs:
        prompt_ids, completion_ids, mask, logprobs = log.row()
        if sum(mask):
            if logprobs is None:
                raise InfraError(
                    "expected log-probabilities of every sampled token, got none; the sampler must return them"
                )
            rows.append(LossRow(prompt_ids, completion_ids, mask, logprobs, offset + len(prompt_ids)))
        offset += len(log)
    if not rows:
        prompt_ids = episode.logs[0].row().prompt_ids if episode.logs else [filler]
        return [LossRow(prompt_ids or [filler], [filler], [0], [0.0])]
    if mute:
        return [replace(row, mask=[0] * len(row.mask)) for row in rows]
    total = sum(row.tokens for row in rows)
    return [replace(row, episode_tokens=total) for row in rows]


def draw(rows: Sequence[LossRow], seed: int) -> LossRow:
    """One of the rows, all equally likely; it remembers how many it was drawn from."""
    return replace(random.Random(seed).choice(rows), drawn_from=len(rows))


def row_weight(row: LossRow, *, loss_type: str, rows: int, episodes: int) -> float:
    """What the advantage of a row is multiplied with, so that TRL's mean over rows is a mean over episodes.

    With every decision in the batch the loss is exactly that of episodes written in one row each; with drawn ones its
    gradient has that expectation, given `num_items_in_batch` counts the tokens of all decisions.

    Args:
        rows: in the batch of this rank, padding included.
        episodes: in the batch of this rank.

    Raises:
        ValueError: a loss type that is not known.
    """
    weight = float(row.drawn_from)
    if loss_type in OVER_TOKENS:
        return weight
    weight *= rows / episodes
    if loss_type in OVER_ROWS:
        return weight
    if loss_type in OVER_ROW_MEANS:
        return weight * row.tokens / row.episode_tokens if row.episode_tokens else weight
    known = ", ".join(sorted(OVER_TOKENS | OVER_ROWS | OVER_ROW_MEANS))
    raise ValueError(f"expected a loss type out of {known}; got {loss_type!r}")


def padded_count(most: int, chunks: int) -> int:
    """Rows that every rank brings when the fullest has `most`: TRL cuts them into `chunks` equal parts."""
    return -(-most // chunks) * chunks
