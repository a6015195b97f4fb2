"""Policies that need no model: oracle, random, silent, an env's own players, and the replay of a recorded run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from agl.errors import InfraError
from agl.messages import Injection, Prompt
from agl.policies.policy import Dialogue, Finish, Play, Policy, Sample
from agl.trace import read_episodes

Line = tuple[str, Finish]


class ScriptedDialogue(Dialogue):
    """Says what `next_line` returns; what is injected does not matter to a script."""

    def __init__(self, next_line: Callable[[], Line], *, may_begin_inside_thinking: bool = False) -> None:
        self._next_line = next_line
        self.may_begin_inside_thinking = may_begin_inside_thinking

    async def sample(self, stops: Sequence[str]) -> Sample:
        text, finish = self._next_line()
        return Sample(text=text, finish=finish, tokens=0)

    def recall(self, sample: Sample) -> None:
        """Draws what the script drew then, so that later lines are those of an uninterrupted run."""
        self._next_line()

    def inject(self, injection: Injection) -> None:
        pass

    def fork(self) -> Dialogue:
        return ScriptedDialogue(self._next_line, may_begin_inside_thinking=self.may_begin_inside_thinking)


class Oracle(Policy):
    """Plays the env's own `oracle()`: the most that can be scored."""

    name = "oracle"

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        def next_line() -> Line:
            return play.dialect.write(play.env.oracle(), play.env.oracle_thought()), "stop"

        return ScriptedDialogue(next_line)


class Player(Policy):
    """Plays one of the env's own rules, see `Env.players`."""

    def __init__(self, player: str) -> None:
        self.name = player

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return ScriptedDialogue(lambda: (play.dialect.write_turn(play.env.player_actions(self.name)), "stop"))


class Random(Policy):
    """Plays the env's `random_action`: what luck scores."""

    name = "random"

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        rng = random.Random(seed)
        return ScriptedDialogue(lambda: (play.dialect.write(play.env.random_action(rng)), "stop"))


class Silent(Policy):
    """Says nothing: must score 0 everywhere."""

    name = "silent"

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return ScriptedDialogue(lambda: ("", "eos"))


class Replay(Policy):
    """Says again what a recorded run said for the same task and attempt."""

    name = "replay"

    def __init__(self, episodes: Path) -> None:
        """`episodes`: the `episodes.jsonl` of a run."""
        self._lines: dict[tuple[str, int], list[Line]] = {}
        self._unseen: set[tuple[str, int]] = set()
        """Episodes behind a chat template that nobody saw: those without a token record."""
        for episode in read_episodes(episodes):
            said = [turn for turn in episode.transcript if turn.source == "sampled"]
            self._lines[episode.key] = [(turn.text, turn.finish or "eos") for turn in said]
            if episode.tokens.prompt is None:
                self._unseen.add(episode.key)

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        key = (play.env.task.id, play.attempt)
        if key not in self._lines:
            raise InfraError(f"expected the recording to hold task {key[0]!r}, attempt {key[1]}; it does not")
        lines = iter(self._lines[key])
        return ScriptedDialogue(lambda: next(lines, ("", "eos")), may_begin_inside_thinking=key in self._unseen)
