"""Episodes of several contexts: every decision is a row, and the estimators have the gradient they promise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.core import Outcome, OutcomeKind, Score, StopReason
from agl.tokens import TokenLog
from agl.trace import Episode, Tokens
from tests.tiny_model import save_tiny
from tests.tiny_trainer import GROUP, steps, turns_trainer
from train.loss_rows import OVER_ROW_MEANS, OVER_ROWS, OVER_TOKENS, LossRow, draw, padded_count, row_weight, rows_of


def episode_of(*logs: TokenLog, reward: float = 0.0) -> Episode:
    return Episode(
        task={"id": "a"},
        attempt=0,
        policy="p",
        dialect="d",
        transcript=(),
        events=(),
        score=Score(total=0.0, reward=reward),
        outcome=Outcome(kind=OutcomeKind.OK, stop=StopReason.ANSWER),
        tokens=Tokens(),
        seconds={"model": 0.0, "framework": 0.0},
        logs=logs,
    )


def context(prompt: Sequence[int], sampled: Sequence[int]) -> TokenLog:
    log = TokenLog()
    log.append("prompt", prompt)
    log.append("sampled", sampled, [-1.0] * len(sampled))
    return log


def test_each_context_is_a_row_that_knows_its_place() -> None:
    rows = rows_of(episode_of(context([1, 2], [3]), context([4], []), context([5], [6, 7])), filler=0)
    assert [(row.prompt_ids, row.completion_ids, row.start) for row in rows] == [([1, 2], [3], 2), ([5], [6, 7], 5)]
    assert [row.episode_tokens for row in rows] == [3, 3]


def test_all_draws_are_equally_likely_and_remember_their_number() -> None:
    rows = rows_of(episode_of(*(context([1], [token]) for token in (2, 3, 4))), filler=0)
    drawn = [draw(rows, seed) for seed in range(600)]
    assert {row.drawn_from for row in drawn} == {3}
    for token in (2, 3, 4):
        assert 150 < sum(row.completion_ids == [token] for row in drawn) < 250


def test_ranks_agree_on_a_number_that_splits_into_equal_parts() -> None:
    assert [padded_count(most, 4) for most in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 12]


Tokens2 = st.lists(st.floats(-1, 1), min_size=1, max_size=4)
Batches = st.lists(st.lists(Tokens2, min_size=1, max_size=3), min_size=1, max_size=4)


def reduced(terms: Sequence[tuple[float, Sequence[float]]], loss_type: str, padding: int, tokens: int) -> float:
    """What TRL makes of weighted rows: (weight, per-token terms), and empty rows."""
    count = len(terms) + padding
    if loss_type in OVER_TOKENS:
        return math.fsum(weight * math.fsum(row) for weight, row in terms) / tokens
    if loss_type in OVER_ROWS:
        return math.fsum(weight * math.fsum(row) for weight, row in terms) / count
    return math.fsum(weight * math.fsum(row) / len(row) for weight, row in terms) / count


@given(Batches, st.integers(0, 3), st.sampled_from(sorted(OVER_TOKENS | OVER_ROWS | OVER_ROW_MEANS)))
def test_rows_count_as_if_their_episode_stood_in_one(
    batch: list[list[list[float]]], padding: int, loss_type: str
) -> None:
    tokens = sum(len(row) for episode in batch for row in episode)
    wanted = reduced([(1.0, [x for row in episode for x in row]) for episode in batch], loss_type, 0, tokens)
    total = sum(map(len, batch)) + padding
    made = [
        (LossRow([0], [0] * len(row), [1] * len(row), [0.0] * len(row), episode_tokens=sum(map(len, episode))), row)
        for episode in batch
        for row in episode
    ]
    every = [
        (row_weight(loss_row, loss_type=loss_type, rows=total, episodes=len(batch)), row) for loss_row, row in made
    ]
    assert reduced(every, loss_type, padding, tokens) == pytest.approx(wanted, abs=1e-9)
    # The expectation over independent draws, one per episode, is the mean over the draws of each.
    drawn = []
    for episode in batch:
        for row in episode:
            one = LossRow(
                [0], [0], [1] * len(row), [0.0], drawn_from=len(episode), episode_tokens=sum(map(len, episode))
            )
            weight = row_weight(one, loss_type=loss_type, rows=len(batch), episodes=len(batch))
            share = reduced([(weight, row)], loss_type, len(batch) - 1, tokens)
            drawn.append(share / len(episode))
    assert math.fsum(drawn) == pytest.approx(wanted, abs=1e-9)


# A toy whose gradient is known: two decisions of a softmax policy, the second only after the first was 1.


def toy_gradient(logits: Sequence[float], how: str) -> list[float]:
    """Expected gradient estimate over all episodes (and draws), as rows and weights make it."""
    shares = [[1 - p, p] for p in (1 / (1 + math.exp(-value)) for value in logits)]
    total = [0.0, 0.0]
    for actions in ((0,), (1, 0), (1, 1)):
        chance = math.prod(shares[turn][action] for turn, action in enumerate(actions))
        reward = REWARDS[actions]
        logs = [context([turn], [action]) for turn, action in enumerate(actions)]
        rows = rows_of(episode_of(*logs), filler=0)
        choices = [rows] if how == "every" else [[replace(row, drawn_from=len(rows))] for row in rows]
        for chosen in choices:
            for row in chosen:
                turn, action = row.prompt_ids[0], row.completion_ids[0]
                weight = row_weight(row, loss_type="dapo", rows=len(chosen), episodes=1)
                # d log pi / d logit of a two-way softmax.
                slope = action - shares[turn][1]
                total[turn] += chance / len(choices) * reward * weight * slope
    return total


REWARDS = {(0,): 0.5, (1, 0): -1.0, (1, 1): 2.0}


@pytest.mark.parametrize("how", ["every", "one"])
@pytest.mark.parametrize("logits", [(0.0, 0.0), (0.7, -1.3), (-2.0, 1.0)])
def test_estimators_have_the_gradient_of_the_expected_reward(how: str, logits: tuple[float, float]) -> None:
    p, q = (1 / (1 + math.exp(-value)) for value in logits)
    # J = (1 - p) r0 + p ((1 - q) r10 + q r11), differentiated by hand.
    second = (1 - q) * REWARDS[1, 0] + q * REWARDS[1, 1]
    known = [p * (1 - p) * (second - REWARDS[0,]), p * q * (1 - q) * (REWARDS[1, 1] - REWARDS[1, 0])]
    assert toy_gradient(logits, how) == pytest.approx(known, abs=1e-12)


# The real trainer.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def one_generation(trainer: Any) -> dict[str, Any]:
    """Sample one generation; returns TRL's tensors, and keeps `trainer.played`."""
    inner = trainer._rows_of

    def noting(episodes: Any, dropped: Any) -> Any:
        trainer.played = list(episodes)
        return inner(episodes, dropped)

    trainer._rows_of = noting
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    batch = next(iter(trainer.get_train_dataloader()))
    found: dict[str, Any] = trainer._generate_and_score_completions(batch)
    return found


