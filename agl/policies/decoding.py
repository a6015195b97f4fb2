"""`generate`: the one sampling loop over a transformers model; evaluation and training share it.

It is written out here, not left to `model.generate`, for what that does not offer: log-probabilities of the sampled
tokens without keeping every step's logits, a budget and a random stream per row, rows that leave the batch when they
are done, and a shared prompt prefix that is computed once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from agl.policies.policy import Finish
from agl.policies.token_dialogue import Generated

if TYPE_CHECKING:
    import torch

_SHARED_PREFIX = 16
"""Tokens; a shorter common prefix is not worth a pass of its own."""


def generate(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Sequence[int]],
    *,
    stops: Sequence[str],
    max_tokens: Sequence[int] | int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seeds: Sequence[int] | None = None,
    gone: Sequence[Callable[[], bool]] | None = None,
    prefix: Prefix | None = None,
) -> list[Generated]:
    """Sample one continuation per row.

    A row ends at the token in which a stop string completes, at an end-of-sequence token, or at its budget. A row
    without room for one token in the model's context gets none, with finish `length`.

    Args:
        model: a causal language model of transformers, or a PEFT model around one.
        rows: token ids, of any lengths.
        max_tokens: most new tokens, for all rows or for each.
        temperature: 0 is greedy.
        top_p: the smallest set of tokens with at least this probability is kept.
        seeds: one per row; a row's random numbers do not depend on the rest of the batch. None: seed 0 everywhere.
        gone: per row, a function that turns true when nobody wants the row any more.
        prefix: what an earlier call with the same weights left behind; updated.

    Returns:
        In the order of `rows`. Log-probabilities (natural) are those of the distribution that was sampled from, after
        temperature and top-p; of greedy rows those of the model at temperature 1.
    """
    import torch

    budgets = [max_tokens] * len(rows) if isinstance(max_tokens, int) else list(max_tokens)
    limit = context_length(model)
    if limit is not None:
        budgets = [min(budget, limit - len(row)) for budget, row in zip(budgets, rows, strict=True)]
    ends = end_tokens(model, tokenizer)
    streams = [random.Random(seed) for seed in seeds or [0] * len(rows)]
    tail = max((len(stop.encode()) for stop in stops), default=0) + 8
    ids: list[list[int]] = [[] for _ in rows]
    logprobs: list[list[float]] = [[] for _ in rows]
    finishes: list[Finish] = ["length"] * len(rows)

    active = [index for index, budget in enumerate(budgets) if budget > 0]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            state = _Decoding(model, [list(rows[index]) for index in active], prefix) if active else None
            while active and state is not None:
                tokens, values = _choose(state.logits, temperature, top_p, [streams[index] for index in active])
                keep: list[int] = []
                for place, index in enumerate(active):
                    token = tokens[place]
                    ids[index].append(token)
                    logprobs[index].append(values[place])
                    if token in ends:
                        finishes[index] = "eos"
                    elif stops and _contains(decode(tokenizer, ids[index][-tail:]), stops):
                        finishes[index] = "stop"
                    elif len(ids[index]) < budgets[index] and not (gone and gone[index]()):
                        keep.append(place)
                active = [active[place] for place in keep]
                if active:
                    state.advance([tokens[place] for place in keep], keep)
    finally:
        model.train(was_training)
    return [
        Generated(
            ids[index],
            logprobs[index],
            finishes[index],
            spoken_text(tokenizer, row, ids[index], finishes[index], stops),
        )
        for index, row in enumerate(rows)
    ]


def choose(
    model: Any,
    tokenizer: Any,
    row: Sequence[int],
    choices: Sequence[str],
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    prefix: Prefix | None = None,
) -> Generated:
    """Continue `row` by one of the texts `choices`, picked by its likelihood under the model.

    At temperature 0 the likeliest in sum over its tokens (the first of equals), else a draw. The texts are compared
    whole, so they should be equally long. The log-probabilities are the model's own, of the tokens as they stand.
    """
    import torch

    rows = [tokenizer.encode(text, add_special_tokens=False) for text in choices]
    limit = context_length(model)
    if limit is not None and len(row) + max(map(len, rows)) > limit:
        return Generated([], [], "length", "")
    width = max(map(len, rows))
    padded = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in rows], device=model.device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            state = _Decoding(model, [list(row)], prefix)
            first, rest = state.logits[:, None].expand(len(rows), -1, -1), state.branches(padded)[:, :-1]
    finally:
        model.train(was_training)
    logs = torch.log_softmax(torch.cat([first, rest], dim=1).float(), dim=-1)
    values = logs.gather(-1, padded[..., None])[..., 0]
    within = torch.arange(width, device=model.device) < torch.tensor([[len(ids)] for ids in rows], device=model.device)
    totals = (values * within).sum(dim=1, keepdim=True).T
    (place,), _ = _choose(totals, temperature, top_p, [random.Random(seed)])
    return Generated(rows[place], values[place, : len(rows[place])].tolist(), "stop", choices[place])


class Prefix:
    """The key-value cache of the longest prompt prefix seen last, for models whose weights do not change.

    Episodes of one env share their instructions and worked examples, and a dialogue its earlier turns: the second
    call need not read them again.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.cache: Any = None


