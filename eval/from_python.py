"""`agl.evaluate(...)`: evaluation from Python, in scripts and in notebooks."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import NoneType
from typing import Any

from agl.config import load_config
from agl.errors import UserError
from agl.explain import explained
from agl.messages import Prompt
from agl.policies.build import build_policy
from agl.policies.policy import Dialogue, Play, Policy, Sampling
from agl.registry import env_class
from agl.rollout import Limits
from agl.run_folder import folder_name
from eval.commands import EvalConfig, check_policies, checked
from eval.progress import shown
from eval.run import Run
from eval.runner import LIMITS, Progress
from eval.runner import run as play
from eval.tables import console

DEFAULT_SAMPLING = Sampling()


def evaluate(
    env: str,
    policy: str | Policy,
    *,
    data: str | Path | None = None,
    limit: int | None = None,
    attempts: int = 1,
    seed: int = 0,
    dialect: str | None = None,
    concurrency: int = 8,
    shots: int = 0,
    sampling: Sampling = DEFAULT_SAMPLING,
    limits: Limits = LIMITS,
    env_options: Mapping[str, Any] | None = None,
    policy_options: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Run:
    """Evaluate a policy on an environment, as `agl eval` does; nothing is trained. Works in notebooks too.

    Args:
        env: a name that `agl envs` lists.
        policy: what `--policy` takes, such as `oracle`, `smollm2` or `hf:NAME`; or a policy object, which stays open
            and can be evaluated again (`sampling` is then its own).
        data: name of a split, or a file or folder of tasks; None is the env's default.
        limit: most tasks.
        attempts: episodes per task.
        seed: of generated tasks and of sampling.
        dialect: None is the paper's own.
        concurrency: most episodes at once.
        shots: worked examples in the prompt.
        sampling: temperature, most tokens per turn, and the like.
        limits: turns, deadline and retries of one episode.
        env_options: keyword arguments of the environment.
        policy_options: keyword arguments of the policy that `policy` names.
        out: run folder; None is runs/ENV-POLICY-TIME.
        resume: continue the run in `out`.
        progress: say on stderr how far it is.

    Raises:
        UserError: an argument that cannot be used; nothing was played.
        InfraError: the machinery failed; finished episodes are kept, `resume` goes on.
        KeyboardInterrupt: after all finished episodes were written.
    """
    _check_type("policy", policy, (str, Policy), "the name of a policy or a policy object")
    _check_type("sampling", sampling, Sampling, "agl.Sampling(...)")
    _check_type("limits", limits, Limits, "agl.Limits(...)")
    for option, value in (("env_options", env_options), ("policy_options", policy_options)):
        _check_type(option, value, (Mapping, NoneType), "a map of names to values")
    name = policy.name if isinstance(policy, Policy) else policy
    chosen = load_config(
        EvalConfig,
        values={
            "env": env,
            "policy": name,
            "data": data,
            "limit": limit,
            "attempts": attempts,
            "seed": seed,
            "dialect": dialect,
            "concurrency": concurrency,
            "shots": shots,
            "out": out,
            "sampling": vars(sampling),
            "limits": vars(limits),
        },
    )
    if resume and out is None:
        raise UserError("expected out=RUN with resume=True, got none; name the run folder to continue")
    settings = chosen.sampling
    if isinstance(policy, Policy):
        settings = getattr(policy, "sampling", settings)
        if policy_options:
            raise UserError("expected policy_options with the name of a policy, got a policy object; leave them out")
    else:
        check_policies([policy], env_class(env).players)
    ready = checked(chosen.model_copy(update={"sampling": settings, "env_options": env_options or {}}))
    folder = ready.folder(name, Path(out) if out is not None else _new_folder(env, name), resume=resume)

    def make() -> Policy:
        if isinstance(policy, Policy):
            return _Lent(policy)
        return build_policy(policy, settings, ready.env.players, **(policy_options or {}))

    try:
        with shown(f"{env}, {name}", console(stderr=True)) if progress else nullcontext() as on_episode:
            _off_the_loop(lambda told: play(ready, folder, make, on_episode=told), on_episode)
    except (ImportError, MemoryError, RuntimeError) as error:
        if (said := explained(error)) is None:
            raise
        raise said from error
    return Run(folder.path)


def _check_type(name: str, value: object, legal: type | tuple[type, ...], said: str) -> None:
    if not isinstance(value, legal):
        raise UserError(f"option {name}: expected {said}, got {value!r}; correct it")


class _Lent(Policy):
    """A policy that its owner closes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    @property
    def native_tools(self) -> bool:  # type: ignore[override]
        return self._policy.native_tools

    async def prepare(self) -> None:
        await self._policy.prepare()

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return self._policy.open(prompt, seed=seed, play=play)


def _new_folder(env: str, policy: str) -> Path:
    stem = f"{env}-{folder_name(policy)}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path("runs", stem if number == 1 else f"{stem}-{number}") for number in itertools.count(1))
    return next(path for path in candidates if not path.exists())


def _off_the_loop(
    run: Callable[[Callable[[Progress], None] | None], object], on_episode: Callable[[Progress], None] | None
) -> None:
    """Call `run`, which starts an event loop, in a thread of its own where one runs here already (as in a notebook).

    An interruption there reaches the main thread alone, so it cancels the run, which keeps what is finished.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run(on_episode)
        return
    playing: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    faults: list[BaseException] = []
    stopped, ended = threading.Event(), threading.Event()

    def told(progress: Progress) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        task = asyncio.current_task()
        if not playing and task is not None:
            playing.append((asyncio.get_running_loop(), task))
        if on_episode is not None:
            on_episode(progress)

    def work() -> None:
        try:
            run(told)
        except BaseException as error:
            faults.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, name="agl-evaluate", daemon=True).start()
    try:
        # After a `join` that was interrupted, Python 3.11 takes the thread as ended.
        ended.wait()
    except KeyboardInterrupt:
        stopped.set()
        for loop, task in playing:
            with suppress(RuntimeError):  # all is played, and its loop closed
                loop.call_soon_threadsafe(task.cancel)
        ended.wait()
        raise
    if faults:
        raise faults[0]
