"""Episodes of the model in training, played by the same loop as evaluation: plain groups, or ARPO's branching ones."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from agl.core import Task
from agl.messages import Injection, Prompt
from agl.policies.chat_template import ChatTemplate
from agl.policies.decoding import context_length, decode
from agl.policies.hf import read_template
from agl.policies.policy import Play, Policy, Sampling
from agl.policies.token_dialogue import Generated, LocalEncoder, Request, TokenDialogue
from agl.rollout import Job, Limits, rollout_with_retries, rollouts
from agl.tokens import TokenLog
from agl.trace import Episode
from train.blocking_calls import blocking_calls_end
from train.branching import Branch, Member, Point, Tree, Window, spliced, top_entropy
from train.options import Branching, EpisodeArguments
from train.setting import Setting


class Sampler(Protocol):
    """What runs requests in the weights in training: a policy of agl.policies that sees tokens."""

    async def generate(self, request: Request) -> Generated: ...

    async def aclose(self) -> None: ...


class TrainerPolicy(Policy):
    """The model in training, as `agl.rollout` sees it. Each context has `response_tokens` after its prompt.

    Args:
        sampler: runs the requests; closed with this policy.
        model: the weights, for entropies alone.
        append: turn each fresh prompt into a further turn of one growing context.
    """

    name = "in-training"

    def __init__(
        self, sampler: Sampler, model: Any, tokenizer: Any, sampling: Sampling, *, response_tokens: int,
        chat_template: str | None, append: bool = False,
    ) -> None:  # fmt: skip
        self._sampler = sampler
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.template = ChatTemplate(tokenizer, read_template(chat_template, tokenizer))
        self.response_tokens = response_tokens
        self.append = append

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> TokenDialogue:
        used = len(self.template.first(prompt.messages, prompt.tools))
        return (AppendOnly if self.append else TokenDialogue)(
            prompt,
            LocalEncoder(self.template),
            self._sampler.generate,
            replace(self.sampling, context_tokens=used + self.response_tokens),
            model_context=context_length(self.model),
            seed=seed,
        )

    async def aclose(self) -> None:
        await self._sampler.aclose()

    def text_of(self, ids: Sequence[int]) -> str:
        return decode(self.tokenizer, ids)

    def mean_entropies(self, logs: Sequence[TokenLog], windows: Sequence[Window], top: int) -> list[float]:
        """Mean normalised entropy, over each window, of the distributions its tokens were drawn from."""
        found = [0.0] * len(windows)
        by_context: dict[int, list[int]] = defaultdict(list)
        for place, window in enumerate(windows):
            by_context[window.context].append(place)
        for context, places in by_context.items():
            wanted = sorted({token for place in places for token in range(windows[place].start, windows[place].stop)})
            values = dict(zip(wanted, self._entropies(logs[context].ids, wanted, top), strict=True))
            for place in places:
                window = windows[place]
                drawn = [values[token] for token in range(window.start, window.stop)]
                found[place] = sum(drawn) / max(1, len(drawn))
        return found

    def _entropies(self, ids: Sequence[int], wanted: Sequence[int], top: int) -> list[float]:
        if not wanted:
            return []
        device = self.model.device
        # The logits behind a token are those of the position before it.
        before = torch.tensor([token - 1 for token in wanted], device=device)
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                rows = torch.tensor([list(ids[: max(wanted)])], device=device)
                logits = self.model(input_ids=rows, logits_to_keep=before, use_cache=False).logits[0]
        finally:
            self.model.train(was_training)
        values: list[float] = top_entropy(logits / (self.sampling.temperature or 1.0), top).tolist()
        return values


class AppendOnly(TokenDialogue):
    """One growing context: a fresh prompt becomes the next user turn, without the system message seen already."""

    def inject(self, injection: Injection) -> None:
        if injection.kind == "fresh":
            messages = tuple(message for message in injection.messages if message.role != "system")
            injection = Injection(kind="turn", messages=messages)
        super().inject(injection)


@dataclass
class Played:
    """Episodes in the order of their jobs; of branching groups the trees, too, `None` for plain ones."""

    episodes: list[Episode]
    trees: list[Tree] | None = None


class Player:
    """Plays the jobs of one rank in one generation."""

    def __init__(self, setting: Setting, options: EpisodeArguments, policy: TrainerPolicy, *, seed: int) -> None:
        self._setting = setting
        self._options = options
        self._policy = policy
        self._seed = seed
        self._limits = Limits(options.max_turns, options.episode_deadline, options.episode_retries)

    async def play(self, jobs: Sequence[Job], group_size: int) -> Played:
        """One episode per job. With ARPO the jobs are whole groups, one after another."""
        if not jobs:
            return Played([])
        branching = self._options.branching()
        async with blocking_calls_end(self._options.call_deadline):
            if branching is None:
                return Played(await self._plain(jobs))
            tasks = [jobs[start].task for start in range(0, len(jobs), group_size)]
            trees = await self._branching(tasks, group_size, branching)
        return Played([member.episode for tree in trees for member in tree.members], trees)

    async def _plain(self, jobs: Sequence[Job]) -> list[Episode]:
        places = {(job.task.id, job.attempt): place for place, job in enumerate(jobs)}
        played: dict[int, Episode] = {}
        setting = self._setting
        async for episode in rollouts(
            setting.make_env,
            jobs,
            self._policy,
            dialect=setting.dialect,
            limits=self._limits,
            shots=setting.shots,
            seed=self._seed,
            concurrency=self._options.concurrency or len(jobs),
        ):
            played[places[episode.key]] = episode
        return [played[place] for place in range(len(jobs))]

    async def _branching(self, tasks: Sequence[Task], group_size: int, options: Branching) -> list[Tree]:
        trees = [Tree() for _ in tasks]
        most = self._options.concurrency or len(tasks) * group_size
        slots = asyncio.Semaphore(most)
        roots = min(options.initial, group_size)
        wave: list[tuple[int, int | None, Point | None]] = [
            (group, None, None) for group in range(len(tasks)) for _ in range(roots)
        ]
        while wave:
            ahead = [len(tree.members) for tree in trees]
            jobs = []
            for group, parent, point in wave:
                jobs.append((Job(tasks[group], ahead[group]), trees[group], parent, point))
                ahead[group] += 1
            found = await asyncio.gather(*(self._branch(*job, options, slots) for job in jobs))
            for (group, _, _), (member, branch) in zip(wave, found, strict=True):
                trees[group].add(
                    member,
                    branch.dialogue,
                    lambda logs, windows: self._policy.mean_entropies(logs, windows, options.top_tokens),
                )
            wave = []
            for group, tree in enumerate(trees):
                free = group_size - len(tree.members)
                chosen: list[tuple[int | None, Point | None]] = list(tree.choose(free, options)) if free else []
                if free and not chosen:
                    chosen = [(None, None)] * free
                wave.extend((group, parent, point) for parent, point in chosen)
        for tree in trees:
            tree.close()
        return trees

    async def _branch(
        self,
        job: Job,
        tree: Tree,
        parent: int | None,
        point: Point | None,
        options: Branching,
        slots: asyncio.Semaphore,
    ) -> tuple[Member, Branch]:
        setting = self._setting
        branch = Branch(self._policy, self._policy.text_of, options, point)
        used = 0 if point is None else point.samples
        async with slots:
            episode = await rollout_with_retries(
                setting.make_env,
                job,
                branch,
                dialect=setting.dialect,
                limits=replace(self._limits, max_turns=max(1, self._limits.max_turns - used)),
                shots=setting.shots,
                seed=self._seed,
            )
        if parent is None or point is None:
            return Member(episode), branch
        whole = spliced(tree.members[parent].episode, episode, point)
        return Member(whole, parent, point.tokens, point.place), branch
