"""ARPO: where branches begin, what they inherit, and what the tokens they share are credited with."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl")

from agl.core import Answer, Score
from agl.dialects import dialect_for
from agl.errors import UserError
from agl.messages import Prompt
from agl.policies.chat_template import ChatTemplate
from agl.policies.policy import Play, Policy, Sampling
from agl.policies.token_dialogue import Generated, LocalEncoder, Request, TokenDialogue
from agl.rollout import Job
from agl.tokens import TokenLog
from tests.tiny_model import byte_tokenizer, save_tiny
from tests.tiny_trainer import quiet_config
from tests.toy_env import Move, ToyEnv
from tests.word_env import WordEnv, Words
from train.branching import Tree, Window, allocate, shorten, top_entropy, tree_advantages
from train.options import Branching, EpisodeArguments
from train.rollouts import Played, Player
from train.setting import Setting

GROUP = 8


# Credit.


def test_hard_advantages_of_a_tree_worked_by_hand() -> None:
    """Two roots of 6 and 4 tokens; 2 leaves root 0 after 3 tokens, 3 leaves it after 5, 4 leaves branch 2 after 4.

    Tokens 0-2 of root 0 are shared by 0, 2, 3, 4; tokens 3-4 by 0 and 3; token 3 of branch 2 by 2 and 4.
    """
    own = [1.0, -1.0, 0.5, -0.5, 2.0]
    found = tree_advantages(own, [None, None, (0, 3), (0, 5), (2, 4)], [6, 4, 5, 7, 6])
    trunk = (1.0 + 0.5 - 0.5 + 2.0) / 4
    fork = (1.0 - 0.5) / 2
    twig = (0.5 + 2.0) / 2
    assert found == [
        [trunk] * 3 + [fork] * 2 + [1.0],
        [-1.0] * 4,
        [trunk] * 3 + [twig, 0.5],
        [trunk] * 3 + [fork] * 2 + [-0.5] * 2,
        [trunk] * 3 + [twig] + [2.0] * 2,
    ]


def test_what_abstains_counts_in_no_mean() -> None:
    found = tree_advantages([1.0, None, 3.0], [None, (0, 2), (0, 1)], [3, 4, 2])
    assert found == [[2.0, 1.0, 1.0], [2.0, 1.0, 0.0, 0.0], [2.0, 3.0]]
    assert tree_advantages([None, None], [None, (0, 1)], [2, 0]) == [[0.0, 0.0], [0.0]]


def test_credit_over_rows_adds_up_to_that_of_soft_advantages() -> None:
    """Summed over the rows that share it, a token is credited with the sum of their advantages, soft or hard."""
    rng = random.Random(0)
    for _ in range(30):
        lineage: list[tuple[int, int] | None] = [None]
        lengths = [rng.randint(2, 9)]
        for number in range(1, 6):
            parent = rng.randrange(number)
            shared = rng.randint(1, lengths[parent])
            lineage.append((parent, shared))
            lengths.append(shared + rng.randint(1, 5))
        own = [rng.uniform(-2, 2) for _ in lineage]
        hard = tree_advantages(own, lineage, lengths)
        wanted = math.fsum(value * length for value, length in zip(own, lengths, strict=True))
        assert math.fsum(map(math.fsum, hard)) == pytest.approx(wanted)


# Entropy and budget.


def test_entropy_counts_the_rest_as_one_outcome_and_divides_by_ln_v() -> None:
    import torch

    shares = torch.tensor([0.4, 0.3, 0.2, 0.05, 0.05])
    found = top_entropy(shares.log()[None], 2)
    wanted = -(0.4 * math.log(0.4) + 0.3 * math.log(0.3) + 0.3 * math.log(0.3)) / math.log(5)
    assert found.item() == pytest.approx(wanted, abs=1e-6)
    uniform = top_entropy(torch.zeros(2, 7), 7)
    assert uniform.tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
    certain = top_entropy(torch.tensor([[100.0, 0.0, 0.0]]), 3)
    assert certain.item() == pytest.approx(0.0, abs=1e-6)


def test_budget_goes_to_the_highest_rise() -> None:
    options = Branching()
    assert allocate([0.1, 0.3, -0.2, 0.2], 2, options) == [(1, 1), (3, 1)]
    assert allocate([0.1, 0.3, -0.2, 0.2], 9, options) == [(1, 1), (3, 1), (0, 1)]
    assert allocate([0.0, -0.1], 9, options) == []
    assert allocate([0.5, 0.4], 3, Branching(beam=3)) == [(0, 2), (1, 1)]
    assert allocate([0.5, 0.4], 3, Branching(tau=0.59)) == [(0, 1)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beam": 1}, "option arpo.beam: input should be greater than or equal to 2, got 1"),
        ({"beams": 2}, r"option arpo.beams: .*legal: initial, beam"),
        ({"places": ["middle"]}, "option arpo.places.0: input should be 'result' or 'think'"),
        ({"places": []}, "option arpo.places"),
        ({"tau": math.inf}, "option arpo.tau"),
        ("{initial: 2", "option arpo: expected a map"),
    ],
)
def test_wrong_options_are_refused(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        EpisodeArguments(arpo=given)


def test_options_read_from_a_flag() -> None:
    found = EpisodeArguments(arpo='{"initial": 4, "places": ["result"], "advantage": "hard"}').branching()
    assert found == Branching(initial=4, places=("result",), advantage="hard")
    assert EpisodeArguments(arpo="{}").branching() == Branching()
    assert EpisodeArguments().branching() is None


# Play.


class Author(Policy):
    """Writes tags by the random numbers of its dialogue, through real tokens; entropy is what a test says."""

    name = "author"

    def __init__(self, rise: float = 0.5) -> None:
        self.tokenizer = byte_tokenizer()
        self.template = ChatTemplate(self.tokenizer)
        self.rise = rise
        self.measured: list[tuple[TokenLog, Window]] = []

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> TokenDialogue:
        return TokenDialogue(
            prompt, LocalEncoder(self.template), self._write, Sampling(), model_context=None, seed=seed
        )

    async def _write(self, request: Request) -> Generated:
        rng = random.Random(request.seed)
        so_far = self.text_of(request.ids)
        thought = "" if so_far.endswith("</think>") else f"<think>{rng.randrange(1000)}</think>"
        if rng.random() < 0.3:
            text = f"{thought}<answer>\\boxed{{Elm {rng.randrange(1000)}}}</answer>"
        else:
            move = Move(direction=rng.choice(("back", "forward")), steps=rng.randint(1, 3))
            text = f"{thought}<move>{move.model_dump_json()}</move>"
        ids = self.template.encode(text)
        return Generated(ids, [-1.0] * len(ids), "stop", text)

    def text_of(self, ids: Sequence[int]) -> str:
        from agl.policies.decoding import decode

        return decode(self.tokenizer, ids)

    def mean_entropies(self, logs: Sequence[TokenLog], windows: Sequence[Window], top: int) -> list[float]:
        self.measured += [(logs[window.context].fork(), window) for window in windows]
        return [0.1] + [0.1 + self.rise for _ in windows[1:]]


def grow(policy: Author, *, tasks: int = 1, group: int = GROUP, seed: int = 0, **options: Any) -> Played:
    setting = Setting(ToyEnv, ToyEnv.task_type, ToyEnv.tasks("test"), dialect_for(ToyEnv()), 0)
    player = Player(setting, EpisodeArguments(arpo=options, episode_retries=0), policy, seed=seed)  # type: ignore[arg-type]
    jobs = [Job(setting.tasks[number], attempt) for number in range(tasks) for attempt in range(group)]
    return asyncio.run(player.play(jobs, group))


def trees_of(played: Played) -> list[Tree]:
    assert played.trees is not None
    return played.trees


def test_groups_are_full_and_in_order_and_no_episode_comes_twice() -> None:
    for seed in range(5):
        played = grow(Author(), tasks=3, seed=seed)
        assert len(played.episodes) == 3 * GROUP
        for number, tree in enumerate(trees_of(played)):
            members = played.episodes[number * GROUP : (number + 1) * GROUP]
            assert members == [member.episode for member in tree.members]
            assert [episode.attempt for episode in members] == list(range(GROUP))
            assert {episode.task["id"] for episode in members} == {f"test-{number:03d}"}
            assert len({tuple(episode.logs[0].ids) for episode in members}) == GROUP
            assert [member.parent for member in tree.members[:2]] == [None, None]


def test_a_branch_is_a_whole_episode() -> None:
    """Its actions, replayed in a fresh env, give its observations and its score; its text is what its tokens say."""
    policy = Author()
    seen = set()
    for seed in range(6):
        played = grow(policy, seed=seed)
        for member in trees_of(played)[0].members:
            episode = member.episode
            env = ToyEnv()
            env.reset(ToyEnv.task_type.model_validate(episode.task))
            for event in episode.events:
                action = {"move": Move, "answer": Answer}[event.action].read(event.arguments)
                assert env.step(action).observation.text == event.observation
            assert episode.score == env.score()
            (log,) = episode.logs
            spoken = "".join(turn.text for turn in episode.transcript if turn.source != "prompt")
            assert policy.text_of(log.row().completion_ids) == spoken
            assert episode.tokens.sampled == log.count("sampled")
            assert log.row().logprobs is not None
            seen.add(member.place)
    assert seen == {None, "result", "think"}


def test_a_branch_shares_its_parents_tokens_up_to_the_place_and_no_further() -> None:
    policy = Author()
    for seed in range(6):
        (tree,) = trees_of(grow(policy, seed=seed))
        for member in tree.members:
            if member.parent is None:
                continue
            parent = tree.members[member.parent].episode.logs[0].ids
            ids = member.episode.logs[0].ids
            assert ids[: member.shared] == parent[: member.shared]
            assert ids != parent
            text = policy.text_of(ids[: member.shared])
            assert text.endswith("</think>" if member.place == "think" else "</result>\n")


def test_places_can_be_chosen_and_branches_branch_again() -> None:
    for place in ("result", "think"):
        places = {
            member.place
            for seed in range(4)
            for member in trees_of(grow(Author(), seed=seed, places=[place]))[0].members
        }
        assert places <= {None, place}
        assert place in places
    parents = [member.parent for seed in range(6) for member in trees_of(grow(Author(), seed=seed))[0].members]
    assert any(parent is not None and parent >= 2 for parent in parents)


def test_without_a_rise_the_group_is_filled_with_fresh_roots() -> None:
    (tree,) = trees_of(grow(Author(rise=-0.1)))
    assert [member.parent for member in tree.members] == [None] * GROUP
    assert len({tuple(member.episode.logs[0].ids) for member in tree.members}) == GROUP


def test_entropy_is_read_after_the_result_and_at_the_end_of_thought() -> None:
    policy = Author()
    grow(policy, entropy_tokens=8)
    kinds = set()
    for log, window in policy.measured:
        text = policy.text_of(log.ids[window.start : window.stop])
        assert 0 < window.stop - window.start <= 8
        assert all(log.mask[window.start : window.stop])
        before = policy.text_of(log.ids[: window.start])
        kinds.add("end" if text.endswith("</think>") else "after" if before.endswith("</result>\n") else "first")
    assert kinds == {"end", "after", "first"}


def test_same_seed_gives_the_same_tree() -> None:
    def lines(seed: int) -> list[list[int]]:
        return [episode.logs[0].ids for episode in grow(Author(), tasks=2, seed=seed).episodes]

    assert lines(3) == lines(3)
    assert lines(3) != lines(4)


def test_metrics_say_where_branches_came_from() -> None:
    (tree,) = trees_of(grow(Author()))
    found = tree.metrics()
    assert found["branching/roots"] + found["branching/from_result"] + found["branching/from_think"] == GROUP
    assert found["branching/entropy_initial"] == pytest.approx(0.1)
    assert 0 < found["branching/prefix_share"] < 1
    tree.close()
    assert all(not member.open for member in tree.members)


def test_a_shortened_log_is_still_a_log() -> None:
    log = TokenLog()
    log.append("prompt", [1, 2])
    log.append("sampled", [3, 4], [-1.0, -2.0])
    log.append("injected", [5])
    shorten(log, 3)
    assert (log.ids, log.mask, log.logprobs) == ([1, 2, 3], [0, 0, 1], [None, None, -1.0])
    log.append("sampled", [9], [-3.0])
    assert log.row().completion_ids == [3, 9]


# Training.


class Letters(Words):
    """A word ends at any of many letters, which a model over bytes hits soon."""

    name: ClassVar[str] = "letters"

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple("etaoinshrdluETAOINSHRDLU0123456789., ")


class Bytes(WordEnv):
    """Every letter counts, so that no two episodes earn the same by chance."""

    def score(self) -> Score:
        earned = sum(map(ord, "".join(self._said))) % 101 / 101
        return Score(total=earned, reward=earned, parts={"letters": float(len("".join(self._said)))})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def trainer_of(model: str, output: Path, group: int, arpo: dict[str, Any], **options: Any) -> Any:
    import torch
    from transformers import AutoTokenizer

    from train.trainer import EpisodeTrainer

    torch.set_num_threads(1)
    return EpisodeTrainer(
        Setting(Bytes, WordEnv.task_type, WordEnv.tasks(), Letters(WordEnv.actions), 0),
        EpisodeArguments(environment="word", max_turn_tokens=40, arpo=arpo),
        model=model,
        args=quiet_config(
            output,
            per_device_train_batch_size=group,
            num_generations=group,
            max_completion_length=160,
            max_steps=2,
            learning_rate=1e-3,
            save_strategy="no",
            **options,
        ),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
@pytest.mark.parametrize("advantage", ["soft", "hard"])
def test_gradient_of_two_rollouts_that_share_a_prefix(
    tiny: str, tmp_path: Path, advantage: str, loss_type: str
) -> None:
    """In a group of two the advantages are a and -a; hard, the shared prefix gets their mean, which is 0."""
    import torch

    arpo = {"initial": 1, "tau": -9.0, "places": ["result"], "advantage": advantage}
    trainer = trainer_of(tiny, tmp_path, 2, arpo, loss_type=loss_type, seed=7)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    inputs = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    (tree,) = trainer._trees
    assert tree.lineage[0] is None
    assert tree.lineage[1] is not None
    shared = tree.lineage[1][1]
    trainer.compute_loss(trainer.model, inputs).backward()
    found = torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()]).clone()

    trainer.model.zero_grad()
    episodes = [member.episode for member in tree.members]
    rewards = torch.tensor([episode.score.reward for episode in episodes])
    assert rewards[0] != rewards[1]
    credits_ = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist()
    total = sum(log.count("sampled") for episode in episodes for log in episode.logs)
    terms = []
    for episode, credit in zip(episodes, credits_, strict=True):
        (log,) = episode.logs
        ids = torch.tensor([log.ids])
        logs = torch.log_softmax(trainer.model(ids).logits[0, :-1].float(), dim=-1)
        picked = logs.gather(-1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(log.mask).float()
        assert mask[:shared].sum() > 0
        if advantage == "hard":
            mask[:shared] = 0
        divisor = 2 * log.count("sampled") if loss_type == "grpo" else total
        terms.append(credit * (picked * mask[1:]).sum() / divisor)
    (-torch.stack(terms).sum()).backward()
    wanted = torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()])
    assert wanted.norm() > 1e-4
    assert (found - wanted).norm() < 1e-3 * wanted.norm()


def test_measured_entropy_is_that_of_the_distributions_sampled_from(tiny: str, tmp_path: Path) -> None:
    import torch

    trainer = trainer_of(tiny, tmp_path, 2, {})
    with trainer._sampler(1.0, 2) as policy:
        log = TokenLog()
        log.append("prompt", [5, 6, 7])
        log.append("sampled", [8, 9, 10, 11], [-1.0] * 4)
        (found,) = policy.mean_entropies([log], [Window(0, 4, 6)], 10)
        logits = trainer.model(torch.tensor([log.ids])).logits[0]
    shares = torch.softmax(logits[[3, 4]].double(), -1)
    top = shares.topk(10, -1).values
    rest = 1 - top.sum(-1)
    entropies = (-(top * top.log()).sum(-1) - rest * rest.log()) / math.log(shares.shape[-1])
    assert found == pytest.approx(entropies.mean().item(), abs=1e-5)


def test_training_logs_the_branches_and_moves_the_weights(tiny: str, tmp_path: Path) -> None:
    trainer = trainer_of(tiny, tmp_path, GROUP, {"advantage": "hard"})
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 2
    for entry in steps:
        assert entry["grad_norm"] > 1e-4
        assert entry["sampling/gap_max"] < 1e-3
        branches = entry["branching/from_result"] + entry["branching/from_think"]
        assert branches + entry["branching/roots"] == GROUP
        assert branches > 0
        assert 0 < entry["branching/prefix_share"] < 1
        assert {"branching/entropy_initial", "branching/entropy_result", "groups/distinct_first_calls"} <= entry.keys()
        assert {"episode/tool_error_rate", "parts/letters"} <= entry.keys()


def test_groups_that_ranks_share_are_refused_before_weights_load() -> None:
    from train.groups import batch_plan
    from train.plan import _check_groups

    arguments = EpisodeArguments(arpo={})
    _check_groups(arguments, batch_plan(prompts=9, group_size=4, ranks=2, per_rank=4))
    with pytest.raises(UserError, match=r"option arpo: expected whole groups on each rank.*got 2 rows per rank"):
        _check_groups(arguments, batch_plan(prompts=9, group_size=4, ranks=2, per_rank=2))
    with pytest.raises(UserError, match=r"option arpo.initial: expected at most num_generations 4, got 5"):
        _check_groups(EpisodeArguments(arpo={"initial": 5}), batch_plan(prompts=9, group_size=4, ranks=1, per_rank=4))
