"""`agl baseline`: what a graph's nodes can be classified with without a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl.errors import UserError


def baseline(
    data: Annotated[
        str, typer.Option(metavar="NAME|DIR", help="Name of a source, or a folder with a graph.", show_default=False)
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="vote, knn, vote+knn, labelprop, lookup, mlp, sgc, gcn, sage, gat, gprgnn or all; repeatable. "
            "Default: all.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPLIT",
            help="planetoid, own, A/B/C in percent, K-per-class, or a named split of the graph; repeatable. "
            "Default: planetoid where the graph has it, 60/20/20 and 79/1/20.",
            show_default=False,
        ),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, max=1000, help="Random splits of each kind.")] = 5,
    features: Annotated[str, typer.Option(metavar="tfidf|minilm", help="Vectors of the texts.")] = "tfidf",
    seed: Annotated[int, typer.Option(min=0, help="Of the first random split and the first start.")] = 0,
    texts: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Texts of a downloaded graph.", show_default=False)
    ] = None,
    allow_synthetic_text: Annotated[
        bool, typer.Option("--allow-synthetic-text", help="Take graphs whose texts nobody wrote.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that train networks. Default: one a core.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Classify the nodes of a graph by votes and graph neural networks, on many splits.

    Finished cells are kept in the cache: a run that was stopped goes on, a rerun prints at once.

    Example: agl baseline --data networkx-docs --model vote --model knn

    Example: agl baseline --data data/cora --split planetoid --split 79/1/20 --splits 10
    """
    import os
    import time

    from agl.graphs.sources import open_graph
    from agl.json_text import dumps
    from eval.baselines.cells import MODELS, Asked, Cell
    from eval.baselines.problem import FEATURES
    from eval.baselines.table import baselines, rendered
    from eval.tables import console

    wanted = model or ["all"]
    unknown = [name for name in wanted if name not in (*MODELS, "all")]
    if unknown:
        raise UserError(f"expected a baseline ({', '.join(MODELS)}, all), got {unknown[0]!r}")
    chosen = [name for name in MODELS if name in wanted or "all" in wanted]
    vectors = next((name for name in FEATURES if name == features), None)
    if vectors is None:
        raise UserError(f"expected --features {' or '.join(FEATURES)}, got {features!r}")
    graph = open_graph(data, texts=texts, allow_synthetic_text=allow_synthetic_text)
    start = time.perf_counter()
    notes = console(stderr=True)
    made = [0, 0]

    with notes.status("baselines") as status:

        def progress(asked: Asked, cell: Cell) -> None:
            made[cell.cached] += 1
            status.update(f"{asked.model}: done, {sum(made)} cells ({time.perf_counter() - start:.0f} s)")

        found = baselines(
            graph,
            chosen,
            split or (),
            count=splits,
            features=vectors,
            seed=seed,
            data=data,
            jobs=jobs or os.cpu_count() or 1,
            progress=progress,
        )
    if as_json:
        print(dumps(found.model_dump(mode="json")))
    else:
        screen = console()
        for item in rendered(found):
            screen.print(item, soft_wrap=not screen.is_terminal)
    notes.print(f"{made[0]} cells computed, {made[1]} read, {time.perf_counter() - start:.1f} s", style="dim")