def gradient(trainer: Any, inputs: dict[str, Any]) -> Any:
    import torch

    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, inputs).backward()
    return torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()]).clone()


def wanted_gradient(trainer: Any, advantages: Sequence[float], loss_type: str) -> Any:
    """-(sum over episodes of A times the gradient of log pi of all its tokens), by the episodes' own token logs."""
    import torch

    trainer.model.zero_grad()
    terms, tokens = [], 0
    for episode, advantage in zip(trainer.played, advantages, strict=True):
        count = sum(log.count("sampled") for log in episode.logs)
        tokens += count
        for log in episode.logs:
            ids = torch.tensor([log.ids])
            logs = torch.log_softmax(trainer.model(ids).logits[0, :-1].float(), dim=-1)
            picked = logs.gather(-1, ids[0, 1:, None])[:, 0]
            value = advantage * picked[torch.tensor(log.mask[1:]).bool()].sum()
            terms.append(value / count if loss_type == "grpo" else value)
    scale = {"dapo": tokens, "grpo": len(trainer.played), "dr_grpo": len(trainer.played) * 32}[loss_type]
    (-torch.stack(terms).sum() / scale).backward()
    return torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()]).clone()


def credits_of(trainer: Any) -> list[float]:
    import torch

    rewards = torch.tensor([episode.score.reward for episode in trainer.played]).view(-1, GROUP)
    found: list[float] = ((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten().tolist()
    return found


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_every_decision_gives_the_gradient_of_its_episode(tiny: str, tmp_path: Path, loss_type: str) -> None:
    trainer = turns_trainer(tiny, tmp_path, loss_type=loss_type, source="3,2", per_device_train_batch_size=8)
    inputs = one_generation(trainer)
    assert len(inputs["advantages"]) == 5 * GROUP
    found = gradient(trainer, inputs)
    wanted = wanted_gradient(trainer, credits_of(trainer), loss_type)
    assert wanted.norm() > 1e-3
    assert (found - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_drawn_decisions_average_to_the_gradient_of_all(
    tiny: str, tmp_path: Path, loss_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes have 1 and 3 decisions: over 3 draws each decision of each episode comes equally often."""
    import torch

    from train import trainer as module

    found = []
    for turn in range(3):
        monkeypatch.setattr(
            module, "draw", lambda rows, seed, turn=turn: replace(rows[turn % len(rows)], drawn_from=len(rows))
        )
        trainer = turns_trainer(tiny, tmp_path, decisions="one", loss_type=loss_type, source="3,1")
        inputs = one_generation(trainer)
        assert len(inputs["advantages"]) == 2 * GROUP
        found.append(gradient(trainer, inputs))
    wanted = wanted_gradient(trainer, credits_of(trainer), loss_type)
    assert (torch.stack(found).mean(0) - wanted).norm() < 1e-3 * wanted.norm()
    assert (found[0] - wanted).norm() > 1e-2 * wanted.norm()


def test_append_only_episodes_are_one_growing_row(tiny: str, tmp_path: Path) -> None:
    trainer = turns_trainer(tiny, tmp_path, decisions="append", source="3,3", max_completion_length=400)
    inputs = one_generation(trainer)
    assert len(inputs["advantages"]) == 2 * GROUP
    for episode in trainer.played:
        (log,) = episode.logs
        assert [span.source for span in log.spans] == [
            "prompt",
            "sampled",
            "injected",
            "sampled",
            "injected",
            "sampled",
        ]
        text = trainer._tokenizer.decode(log.ids)
        assert text.count("Say words.") == 1
        assert text.count("heard") == 2


def test_rows_are_cut_into_equal_steps_and_old_logprobs_follow_them(tiny: str, tmp_path: Path) -> None:
    """Two optimiser steps per generation: TRL needs log-probabilities from before the first, of all rows."""
    trainer = turns_trainer(
        tiny, tmp_path, source="3,2,3", steps_per_generation=2, per_device_train_batch_size=4, beta=0.1
    )
    inputs = one_generation(trainer)
    real = sum(len(episode.logs) for episode in trainer.played)
    assert len(inputs["advantages"]) == padded_count(real, 2)
    mask = inputs["tool_mask"] * inputs["completion_mask"]
    for name in ("old_per_token_logps", "ref_per_token_logps"):
        gap = (inputs[name] - inputs["sampling_per_token_logps"]) * mask
        assert gap.abs().max() < 1e-3
    assert inputs["num_items_in_batch"] == mask.sum()
    trainer.train()
    assert all(entry["grad_norm"] > 1e-4 for entry in steps(trainer))
    assert steps(trainer)[0]["episode/rows"] == pytest.approx(real / (2 * GROUP))


@pytest.mark.parametrize(
    ("mode", "low", "high", "wanted"),
    [
        ("token_truncate", None, 2.0, [[2.0, 0.5, 1.0], [1.0, 1.0, 1.0]]),
        ("token_truncate", 0.75, 2.0, [[2.0, 0.75, 1.0], [1.0, 1.0, 1.0]]),
        ("token_mask", None, 2.0, [[0.0, 0.5, 1.0], [1.0, 1.0, 1.0]]),
        ("token_mask", 0.75, None, [[4.0, 0.0, 1.0], [1.0, 1.0, 1.0]]),
        ("sequence_truncate", None, 1.5, [[1.5], [1.0]]),
        ("sequence_mask", None, 1.5, [[0.0], [1.0]]),
    ],
)
def test_ratios_to_vllm_are_bounded_as_the_mode_says(
    mode: str, low: float | None, high: float | None, wanted: list[list[float]]
) -> None:
    """Ratios 4, 1/2 and a token that is not trained on; then a row without any."""
    import torch

    from train.row_trainer import RowTrainer

    args = SimpleNamespace(
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=low,
        vllm_importance_sampling_clip_max=high,
    )
    rows = {
        "old_per_token_logps": torch.tensor([[math.log(4), math.log(0.5), 9.0], [1.0, 2.0, 3.0]]),
        "sampling_per_token_logps": torch.zeros(2, 3),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "tool_mask": torch.tensor([[1, 1, 0], [0, 0, 1]]),
    }
    trainer: Any = SimpleNamespace(args=args)
    assert RowTrainer._correction(trainer, rows).tolist() == [pytest.approx(row) for row in wanted]


def test_decisions_of_one_context_are_refused() -> None:
    from agl.errors import UserError
    from train.options import EpisodeArguments
    from train.setting import setting

    with pytest.raises(UserError, match="under the dialect tags an episode has one context"):
        setting(EpisodeArguments(decisions="one"))


def test_combinations_are_all_known() -> None:
    for loss_type, rows in itertools.product(OVER_TOKENS | OVER_ROWS | OVER_ROW_MEANS, (1, 2)):
        row = LossRow([1], [2], [1], [0.0], episode_tokens=1)
        assert row_weight(row, loss_type=loss_type, rows=rows, episodes=1) > 0
    with pytest.raises(ValueError, match="expected a loss type"):
        row_weight(row, loss_type="ppo", rows=1, episodes=1)
