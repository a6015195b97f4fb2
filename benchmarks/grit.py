"""How many GRIT questions are made in a second, beside reasoning-gym: `python benchmarks/grit.py`.

Both make the same kind of problem of about the same size, in turns, in one process. The work is not the same: a GRIT
question has a proven optimum with its certificate and one of eight tellings; reasoning-gym searches an unweighted grid,
and colours greedily with as many colours as it takes, without proof. Needs `pip install 'agl[bench]'`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import count

import reasoning_gym

from envs.grit.build import SPLITS, Recipe, item, views
from envs.grit.items import TaskName, line

SECONDS = 1.0
"""Processor time of one measurement."""
ROUNDS = 5
THEIRS: dict[TaskName, tuple[str, dict[str, object]]] = {
    "shortest_path": ("shortest_path", {"min_rows": 4, "max_rows": 6, "min_cols": 4, "max_cols": 6}),
    "coloring": (
        "graph_color",
        {"min_num_vertices": 10, "max_num_vertices": 39, "edge_probability": 0.42, "num_colors": 20},
    ),
}


def ours(task: TaskName, views_per_graph: int) -> Iterator[int]:
    """Characters of one question after the other, as a line of a file, of new graphs of the `test` split."""
    split = SPLITS["test"]
    for seed in count():
        for graph in range(split.graphs):
            for view in views(split, task, graph)[:views_per_graph]:
                yield len(line(item(split, Recipe(seed=seed), task, graph, view)))


def theirs(task: TaskName) -> Iterator[int]:
    name, options = THEIRS[task]
    for seed in count():
        for entry in reasoning_gym.create_dataset(name, seed=seed * 1_000, size=1_000, **options):
            yield len(entry["question"])


def per_second(questions: Iterator[int]) -> float:
    made, began = 0, time.process_time()
    while (spent := time.process_time() - began) < SECONDS:
        next(questions)
        made += 1
    return made / spent


def main() -> None:
    print("questions per second of one processor: median of", ROUNDS)
    print(f"{'task':16}{'reasoning-gym':>15}{'GRIT, 1 view':>15}{'GRIT, 8 views':>15}{'ratio, 1':>10}{'ratio, 8':>10}")
    for task in THEIRS:
        streams = [theirs(task), ours(task, 1), ours(task, 8)]
        for stream in streams:
            next(stream)
        rounds = [[per_second(stream) for stream in streams] for _ in range(ROUNDS)]
        base, one, eight = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratios = [statistics.median(row[k] / row[0] for row in rounds) for k in (1, 2)]
        print(f"{task:16}{base:15,.0f}{one:15,.0f}{eight:15,.0f}{ratios[0]:10.3f}{ratios[1]:10.3f}")


if __name__ == "__main__":
    main()
