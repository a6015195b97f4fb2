"""`agl grit build | verify | stats`: folders of splits, their bytes, resuming, exit codes, published tables."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from agl.errors import DataError, UserError
from envs.grit import export
from envs.grit.build import SPLITS, Generated, Recipe
from envs.grit.export import SplitPlan, build, from_row
from envs.grit.items import TASKS, line, read
from envs.grit.stats import COLUMNS, PUBLISHED_DENSITIES, PUBLISHED_SIZES, describe
from tests.agl_process import agl

SMALL = SplitPlan(split="mini", graphs=4)


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_holds_the_items_of_the_split(tmp_path: Path) -> None:
    assert build(SMALL, tmp_path)
    assert list(read(tmp_path / "mini.jsonl")) == list(Generated("mini", Recipe(), graphs=4))
    assert set(files(tmp_path)) == {"README.md", "data/mini.parquet", "manifest.json", "mini.jsonl"}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    entry = manifest["splits"]["mini"]
    assert entry["questions"] == 6 * 4 * 8
    assert manifest["recipe"] == Recipe().model_dump()
    assert {name: about["sha256"] for name, about in entry["files"].items()} == {
        name: digest for name, digest in files(tmp_path).items() if name in entry["files"]
    }
    card = (tmp_path / "README.md").read_text()
    for told in ("path: data/mini.parquet", "highspy", "Apache-2.0", entry["files"]["mini.jsonl"]["sha256"]):
        assert told in card


def test_bytes_do_not_depend_on_workers_or_hash_seed(tmp_path: Path) -> None:
    build(SMALL, tmp_path / "one")
    for workers, hash_seed in ((1, 4242), (2, 7)):
        out = tmp_path / f"{workers}-{hash_seed}"
        arguments = ["--split", "mini", "--graphs", "4", "--workers", str(workers), "--out", str(out)]
        done = agl("grit", "build", *arguments, cwd=tmp_path, hash_seed=hash_seed)
        assert done.returncode == 0, done.stderr
        assert files(out) == files(tmp_path / "one")


def test_an_interrupted_build_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(done: int, total: int) -> None:
        if done >= export.GRAPHS_PER_PART:
            raise KeyboardInterrupt

    whole = tmp_path / "whole"
    build(SMALL, whole)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        build(SMALL, out, on_graphs=stop)
    assert not (out / "mini.jsonl").exists()
    made: list[Any] = []
    make_part = export._make_part

    def counted(*job: Any) -> int:
        made.append(job)
        return make_part(*job)

    monkeypatch.setattr(export, "_make_part", counted)
    steps: list[int] = []
    assert build(SMALL, out, on_graphs=lambda done, total: steps.append(done))
    assert len(made) == len(SMALL.parts()) - 1
    assert steps[0] == export.GRAPHS_PER_PART
    assert files(out) == files(whole)


def test_parts_of_another_recipe_or_generator_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = export._fingerprint(SMALL)
    assert before != export._fingerprint(SplitPlan(split="mini", graphs=4, recipe=Recipe(seed=1)))
    changed = tmp_path / "export.py"
    changed.write_text("# another generator")
    monkeypatch.setattr(export, "__file__", str(changed))
    assert export._fingerprint(SMALL) != before


def test_a_finished_split_is_left_as_it_is(tmp_path: Path) -> None:
    build(SMALL, tmp_path)
    before = files(tmp_path)
    assert not build(SMALL, tmp_path)
    assert files(tmp_path) == before
    assert build(SplitPlan(split="ood", graphs=1), tmp_path)
    assert list(json.loads((tmp_path / "manifest.json").read_text())["splits"]) == ["mini", "ood"]
    assert {name: digest for name, digest in files(tmp_path).items() if "mini." in name} == {
        name: digest for name, digest in before.items() if "mini." in name
    }


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (SplitPlan(split="mini", graphs=4, recipe=Recipe(seed=1)), "their recipe.seed is 0, now 1"),
        (SplitPlan(split="test", graphs=1, recipe=Recipe(full_views=True)), "recipe.full_views is false, now true"),
        (SplitPlan(split="mini", graphs=5), "expected 4 graphs per task"),
        (SplitPlan(split="mini"), "expected 4 graphs per task"),
    ],
)
def test_another_recipe_is_refused(tmp_path: Path, plan: SplitPlan, message: str) -> None:
    build(SMALL, tmp_path)
    before = files(tmp_path)
    with pytest.raises(UserError, match=message):
        build(plan, tmp_path)
    assert files(tmp_path) == before


def test_foreign_files_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        build(SMALL, tmp_path)
    with pytest.raises(UserError, match="got the file"):
        build(SMALL, tmp_path / "notes.txt")
    assert set(files(tmp_path)) == {"notes.txt"}
    build(SMALL, tmp_path / "out")
    (tmp_path / "out" / "mini.jsonl").write_text("changed")
    with pytest.raises(UserError, match="changed or removed"):
        build(SMALL, tmp_path / "out")
    with pytest.raises(DataError, match="expected 1 to 8 graphs per task"):
        build(SplitPlan(split="mini", graphs=9), tmp_path / "more")
    assert not (tmp_path / "more").exists()


def test_full_views_and_other_graph_models() -> None:
    counts = {
        full: len(Generated("test", Recipe(full_views=full))) - len(Generated("large", Recipe(full_views=full)))
        for full in (False, True)
    }
    assert counts == {False: 2_760 - 960, True: 2_880 - 960}


def test_datasets_reads_the_folder_and_the_lines_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", minversion="4.7")
    build(SMALL, tmp_path / "grit")
    build(SplitPlan(split="ood", graphs=1), tmp_path / "grit")
    cache = str(tmp_path / "cache")
    splits = datasets.load_dataset(str(tmp_path / "grit"), cache_dir=cache)
    assert set(splits) == {"mini", "ood"}
    for name in splits:
        path = tmp_path / "grit" / f"{name}.jsonl"
        items = list(read(path))
        assert [from_row(row) for row in splits[name]] == items
        rows = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
        assert [dict(row) for row in rows] == [json.loads(line(item)) for item in items]


def test_the_published_tables_come_out() -> None:
    """Every figure of the paper's tables of sizes and densities, as printed there."""
    described = describe(Generated("test", Recipe()))
    digits = list(COLUMNS.values())
    for bucket, figures in PUBLISHED_SIZES.items():
        row = described["sizes"][bucket]
        assert tuple(round(row[column], d) for column, d in COLUMNS.items()) == figures
    assert set(described["sizes"]) == set(PUBLISHED_SIZES)
    assert digits == [0, 1, 1, 3, 2]
    for third, figures in PUBLISHED_DENSITIES.items():
        row = described["densities"][third]
        assert (row["questions"], round(row["density"], 3)) == figures
    assert 0.41502 < described["densities"]["high"]["from"] <= 0.41539
    assert described["questions"] == 2_760
    assert described["tasks"] == {task: 360 if task == "vertex_cover" else 480 for task in TASKS}
    assert described["forms"] == {"standard": 1_380, "realistic": 1_380}
    assert set(described["schemes"].values()) == {690}
    assert set(described["views"]["vertex_cover"].values()) == {45}


