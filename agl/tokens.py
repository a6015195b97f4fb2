"""TokenLog: the append-only record of who produced which token of one episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Source = Literal["prompt", "sampled", "injected"]


class Span(NamedTuple):
    """Tokens `[start, stop)` of a log came from `source`."""

    source: Source
    start: int
    stop: int


class Row(NamedTuple):
    """One training row. All completion fields have equal length by construction.

    `mask` is 1 exactly on tokens the policy sampled in this rollout; `logprobs` is None when the backend gave none.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None


@dataclass
class TokenLog:
    """Tokens are appended, never re-encoded, so each next prompt extends the last one exactly.

    The loss mask follows from provenance alone: not from roles, not from text patterns. A worked example written as
    an assistant turn is part of the prompt and is not trained on.
    """

    ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    """Log-probability of each sampled token under the sampling policy (natural log); None elsewhere."""

    def append(self, source: Source, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Append tokens.

        Raises:
            ValueError: log-probabilities for tokens that were not sampled, or a different number of them; a prompt
                after other tokens.
        """
        if logprobs is not None and (source != "sampled" or len(logprobs) != len(ids)):
            raise ValueError(
                f"expected {len(ids)} log-probabilities of sampled tokens, got {len(logprobs)} for {source}"
            )
        if source == "prompt" and any(span.source != "prompt" for span in self.spans):
            raise ValueError("a prompt can only stand at the start of a log")
        if not ids:
            return
        start = len(self.ids)
        self.ids.extend(ids)
        self.logprobs.extend(logprobs if logprobs is not None else [None] * len(ids))
        if self.spans and self.spans[-1].source == source:
            start = self.spans.pop().start
        self.spans.append(Span(source, start, len(self.ids)))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mask(self) -> list[int]:
        """1 where the policy sampled the token, else 0; as long as `ids`."""
        mask = [0] * len(self.ids)
        for source, start, stop in self.spans:
            if source == "sampled":
                mask[start:stop] = [1] * (stop - start)
        return mask

    def count(self, source: Source) -> int:
        """Number of tokens from `source`."""
        return sum(span.stop - span.start for span in self.spans if span.source == source)

    def row(self) -> Row:
        """Split into the prompt and everything after it."""
        cut = self.spans[0].stop if self.spans and self.spans[0].source == "prompt" else 0
        mask = self.mask[cut:]
        values = self.logprobs[cut:]
        known = all(value is not None for value, sampled in zip(values, mask, strict=True) if sampled)
        logprobs = [0.0 if value is None else value for value in values] if known else None
        return Row(self.ids[:cut], self.ids[cut:], mask, logprobs)

    def fork(self) -> TokenLog:
        """An independent copy that continues from here."""
        return TokenLog(list(self.ids), list(self.spans), list(self.logprobs))
