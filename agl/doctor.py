"""`agl doctor`: what is installed, what it can run on, and what to do about what is missing. Downloads nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import agl
from agl.errors import AglError, UserError
from agl.packages import extras, packages
from agl.policies.embedded import FOLDER, cache_folder, find_gguf
from agl.registry import ENVS, env_class, guarded_import

State = Literal["ok", "absent", "warning", "error"]
"""`absent` is optional and not there, `warning` is there and will not work as it is, `error` fails the command."""

_ROOMS = ("rewards", "envs", "eval", "train")
_LEAST_PYTHON = (3, 11)
_LEAST_DISK = 2e9
"""Bytes: the embedded model takes 0.54 GB when it is unpacked."""


@dataclass(frozen=True)
class Check:
    """One line of the report; `remedy` says what to do where something is."""

    name: str
    state: State
    found: str
    remedy: str = ""


def doctor(
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Also probe a model: smollm2, NAME or DIR (tokenizer and chat template; no weights load), or "
            "openai:MODEL@http://HOST:PORT/v1 (asks the server). Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Check the installation: packages, accelerators, environments, the embedded model, chat templates.

    Exits 0 when everything that the base install needs is there, and every --model can be used. Downloads nothing.

    Example: agl doctor

    Example: agl doctor --model Qwen/Qwen3-4B-Instruct-2507 --json
    """
    from agl.json_text import dumps

    found = list(examine(model or ()))
    faults = sum(check.state == "error" for check in found)
    if as_json:
        typer.echo(dumps({"ok": not faults, "checks": [asdict(check) for check in found]}))
    else:
        for check in found:
            remedy = f"; {check.remedy}" if check.remedy else ""
            typer.echo(f"{check.state:<8} {check.name:<14} {check.found}{remedy}")
        typer.echo("nothing is missing that the base install needs" if not faults else f"errors: {faults}")
    if faults:
        raise typer.Exit(1)


def examine(models: Sequence[str] = ()) -> Iterator[Check]:
    """Every check in the order of the report; one that breaks is a finding itself and ends no other."""
    for name, check in _CHECKS.items():
        yield from _guarded(name, check, "warning" if name in _OPTIONAL else "error")
    for model in models:
        yield from _guarded(f"model {model}", partial(_probe, model), "error")


def _guarded(name: str, check: Callable[[], Iterator[Check]], fault: State) -> Iterator[Check]:
    try:
        yield from check()
    except Exception as error:  # whatever is broken here is a finding
        said = " ".join(str(error).split())
        yield Check(name, fault, said if isinstance(error, AglError) else f"{type(error).__name__}: {said}")


def _python() -> Iterator[Check]:
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < _LEAST_PYTHON:
        least = ".".join(map(str, _LEAST_PYTHON))
        yield Check("python", "error", found, f"make a new environment with Python {least} or newer")
    else:
        yield Check("python", "ok", found)


def _own() -> Iterator[Check]:
    for room in _ROOMS:
        guarded_import(room)
    yield Check("agl", "ok", f"{agl.__version__}, {Path(agl.__file__).resolve().parent.parent}")


def _base() -> Iterator[Check]:
    try:
        wanted = [package for package in packages() if package.extra is None]
    except metadata.PackageNotFoundError:
        found = "agl is imported from a folder and not installed, so they are unknown"
        yield Check("packages", "warning", found, "pip install -e . in the checkout")
        return
    faulty = [package for package in wanted if not package.fits]
    for package in faulty:
        found = f"{package.name} {package.installed or 'is not installed'}, needed {package.versions}"
        yield Check("packages", "error", found, f"pip install '{package.name}{package.versions}'")
    if not faulty:
        yield Check("packages", "ok", f"all {len(wanted)} of the base install, in versions that fit")


