"""Questions of the learning run in docs/learning_run.md: to imitate, to explore, and held out.

    python scripts/learning_run_items.py OUT

Graphs of the mini split under many seeds, told in one view. A graph of the held-out questions occurs in no other file,
whatever its weights and its question.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from agl.json_text import dumps
from envs.grit.build import Generated, Recipe
from envs.grit.items import GritTask

TASKS = ("shortest_path", "vertex_cover")
FILES = (
    # name, seeds of the mini split, sizes of graphs
    ("heldout", range(1000, 1006), (5, 6)),
    ("sft", range(1, 17), (4, 5, 6)),
    ("grpo", range(101, 109), (4, 5, 6)),
)


def items(seed: int, sizes: tuple[int, ...]) -> Iterator[GritTask]:
    """Questions of one seed; their ids say which."""
    for item in Generated("mini", Recipe(seed=seed)):
        if item.task in TASKS and item.n in sizes and (item.form, item.scheme) == ("standard", "canonical"):
            yield item.model_copy(update={"id": f"s{seed}-{item.id}", "graph_id": f"s{seed}-{item.graph_id}"})


def main(out: Path) -> None:
    """Write the files into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    held: set[object] = set()
    for name, seeds, sizes in FILES:
        found = [item for seed in seeds for item in items(seed, sizes)]
        if name == "heldout":
            held = {_pairs(item) for item in found}
        else:
            found = [item for item in found if _pairs(item) not in held]
        lines = [dumps(item.model_dump(mode="json")) for item in found]
        (out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(found)} questions over {len({_pairs(item) for item in found})} graphs")


def _pairs(item: GritTask) -> object:
    return item.n, frozenset((u, v) for u, v, _ in item.edges)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
