"""The order in which training meets its prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from agl.rollout import derived_seed


class PromptOrder:
    """Indices of prompts as GRPO's generations want them; a torch sampler.

    A generation takes `prompts_per_generation` prompts, each `repeats` times in a row, and comes `uses` times, once for
    each forward pass that it feeds. Prompts that do not fill a generation at the end of an epoch are dropped. The order
    of an epoch is a pure function of (seed, epoch): whoever asks for it again, after a crash say, gets the same.

    Args:
        epoch: tells which epoch begins, from 0.
    """

    def __init__(
        self,
        prompts: int,
        *,
        repeats: int,
        prompts_per_generation: int,
        uses: int,
        shuffled: bool,
        seed: int,
        epoch: Callable[[], int],
    ) -> None:
        self._prompts = prompts
        self._repeats = repeats
        self._per_generation = prompts_per_generation
        self._uses = uses
        self._shuffled = shuffled
        self._seed = seed
        self._epoch = epoch

    def __len__(self) -> int:
        whole = self._prompts - self._prompts % self._per_generation
        return whole * self._repeats * self._uses

    def __iter__(self) -> Iterator[int]:
        order = list(range(self._prompts))
        if self._shuffled:
            random.Random(derived_seed(self._seed, "prompts", self._epoch())).shuffle(order)
        for start in range(0, self._prompts - self._per_generation + 1, self._per_generation):
            for _ in range(self._uses):
                for index in order[start : start + self._per_generation]:
                    yield from [index] * self._repeats
