"""AgentGL's environments (arXiv 2604.05846): name the class of a node, or say whether two nodes are linked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from agl.core import Score
from agl.graphs.view import GraphView, NodeTarget
from envs.agentgl import players, prompts
from envs.agentgl.links import Links
from envs.agentgl.pairs import search_pair
from envs.agentgl.players import probe_auc
from envs.agentgl.pools import Found, Pool, PoolOptions, Profile, search
from envs.agentgl.search_env import SearchEnv
from envs.agentgl.tasks import LpTask, NcTask, checked_graph, links_of, node_tasks, pair_tasks, train_mask
from rewards import navigation


class AgentglNc(SearchEnv[NcTask]):
    """Name the class of a node."""

    name: ClassVar[str] = "agentgl-nc"
    task_type: ClassVar[type[NcTask]] = NcTask
    kind: ClassVar[navigation.TaskKind] = "nc"
    random_bound: ClassVar[float] = 0.3
    players: ClassVar[tuple[str, ...]] = players.NC_PLAYERS

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[NcTask]:
        return node_tasks(source, seed, limit, cls.name)

    @staticmethod
    def _pool_options(profile: Profile, changes: dict[str, Any]) -> PoolOptions:
        return PoolOptions.for_nodes(profile, **changes)

    def instructions(self) -> str:
        arxiv = prompts.names_arxiv(checked_graph(self.task))
        return prompts.instructions("nc", self.options, self.told_budget, listed=self.label_list, arxiv=arxiv)

    @property
    def view(self) -> GraphView:
        task = self.task
        graph = checked_graph(task)
        train = train_mask(task.graph, task.split)
        return GraphView(graph, NodeTarget(graph.index_of(task.node)), train, None, self.index, self.leaky)

    def _question(self) -> str:
        return prompts.node_question(self.view, self.options, listed=self.label_list)

    def _look(self, pool: Pool, query: str) -> Found:
        return search(self.view, pool, query, self.options)

    @property
    def gold(self) -> str:
        return self.task.gold

    def _classes(self) -> Sequence[str]:
        return checked_graph(self.task).class_names

    def _guess(self, player: str) -> str:
        return self._classes()[players.class_of(self.view, player, self._found, self.options)]


class AgentglLp(SearchEnv[LpTask]):
    """Say whether two nodes are linked. The edge between them, and those of validation and test, are in no result."""

    name: ClassVar[str] = "agentgl-lp"
    task_type: ClassVar[type[LpTask]] = LpTask
    kind: ClassVar[navigation.TaskKind] = "lp"
    random_bound: ClassVar[float] = 0.7
    players: ClassVar[tuple[str, ...]] = players.LP_PLAYERS
    metrics: ClassVar[tuple[str, ...]] = (*SearchEnv.metrics, "probe_auc")
    aggregates: ClassVar[Mapping[str, Callable[[Sequence[Score]], float | None]]] = {"probe_auc": probe_auc}

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[LpTask]:
        return pair_tasks(source, seed, limit, cls.name)

    @staticmethod
    def _pool_options(profile: Profile, changes: dict[str, Any]) -> PoolOptions:
        return PoolOptions.for_pairs(profile, **changes)

    def instructions(self) -> str:
        return prompts.instructions("lp", self.options, self.told_budget, listed=False, arxiv=False)

    @property
    def links(self) -> Links:
        return links_of(self.task.graph)

    @property
    def view(self) -> GraphView:
        graph = checked_graph(self.task)
        u, v = graph.index_of(self.task.u), graph.index_of(self.task.v)
        return self.links.view(u, v, self.index, leaky=self.leaky)

    def _question(self) -> str:
        return prompts.pair_question(self.view, self.options)

    def _look(self, pool: Pool, query: str) -> Found:
        return search_pair(self.view, pool, query, self.options, self.links)

    @property
    def gold(self) -> str:
        return self.task.gold

    def _classes(self) -> Sequence[str]:
        return ("yes", "no")

    def _guess(self, player: str) -> str:
        linked = players.is_linked(self.view, self.links, player, self._found, self.options)
        return "yes" if linked else "no"

    def _extra_parts(self) -> dict[str, float | None]:
        return {"probe": players.overlap(self._found)}