def test_stats_of_other_sizes() -> None:
    described = describe(Generated("mini", Recipe(), 12))
    assert set(described["sizes"]) == {"4-9"}
    assert sum(row["questions"] for row in described["densities"].values()) == 12
    with pytest.raises(ValueError, match="no items"):
        describe([])


def test_the_command_line(tmp_path: Path) -> None:
    done = agl(
        "grit", "build", "--split", "mini", "--graphs", "1", "--out", "g", "--json", "--no-parquet", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mini"]["questions"] == 48
    assert not (tmp_path / "g" / "data").exists()
    path = tmp_path / "g" / "mini.jsonl"
    done = agl("grit", "verify", str(path), "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "48 items: all invariants hold" in done.stdout
    path.write_text(path.read_text().replace("edges", "edgez", 1))
    done = agl("grit", "verify", str(path), "--workers", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "line 1: edges: Field required" in done.stderr
    done = agl("grit", "stats", str(tmp_path / "none.jsonl"), cwd=tmp_path)
    assert done.returncode == 2
    assert "none.jsonl" in done.stderr


def test_verify_fails_with_exit_code_1(tmp_path: Path) -> None:
    build(SplitPlan(split="mini", graphs=1), tmp_path / "g", parquet=False)
    path = tmp_path / "g" / "mini.jsonl"
    path.write_text(
        path.read_text().replace("\\n\\n", "\\n\\nRain. ", 1).replace('"question":"', '"question":"Oh. ', 1)
    )
    done = agl("grit", "verify", str(path), "--workers", "1", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["invariants"]["7"]["faults"] == 1
    done = agl("grit", "verify", str(path), "--workers", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "FAILED" in done.stdout


def test_stats_print_the_published_figures(tmp_path: Path) -> None:
    build(SplitPlan(split="test", graphs=3), tmp_path / "g", parquet=False)
    done = agl("grit", "stats", "g/test.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for told in ("[16.08]", "[0.722]", "vertex_cover"):
        assert told in done.stdout
    done = agl("grit", "stats", "g/test.jsonl", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["questions"] == 6 * 3 * 8 - 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--split", "tset", "--out", "g"], "got 'tset'"),
        (["build", "--split", "mini", "--out", "g", "--profile", "dense"], "got 'dense'"),
        (["build", "--split", "mini", "--out", "g", "--graphs", "0"], "--graphs"),
        (["build", "--split", "mini"], "--out"),
        (["build", "--out", "g"], "--split"),
        (["verify"], "FILE"),
        (["verify", "a.jsonl", "a.jsonl"], "twice"),
        (["verify", "a.jsonl"], "a.jsonl"),
        (["stats"], "FILE"),
        (["bulid"], "bulid"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = agl("grit", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["build", "verify", "stats"])
def test_help_has_an_example(tmp_path: Path, name: str) -> None:
    done = agl("grit", name, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Example: agl grit" in done.stdout


def test_every_published_split_has_its_count() -> None:
    wanted = {"train": 17_280, "test": 2_760, "large": 960, "ood": 1_440}
    assert {name: len(Generated(name, Recipe())) for name in wanted} == wanted
    assert set(SPLITS) == {*wanted, "mini"}
