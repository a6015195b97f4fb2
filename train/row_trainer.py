"""RowTrainer: GRPOTrainer whose episodes may be several rows of the loss, credited row by row or token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import pad, use_adapter

from train.loss_rows import LossRow, padded_count, row_weight


class RowTrainer(GRPOTrainer):
    """TRL makes one row of each episode; `_with_rows` puts all of `_rows` in their place.

    Every rank brings equally many rows to a step, empty ones where it has fewer: they pass through the same forward and
    backward pass with a mask of zeros, so no collective call of a sharded model goes unanswered.
    """

    args: Any
    model: Any
    pad_to_multiple_of: Any

    _rows: list[list[LossRow]]
    """Of each episode of the running generation on this rank."""
    _logps: torch.Tensor | None = None

    def _credits(self, advantages: list[float]) -> list[list[float]]:
        """Advantage of each row: one number, or one per completion token.

        Args:
            advantages: of the episodes of this rank.
        """
        return [[value] for value, rows in zip(advantages, self._rows, strict=True) for _ in rows]

    def _with_rows(self, scored: dict[str, Any]) -> dict[str, Any]:
        """TRL's output with all rows in place of one per episode, and what each of their tokens is credited with."""
        counts = torch.tensor(
            [
                sum(map(len, self._rows)),
                max(map(len, self._rows)),
                sum(row.episode_tokens for rows in self._rows for row in rows[:1]),
            ],
            device=self.accelerator.device,
        )
        gathered = self.accelerator.gather(counts).view(-1, 3)
        several = int(gathered[:, 1].max()) > 1
        episodes = len(self._rows) * self.accelerator.num_processes
        self._record({"episode/rows": gathered[:, 0].sum().item() / episodes})
        rows = [row for episode in self._rows for row in episode]
        total = len(rows)
        if several:
            total = padded_count(int(gathered[:, 0].max()), self.args.steps_per_generation)
            eos = self.eos_token_ids[0]
            rows += [LossRow([eos], [eos], [0], [0.0])] * (total - len(rows))
        own = self._credits(scored["advantages"].tolist())
        own += [[0.0]] * (total - len(own))
        weights = [row_weight(row, loss_type=self.loss_type, rows=total, episodes=len(self._rows)) for row in rows]
        credited = [[weight * value for value in values] for weight, values in zip(weights, own, strict=True)]
        out = self._tensors(scored, rows) if several else dict(scored)
        if all(len(values) == 1 for values in credited):
            out["advantages"] = torch.tensor([values[0] for values in credited], device=self.accelerator.device)
        else:
            # Where a rank has one number per row and others one per token, each shape is what its own loss reads.
            width = out["completion_ids"].shape[1]
            wide = [
                values * len(row.mask) if len(values) == 1 else values
                for values, row in zip(credited, rows, strict=True)
            ]
            out["advantages"] = torch.tensor(
                [values + [0.0] * (width - len(values)) for values in wide], device=self.accelerator.device
            )
        out["num_items_in_batch"] = gathered[:, 2].sum()
        return out

    def _tensors(self, scored: Mapping[str, Any], rows: Sequence[LossRow]) -> dict[str, Any]:
        """The rows as TRL lays them out, with the log-probabilities that it would have computed for them."""
        device, blank = self.accelerator.device, self._tokenizer.pad_token_id

        def stack(columns: Sequence[Sequence[Any]], value: int, side: str) -> torch.Tensor:
            made: torch.Tensor = pad(
                [torch.tensor(column) for column in columns],
                padding_value=value,
                padding_side=side,
                pad_to_multiple_of=self.pad_to_multiple_of,
            )
            return made.to(device)

        out: dict[str, Any] = {
            "prompt_ids": stack([row.prompt_ids for row in rows], blank, "left"),
            "prompt_mask": stack([[1] * len(row.prompt_ids) for row in rows], 0, "left"),
            "completion_ids": stack([row.completion_ids for row in rows], blank, "right"),
            "completion_mask": stack([[1] * len(row.mask) for row in rows], 0, "right"),
            "tool_mask": stack([row.mask for row in rows], 1, "right"),
            "sampling_per_token_logps": stack([row.logprobs for row in rows], 0, "right"),
        }
        wanted = [name for name in ("old_per_token_logps", "ref_per_token_logps") if name in scored]
        ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
        seen = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
        for name in wanted:
            model, chosen = self._model_for(name)
            with torch.no_grad(), chosen:
                out[name], _, _ = self._get_per_token_logps_and_entropies(
                    model, ids, seen, out["completion_ids"].shape[1], batch_size=self.args.per_device_train_batch_size
                )
        if "importance_sampling_ratio" in scored:
            out["importance_sampling_ratio"] = self._correction(out)
        return out

    def _correction(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """TRL's importance ratios between trainer and vLLM, (rows, tokens), or (rows, 1) for the sequence modes."""
        gap = rows["old_per_token_logps"] - rows["sampling_per_token_logps"]
        gap = torch.nan_to_num(gap * rows["completion_mask"] * rows["tool_mask"], nan=0.0)
        level, _, bound = self.args.vllm_importance_sampling_mode.partition("_")
        ratios = torch.exp(gap.sum(-1, keepdim=True) if level == "sequence" else gap)
        low, high = self.args.vllm_importance_sampling_clip_min, self.args.vllm_importance_sampling_clip_max
        if bound == "truncate":
            return torch.clamp(ratios, low, high)
        outside = (ratios < (-torch.inf if low is None else low)) | (ratios > (torch.inf if high is None else high))
        return ratios.masked_fill(outside, 0.0)

    def _model_for(self, name: str) -> tuple[Any, AbstractContextManager[Any]]:
        """The model behind a column of log-probabilities, and the adapter it needs, as TRL chooses them."""
        if name == "old_per_token_logps":
            return self.model, nullcontext()
        if self.ref_model is not None:
            return self.ref_model, nullcontext()
        inner = self.accelerator.unwrap_model(self.model)
        return self.model, use_adapter(inner, adapter_name="ref" if "ref" in inner.peft_config else None)

    def _record(self, metrics: Mapping[str, float]) -> None:
        mode = "train" if self.model.training else "eval"
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._logps = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss; beside it, how far sampler and trainer disagree about the sampled tokens.

        Before the first step on a generation the two are one model, so a gap beyond rounding is a fault in ids, mask
        or weights; on later steps it shows how far the weights have moved.
        """
        loss: torch.Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        if self._logps is not None and "sampling_per_token_logps" in inputs:
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            gap = (self._logps - inputs["sampling_per_token_logps"]).abs() * mask
            sums = torch.stack([gap.sum(), mask.sum().to(gap.dtype), gap.max()])
            gathered = self.accelerator.gather(sums).view(-1, 3)
            total, count = gathered[:, 0].sum().item(), gathered[:, 1].sum().item()
            if count:
                self._record({"sampling/gap_mean": total / count, "sampling/gap_max": gathered[:, 2].max().item()})
        return loss