def _extras() -> Iterator[Check]:
    told: set[str] = set()
    for extra, wanted in extras().items():
        if all(package.name in told for package in wanted):
            continue  # a bundle of the others
        remedy = f"pip install 'agl[{extra}]'"
        missing = [package.name for package in wanted if package.installed is None]
        wrong = [package for package in wanted if package.installed is not None and not package.fits]
        if wrong:
            found = ", ".join(f"{one.name} {one.installed}, needed {one.versions}" for one in wrong)
            yield Check(f"[{extra}]", "warning", found, remedy)
        elif missing:
            yield Check(f"[{extra}]", "absent", f"not installed: {', '.join(missing)}", remedy)
        else:
            new = [f"{one.name} {one.installed}" for one in wanted if one.name not in told]
            yield Check(f"[{extra}]", "ok", ", ".join(new))
        told |= {package.name for package in wanted}


def _machine() -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB of memory"
    threads = os.environ.get("OMP_NUM_THREADS")
    yield Check("machine", "ok", f"{cores} cores{memory}, OMP_NUM_THREADS {threads or 'not set'}")


def _accelerators() -> Iterator[Check]:
    if importlib.util.find_spec("torch") is None:
        yield Check("accelerators", "absent", "unknown without torch", "pip install 'agl[local]'")
        return
    try:
        import torch
    except Exception as error:  # what a broken build raises is its own choice
        said = " ".join(str(error).split())
        yield Check("accelerators", "warning", f"torch cannot be loaded: {said}", "reinstall torch")
        return
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    yield Check("torch", "ok", f"{torch.__version__}, built with {build}")
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        bfloat = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        found = f"{device.name}, {device.total_memory / 2**30:.0f} GiB, {bfloat}"
        yield Check(f"cuda:{index}", "ok", found)
    if torch.cuda.device_count():
        return
    if shutil.which("nvidia-smi") is not None:
        remedy = "install a torch for your CUDA, see pytorch.org" if torch.version.cuda is None else "update the driver"
        yield Check("accelerators", "warning", "there is a GPU that torch cannot use", remedy)
    elif torch.backends.mps.is_available():
        yield Check("accelerators", "ok", "mps; choose it with --set policy_options.device=mps")
    else:
        yield Check("accelerators", "ok", "none; models run on the CPU")


def _environments() -> Iterator[Check]:
    for name in sorted(ENVS):
        yield from _guarded(f"env {name}", partial(_environment, name), "error")


def _environment(name: str) -> Iterator[Check]:
    players = ", ".join(env_class(name).players)
    yield Check(f"env {name}", "ok", f"loads; players: {players or 'none'}")


def _episode() -> Iterator[Check]:
    """One question of GRIT with the solvers, from task to score."""
    from agl.policies.scripted import Oracle
    from agl.rollout import rollout

    env = env_class("grit")
    episode = asyncio.run(rollout(env(), env.tasks("mini", seed=0, limit=1)[0], Oracle()))
    if episode.score is None or episode.score.total != 1.0:
        score = episode.score.total if episode.score else episode.outcome.error
        yield Check("episode", "error", f"the oracle of grit scored {score} instead of 1", "reinstall agl")
        return
    yield Check("episode", "ok", f"the oracle of grit scored 1 in {episode.seconds['total']:.2f} s")


def _embedded() -> Iterator[Check]:
    runs = importlib.util.find_spec("transformers") is not None
    try:
        yield Check("smollm2", "ok", _probed("smollm2") if runs else str(_unpacked() or find_gguf()))
    except UserError as error:
        yield Check("smollm2", "absent" if _unpacked() is None else "warning", str(error))


def _encoder() -> Iterator[Check]:
    from agl.graphs.embeddings import minilm_folder

    try:
        yield Check("minilm", "ok", f"{minilm_folder()}, for retrieval by meaning")
    except UserError as error:
        yield Check("minilm", "absent", str(error))


def _unpacked() -> Path | None:
    folder = cache_folder() / "models" / FOLDER
    return folder if folder.is_dir() else None


