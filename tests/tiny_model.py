"""A two-layer Qwen3 with random weights: small enough for many trainers in one test run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def byte_tokenizer() -> Any:
    """One token per byte, a chat template that never rewrites a turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    roles = [f"<|{role}|>" for role in ("system", "user", "assistant", "tool")]
    made: Any = PreTrainedTokenizerFast
    return made(
        tokenizer_object=inner,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=roles,
        chat_template=_TEMPLATE,
        padding_side="left",
    )


def save_tiny(
    folder: Path,
    tokenizer: Any = None,
    *,
    hidden: int = 32,
    context: int = 1024,
    seed: int = 0,
    tied: bool = False,
    head: int = 8,
) -> str:
    """Write the model and its tokenizer (bytes by default); returns the folder. vLLM wants heads of 32 or more."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = byte_tokenizer() if tokenizer is None else tokenizer
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    make: Any = Qwen3ForCausalLM
    make(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
