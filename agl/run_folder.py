"""A run folder: `config.json` says what was run, `episodes.jsonl` what happened, `summary.json` what came out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agl.errors import DataError, UserError
from agl.json_text import dumps

CONFIG = "config.json"
EPISODES = "episodes.jsonl"
SUMMARY = "summary.json"
TRAINING = "training.json"
"""The config of a training run, whose folder holds a model with a config.json of its own."""
DRAFTS = "drafts.jsonl"
"""What unfinished episodes have said, while a run whose episodes wait for each other is on its way."""


class RunFolder:
    """The place of one run for its writer."""

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool = False) -> None:
        """Make sure that the run that `config` defines may write to `path`; changes nothing there.

        Raises:
            UserError: the folder holds something and `resume` is off, or holds a run with another config.
        """
        self.path = path
        self.config = config
        self.episodes = path / EPISODES
        self.summary = path / SUMMARY
        self.drafts = path / DRAFTS
        self._resume = resume
        self._check()

    def _check(self) -> None:
        path, config = self.path, self.config
        if path.exists() and not path.is_dir():
            raise UserError(f"expected a run folder, got the file {path}; choose another --out")
        if not path.is_dir() or not any(path.iterdir()):
            return
        if not self._resume:
            raise UserError(
                f"expected an empty run folder, got {path}, which holds files; "
                "add --resume to continue that run, or choose another --out"
            )
        if not (path / CONFIG).exists():
            raise UserError(
                f"expected a run to resume in {path}, which has files but no {CONFIG}; choose another --out"
            )
        now = json.loads(dumps(config))
        found = difference(read_object(path / CONFIG), {field: now[field] for field in config})
        if found is not None:
            field, old, new = found
            raise UserError(
                f"expected the config of the run in {path}: its {field} is {dumps(old)}, now {dumps(new)}; "
                "resume with the same value, or choose another --out"
            )

    @contextmanager
    def created(self) -> Iterator[None]:
        """Make the folder, record the config unless it is there, and hold it as `locked` does.

        Raises:
            UserError: the folder cannot be made, or another run has begun there since this one was checked.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from None
        with self.locked():
            self._check()
            if not (self.path / CONFIG).exists():
                try:
                    write_atomic(self.path / CONFIG, dumps(self.config) + "\n")
                except OSError as error:
                    raise self._refused(error) from None
            yield

    def _refused(self, error: OSError) -> UserError:
        return UserError(f"expected a folder to write to, got {self.path}: {error.strerror}; choose another --out")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against a second writer; the lock dies with its process.

        Raises:
            UserError: another process writes to it.
        """
        try:
            import fcntl
        except ImportError:  # no such lock on Windows
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"expected no other writer in {self.path}, but another process is running there; "
                    "wait for it, or choose another --out"
                ) from None
            yield
        finally:
            os.close(handle)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run folder, such as `folder / SUMMARY`.

    Raises:
        DataError: the file is missing (as the summary of an unfinished run is) or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"expected {path.name} in the run folder {path.parent}, got none; check the path") from None
    except ValueError as error:
        raise DataError(f"expected JSON in {path}, got {error}; choose another run folder") from None
    if not isinstance(value, dict):
        raise DataError(f"expected a JSON object in {path}, got {type(value).__name__}; choose another run folder")
    return value


def write_atomic(path: Path, text: str) -> None:
    """Write `text` so that a reader, or a kill, sees the old file or the new one and nothing between."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def difference(old: Any, new: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """The first field (dotted) in which two JSON values differ, with both values; None when they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*new, *(key for key in old if key not in new)]:
            found = difference(old.get(key), new.get(key), f"{place}.{key}" if place else key)
            if found is not None:
                return found
        return None
    return None if old == new else (place, old, new)


def folder_name(text: str) -> str:
    """`text` (a policy such as `openai:MODEL@http://HOST/v1`) as the name of one folder."""
    return re.sub(r"[^\w.=-]+", "-", text).strip("-.")[:100] or "run"