def _folders() -> Iterator[Check]:
    cache = cache_folder()
    yield _writable("cache", cache, "set AGL_CACHE to a folder that can", "error" if _unpacked() is None else "warning")
    yield _writable("runs", Path("runs"), "start in a folder that can, or give --out", "warning")


def _writable(name: str, folder: Path, remedy: str, fault: State) -> Check:
    """Whether a file can be made where `folder` is or would be, and how much room there is. Leaves nothing."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Check(name, fault, f"{folder.absolute()} cannot be written to ({error.strerror})", remedy)
    free = shutil.disk_usage(there).free
    found = f"{folder.absolute()}, {free / 1e9:.0f} GB free"
    if free < _LEAST_DISK:
        return Check(name, "warning", found, "make room, or choose a folder on another disk")
    return Check(name, "ok", found)


def _settings() -> Iterator[Check]:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    key = "set" if os.environ.get("OPENAI_API_KEY") else "not set"
    hub = "off: HF_HUB_OFFLINE, so only models that are here load" if offline else "on"
    yield Check("settings", "ok", f"model hub {hub}; OPENAI_API_KEY {key}")


_CHECKS: dict[str, Callable[[], Iterator[Check]]] = {
    "python": _python,
    "agl": _own,
    "packages": _base,
    "extras": _extras,
    "machine": _machine,
    "accelerators": _accelerators,
    "environments": _environments,
    "episode": _episode,
    "smollm2": _embedded,
    "minilm": _encoder,
    "folders": _folders,
    "settings": _settings,
}
"""In the order of the report."""

_OPTIONAL = ("extras", "accelerators", "smollm2", "minilm", "folders")
"""Checks of what the base install can do without."""


def _probe(model: str) -> Iterator[Check]:
    """Whether `model`, written as after `--policy` or without its `hf:`, can be used."""
    name = model.removeprefix("hf:").removeprefix("vllm:")
    yield Check(f"model {model}", "ok", _server(model) if model.startswith("openai:") else _probed(name))


def _server(spec: str) -> str:
    """What the server of an `openai:` policy offers.

    Raises:
        UserError, InfraError: it refuses, or does not answer.
    """
    from agl.policies.build import build_policy
    from agl.policies.policy import Sampling

    policy: Any = build_policy(spec, Sampling(), retries=0, timeout=20.0)

    async def ask() -> None:
        try:
            await policy.prepare()
        finally:
            await policy.aclose()

    asyncio.run(ask())
    if policy.mode == "messages":
        return f"{policy.base_url} answers with messages, so there is no token record"
    context = f", context {policy.context:,} tokens" if policy.context else ""
    return f"{policy.base_url} takes and gives token ids, chat template keeps earlier turns{context}"


def _probed(model: str) -> str:
    """What the tokenizer of a model that is on this machine says; its chat template has to keep earlier turns.

    Raises:
        UserError: the model is not here, or cannot be used for several turns.
    """
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError as error:
        raise UserError(f"local models need torch and transformers: pip install 'agl[local]' ({error})") from None
    from agl.policies.chat_template import ChatTemplate
    from agl.policies.hf import adapter_base, resolve_model

    adapter = None if model == "smollm2" else resolve_model(model)
    base = "smollm2" if adapter is None else adapter_base(adapter) or adapter
    if base == "smollm2" and _unpacked() is None:
        return f"{find_gguf()}, unpacked at first use in about half a minute; its chat template can be probed then"
    source = resolve_model(base)
    words = adapter if adapter is not None and Path(adapter, "tokenizer_config.json").is_file() else source
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(words, local_files_only=True)
    except (OSError, ValueError) as error:
        if Path(source).is_dir():
            raise UserError(f"cannot load the tokenizer in {words}: {' '.join(str(error).split())}") from None
        raise UserError(f"{source} is not on this machine: run `hf download {source}`, or give a folder") from None
    ChatTemplate(tokenizer)
    context = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    size = f", context {context:,} tokens" if context else ""
    return f"{source}, {type(tokenizer).__name__}{size}, chat template keeps earlier turns"
