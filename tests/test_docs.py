"""README and docs keep their word: Python runs, commands exist, messages, files and links are those of the code.

What a block is stands behind its fence. `python`: run, all blocks of a page in one namespace, with embedded data only;
`python no-run`: compiled (it needs a GPU, a server or the network; none so far). A first line `# NAME.py` makes the
block that file besides. `text output`: what the Python block before it prints. `text message`: an error of the code,
`…` for what varies. No info: lines that begin with `agl` or `accelerate launch` are commands, the cheap ones are run.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from agl import registry
from agl.cli import build, main
from agl.config import checked_options, load_config
from agl.policies.build import SPECS
from eval.commands import EvalConfig

ROOT = Path(__file__).resolve().parent.parent
PAGES = {page.relative_to(ROOT).as_posix(): page for page in [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/*.md"))]}


class Block(NamedTuple):
    page: str
    line: int
    info: str
    text: str


class Command(NamedTuple):
    place: str
    words: tuple[str, ...]

    @property
    def is_usage(self) -> bool:
        """A pattern such as `agl report RUN [--out FILE]`, not something to type."""
        return any(mark in word for word in self.words for mark in "[…")


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(PAGES[page].read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif opened is None:
            opened, lines = (number + 1, line[3:].strip()), []
        else:
            found.append(Block(page, *opened, "\n".join(lines) + "\n"))
            opened = None
    assert opened is None, f"{page}: a fence is not closed"
    return found


def commands(page: str) -> Iterator[Command]:
    """Commands in blocks; what stands behind three blanks explains them."""
    for block in blocks(page):
        if block.info not in ("", "sh", "bash"):
            continue
        text = re.sub(r"\\\n\s*", "", block.text)
        for line in text.splitlines():
            if re.match(r"(\w+=\S+ )*(agl|accelerate launch) ", line):
                words = shlex.split(re.split(r"\s{3,}", line)[0], comments=True)
                start = next(index for index, word in enumerate(words) if word in ("agl", "accelerate"))
                yield Command(f"{page}, {line}", tuple(words[start:]))


def inline(page: str) -> Iterator[Command]:
    prose = re.sub(r"^```.*?^```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`(agl [^`|]+)", prose):
        yield Command(f"{page}, `{span}`", tuple(shlex.split(span)))


def having(*infos: str) -> list[str]:
    return [page for page in PAGES if any(block.info in infos for block in blocks(page))]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in; what a page registers or writes there is forgotten afterwards."""
    import gymnasium

    known, spaces, modules = dict(registry.ENVS), dict(gymnasium.registry), set(sys.modules)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for table, before in ((registry.ENVS, known), (gymnasium.registry, spaces)):
        table.clear()
        table.update(before)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", having("python", "python no-run"))
