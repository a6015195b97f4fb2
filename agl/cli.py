"""The `agl` command. Each room owns its commands; a module is imported only when its command runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import agl
from agl.errors import InfraError, UserError
from agl.explain import explained
from agl.registry import ENVS, env_class, guarded_import


@dataclass(frozen=True)
class Mount:
    """Where a command lives ("module:attribute": a function, or a Typer app with sub-commands) and its short help."""

    entry: str
    help: str


MOUNTS: dict[str, Mount] = {
    "baseline": Mount("eval.baselines.commands:baseline", "Votes and graph neural networks on the nodes of a graph."),
    "data": Mount("agl.data_commands:app", "List, describe, check and build text-attributed graphs."),
    "compare": Mount("eval.compare_commands:compare", "Paired differences of two runs on the same tasks."),
    "eval": Mount("eval.commands:evaluate", "Evaluate policies on an environment; nothing is trained."),
    "grit": Mount("envs.grit.commands:app", "Build, verify, describe and rename splits of the GRIT benchmark."),
    "agentgl": Mount("eval.agentgl_tables:app", "Lay runs of AgentGL out as tables, with the published rows."),
    "reagan": Mount("eval.reagan_tables:app", "Lay runs of ReaGAN out as tables, beside baselines on the same nodes."),
    "doctor": Mount("agl.doctor:doctor", "Check what is installed and say what to do about what is missing."),
    "plan": Mount("train.commands:plan", "Say what a config amounts to, before any model is loaded."),
    "report": Mount("eval.report.commands:report", "Write one HTML page about a run: figures and every episode."),
    "show": Mount("eval.compare_commands:show", "Read one recorded episode, or list the episodes of a run."),
}

_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # click's UsageError, wherever typer keeps it


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Typer ends an interrupted command without a word; an `Abort` reaches `_run`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


def build(command: str | None = None) -> typer.Typer:
    """The app with the module of `command` imported and only the names and short helps of the others."""
    app = typer.Typer(name="agl", cls=_Group, pretty_exceptions_enable=False, invoke_without_command=True)
    app.callback(
        help="Language-model agents on graphs: evaluate them frozen, train them by reinforcement learning.\n\n"
        "Example: agl eval grit --policy oracle --limit 12"
    )(_root)
    app.command("envs")(envs)
    for name, mount in MOUNTS.items():
        if name != command:
            app.command(name, help=mount.help)(_not_loaded)
            continue
        found = _load(mount.entry)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=mount.help)
        else:
            app.command(name)(found)
    return app


def _load(entry: str) -> Any:
    module, _, attribute = entry.partition(":")
    return getattr(guarded_import(module), attribute)


def _not_loaded() -> NoReturn:
    raise AssertionError("the command was not imported before it ran")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agl {agl.__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def envs(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False) -> None:
    """List the registered environments.

    Example: agl envs
    """
    from agl.json_text import dumps

    lines = {name: _first_line(name) for name in sorted(ENVS)}
    if as_json:
        typer.echo(dumps(lines))
        return
    width = max(map(len, lines), default=0)
    for name, line in lines.items():
        typer.echo(f"{name:<{width}}  {line}")


def _first_line(name: str) -> str:
    try:
        env = env_class(name)
    except ImportError as error:
        return f"(cannot be loaded: {error})"
    text = sys.modules[env.__module__].__doc__ or env.__doc__ or ""
    line = text.strip().split("\n", 1)[0]
    return f"{line} Players: {', '.join(env.players)}." if env.players else line


def main() -> NoReturn:
    """Run the command line: 0 success, 1 the machinery failed, 2 wrong arguments, 130 interrupted."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    try:
        words = _completed_words() or arguments
        command = next((word for word in words if not word.startswith("-")), None)
        code = build(command)(args=arguments, prog_name="agl", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _fail(str(error), 2)
    except _USAGE_ERROR as error:
        where = getattr(getattr(error, "ctx", None), "command_path", "agl")
        said = error.format_message() if hasattr(error, "format_message") else str(error)
        return _fail(f"{' '.join(said.split()).rstrip('.')}; see {where} --help", 2)
    except InfraError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        return _fail(f"the system refused: {error}; check the path, its rights and the free space", 1)
    except (ImportError, MemoryError, RuntimeError) as error:
        if (said := explained(error)) is None:
            raise
        return _fail(str(said), 2 if isinstance(said, UserError) else 1)


def _completed_words() -> list[str]:
    """The words behind `agl` on the line that the shell asks to complete; none outside of a completion."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:] if "_AGL_COMPLETE" in os.environ else []


def _fail(sentence: str, code: int) -> int:
    print(f"agl: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