class _Decoding:
    """The key-value cache of the rows that are still being generated, and the logits of their next tokens."""

    def __init__(self, model: Any, rows: Sequence[list[int]], prefix: Prefix | None) -> None:
        import torch
        from transformers import DynamicCache

        self._model = model
        self._device = model.device
        self._takes = _forward_arguments(model)
        self._cache = DynamicCache(config=model.config)
        self._mask = torch.ones(1, 0, dtype=torch.long, device=self._device)
        # Padding between prefix and rows would shorten a sliding window and run through a recurrent state.
        plain = not (any(self._cache.is_sliding) or any(getattr(self._cache, "is_linear", ())))
        shared = _common_prefix(rows) if plain and (len(rows) > 1 or prefix is not None) else 0
        if shared >= _SHARED_PREFIX:
            self._read_prefix(list(rows[0][:shared]), prefix)
            self._cache.batch_repeat_interleave(len(rows))
        else:
            shared = 0
        self._mask = self._mask.repeat(len(rows), 1)
        width = max(len(row) for row in rows) - shared
        blanks = [width - (len(row) - shared) for row in rows]
        padded = [[0] * blank + list(row[shared:]) for blank, row in zip(blanks, rows, strict=True)]
        seen = [[0] * blank + [1] * (width - blank) for blank in blanks]
        self._mask = torch.cat([self._mask, torch.tensor(seen, device=self._device)], dim=1)
        self.logits = self._forward(torch.tensor(padded, device=self._device))

    def _read_prefix(self, ids: list[int], prefix: Prefix | None) -> None:
        import torch

        known = 0
        if prefix is not None and prefix.cache is not None:
            known = _common_prefix([[*prefix.ids, -1], [*ids, -2]])
            if known >= _SHARED_PREFIX:
                self._cache = deepcopy(prefix.cache)
                if known < len(prefix.ids):
                    self._cache.crop(known - len(prefix.ids))
            else:
                known = 0
        self._mask = torch.ones(1, len(ids), dtype=torch.long, device=self._device)
        if known < len(ids):
            self._forward(torch.tensor([ids[known:]], device=self._device))
        if prefix is not None and known < len(ids):
            prefix.ids, prefix.cache = ids, deepcopy(self._cache)

    def advance(self, tokens: Sequence[int], keep: Sequence[int]) -> None:
        """Append one token to each row in `keep`, drop the others."""
        import torch

        if len(keep) < self._mask.shape[0]:
            places = torch.tensor(keep, device=self._device)
            self._cache.batch_select_indices(places)
            self._mask = self._mask[places]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self.logits = self._forward(torch.tensor([[token] for token in tokens], device=self._device))

    def branches(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (branches x columns x vocabulary) behind each column of `ids`, each row of it after the only row."""
        self._cache.batch_repeat_interleave(len(ids))
        logits: torch.Tensor = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True).logits
        return logits.float()

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits after the last column of `ids` (rows x columns): rows x vocabulary, float32."""
        extra: dict[str, Any] = {}
        if "position_ids" in self._takes:
            extra["position_ids"] = (self._mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        if "logits_to_keep" in self._takes:
            extra["logits_to_keep"] = 1
        out = self._model(
            input_ids=ids, attention_mask=self._mask, past_key_values=self._cache, use_cache=True, **extra
        )
        logits: torch.Tensor = out.logits[:, -1].float()
        return logits


def _forward_arguments(model: Any) -> frozenset[str]:
    import inspect

    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return frozenset(inspect.signature(inner.forward).parameters)


def _common_prefix(rows: Sequence[list[int]]) -> int:
    """Length of the longest prefix of all rows that leaves each at least one token."""
    low, high = min(rows), max(rows)
    most = min(len(row) for row in rows) - 1
    return next((place for place in range(most) if low[place] != high[place]), most)


def _choose(
    logits: torch.Tensor, temperature: float, top_p: float, streams: Sequence[random.Random]
) -> tuple[list[int], list[float]]:
    """Pick a token per row of `logits` (rows x vocabulary), with its log-probability."""
    import torch

    if temperature <= 0:
        chosen = logits.argmax(dim=-1)
        logs = torch.log_softmax(logits, dim=-1)
    else:
        logits = logits / temperature
        if top_p < 1:
            ordered, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
            beyond = ordered.cumsum(dim=-1) - ordered >= top_p
            logits = logits.masked_fill(beyond.scatter(-1, order, beyond), float("-inf"))
        logs = torch.log_softmax(logits, dim=-1)
        # Inverse of the cumulative distribution: one uniform number per row, whatever else is in the batch.
        totals = logs.double().exp().cumsum(dim=-1)
        draws = torch.tensor([[stream.random()] for stream in streams], dtype=torch.float64, device=logits.device)
        chosen = torch.searchsorted(totals, draws * totals[:, -1:], right=True).clamp(max=logits.shape[-1] - 1)[:, 0]
    values = logs.gather(-1, chosen[:, None])[:, 0]
    return chosen.tolist(), values.tolist()


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of `ids`, special tokens included, nothing tidied."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def _contains(text: str, stops: Sequence[str]) -> bool:
    return any(stop in text for stop in stops)


def spoken_text(tokenizer: Any, before: Sequence[int], ids: Sequence[int], finish: Finish, stops: Sequence[str]) -> str:
    """What the policy said: without the token that ended its turn, and cut behind the first stop string."""
    spoken = list(ids[:-1] if finish == "eos" else ids)
    # Some tokenizers drop a leading blank unless they see the token before it.
    lead = list(before[-1:])
    head, whole = decode(tokenizer, lead), decode(tokenizer, [*lead, *spoken])
    text = whole[len(head) :] if whole.startswith(head) else decode(tokenizer, spoken)
    if finish == "stop":
        text = text[: min((text.find(stop) + len(stop) for stop in stops if stop in text), default=len(text))]
    return text


def context_length(model: Any) -> int | None:
    """Most tokens the model was built for; None when its configuration does not say."""
    length = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return int(length) if length else None


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a turn: the tokenizer's and those of the generation settings."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed: Iterable[int | None] = configured if isinstance(configured, list | tuple) else [configured]
    return frozenset(int(token) for token in [*listed, tokenizer.eos_token_id] if token is not None)