def test_python_runs(page: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        if block.info == "text output":
            assert printed == block.text, f"{page}, line {block.line}"
        if block.info.partition(" ")[0] != "python":
            continue
        assert block.info in ("python", "python no-run"), f"{page}, line {block.line}: unknown mark {block.info}"
        code = compile("\n" * (block.line - 1) + block.text, str(PAGES[page]), "exec", dont_inherit=True)
        if block.info == "python":
            named = re.match(r"# (\w+\.py)\n", block.text)
            if named:
                (elsewhere / named[1]).write_text(block.text, encoding="utf-8")
            exec(code, names)
            printed = capsys.readouterr().out


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` (behind `agl`) name, and its arguments."""
    import typer

    found: Any = typer.main.get_command(build(words[0]))
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        assert words[0] in found.commands, f"there is no command {words[0]!r}"
        found, words = found.commands[words[0]], words[1:]
    return found, words


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    for command in [*commands(page), *inline(page)]:
        if command.words[0] != "agl":
            continue
        try:
            found, arguments = command_of(list(command.words[1:]))
        except AssertionError as error:
            pytest.fail(f"{command.place}: {error}")
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options.add("--help")
        for word in arguments:
            name = word.strip("[]").partition("=")[0]
            assert not name.startswith("--") or name in options, f"{command.place}: there is no option {name}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_can_be_given_as_they_stand(page: str, elsewhere: Path) -> None:
    for command in commands(page):
        if command.words[0] != "agl" or command.is_usage:
            continue
        found, arguments = command_of(list(command.words[1:]))
        try:
            found.make_context("agl", list(arguments)).close()
        except Exception as error:
            pytest.fail(f"{command.place}: {error}")
        if command.words[1] == "eval":
            check_evaluation(command)


def check_evaluation(command: Command) -> None:
    """Names of the environment, the policies and every option of `agl eval` are known."""
    given = values_of(command)
    flags = {name: given[name] for name in ("env", "data", "dialect") if name in given}
    chosen = load_config(
        EvalConfig,
        Path(given["config"]) if "config" in given else None,
        values={**flags, **({"policy": given["policy"]} if "policy" in given else {})},
        overrides=given.get("set", []),
    )
    env = registry.env_class(chosen.env)
    checked_options(env, chosen.env_options, f"the environment {chosen.env} ({command.place})")
    known = {spec.partition(":")[0] for spec in (*SPECS, *env.players)}
    for policy in chosen.policies:
        assert policy == "POLICY" or re.split("[:(]", policy)[0] in {*known, "magts"}, f"{command.place}: {policy}"


def values_of(command: Command) -> dict[str, Any]:
    """What an `agl eval` line gives; repeated options as lists."""
    words = list(command.words[2:])
    given: dict[str, Any] = {}
    if words and not words[0].startswith("-"):
        given["env"] = words.pop(0)
    while words:
        name, equals, value = words.pop(0).removeprefix("--").partition("=")
        if name in ("resume", "json"):
            continue
        value = value if equals else words.pop(0)
        if name in ("policy", "set"):
            given.setdefault(name, []).append(value)
        else:
            given[name] = value
    return given


CHEAP = ("envs", "data list", "data info networkx-docs", "data build networkx-docs", "grit traces --split mini")
READING = ("report", "show", "compare", "grit table", "reagan table", "agentgl table")


def is_cheap(command: Command) -> bool:
    """It needs no model, no server, no data but ours, and seconds at most."""
    said = " ".join(command.words[1:])
    if command.words[0] != "agl" or command.is_usage:
        return False
    if any(said.startswith(start) for start in READING):
        folders = [word for word in command.words[2:] if word.startswith("runs/")]
        return bool(folders) and all(Path(folder).exists() for folder in folders)
    if said.startswith("baseline"):
        return "networkx-docs" in said and re.findall(r"--model (\S+)", said) in (["vote"], ["vote", "knn"])
    if not said.startswith("eval"):
        return any(said.startswith(start) for start in CHEAP)
    given = values_of(command)
    if "config" in given or given.get("env") not in registry.ENVS:
        return False
    players = {"oracle", "random", "silent", *registry.env_class(given["env"]).players}
    scripted = all(policy in players for policy in given.get("policy", ["POLICY"]))
    return scripted and given.get("data", "mini") in ("mini", "networkx-docs") and int(given.get("limit", 1000)) <= 64


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("docs/grit_samples.md", "CHANGELOG.md")])
def test_cheap_commands_run(
    page: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in commands(page):
        if is_cheap(command):
            monkeypatch.setattr(sys, "argv", list(command.words))
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 0, f"{command.place}: {capsys.readouterr().err}"


def test_readme_and_start_show_commands_that_run() -> None:
    """Guards the rule above against running nothing."""
    for page in ("README.md", "docs/index.md"):
        assert any(is_cheap(command) for command in commands(page)), page


def test_launched_programs_take_what_is_shown() -> None:
    from trl import GRPOConfig, ModelConfig, SFTConfig

    from train.options import EpisodeArguments
    from train.sft_options import SftArguments

    takes = {"train/grpo.py": (EpisodeArguments, GRPOConfig), "train/sft.py": (SftArguments, SFTConfig)}
    launched = [command for page in PAGES for command in commands(page) if command.words[0] == "accelerate"]
    assert launched
    for command in launched:
        program = next(word for word in command.words if word.endswith(".py"))
        at = command.words.index(program)
        legal = {f.name for kind in (*takes[program], ModelConfig) for f in dataclasses.fields(kind)} | {"config"}
        for word in command.words[at:]:
            name = word.strip("[]").removeprefix("--").partition("=")[0]
            assert not word.startswith("--") or name in legal, f"{command.place}: there is no option {word}"


PATH = re.compile(
    r"(?<![\w/.-])(?:agl|rewards|envs|eval|train|configs|scripts|benchmarks|tests)/[\w/.-]*\.(?:py|ya?ml|jinja|md)\b"
)
"""A file of ours by its place; what stands in braces or behind an ellipsis is a pattern and not looked for."""


@pytest.mark.parametrize("page", PAGES)
def test_files_and_links_exist(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    made = {"envs/mine/env.py", *re.findall(r"^# (\S+\.py)$", text, re.MULTILINE)}
    for path in PATH.findall(text):
        assert path in made or (ROOT / path).is_file(), f"{page} names {path}, which is not there"
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s#]+)", prose):
        assert "://" in target or (PAGES[page].parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", having("yaml", "json", "jsonl"))
def test_data_blocks_can_be_read(page: str) -> None:
    for block in blocks(page):
        if block.info == "yaml":
            yaml.safe_load(block.text)
        elif block.info == "json":
            json.loads(block.text)
        elif block.info == "jsonl":
            for line in block.text.splitlines():
                json.loads(line)


@cache
def templates() -> tuple[str, ...]:
    """Every text of the code, with `…` for what is filled in."""
    found = []
    for room in ("agl", "rewards", "envs", "eval", "train"):
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return tuple(found)


@pytest.mark.parametrize("page", having("text message"))
def test_messages_are_those_of_the_code(page: str) -> None:
    shown = [block for block in blocks(page) if block.info == "text message"]
    for block in shown:
        message = " ".join(block.text.removeprefix("agl: ").split())
        assert any(message in template for template in templates()), f"{page}, line {block.line}: {message}"


def test_pages_build_without_warnings_or_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'agl[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]*\ssrc=\"([^\"]+)|<link[^>]*\shref=\"([^\"]+)", page.read_text()
        )
        assert not [one for pair in loaded for one in pair if "//" in one], f"{page.name} loads from elsewhere"
