"""Networks on text features: MLP, SGC, GCN, GraphSAGE, GAT, GPRGNN, tuned and stopped on validation labels only.

Full-batch training with Adam on one CPU thread, so that the same seed gives the same bytes. Of a training the
checkpoint of lowest validation loss counts, of the settings in `GRID` the one of highest validation accuracy (then of
lowest loss): losses of differently regularised networks do not compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agl.errors import UserError
from agl.graphs.text_graph import Labels
from eval.baselines.problem import NodeProblem

if TYPE_CHECKING:
    import torch

EPOCHS = 300
PATIENCE = 30
HIDDEN = 64
HEADS = 8
HOPS = 10
TELEPORT = 0.1
"""Start of GPRGNN's weights: those of personalised PageRank with this chance to return."""


@dataclass(frozen=True)
class Setting:
    """Learning rate, weight decay and dropout of one training."""

    lr: float
    decay: float
    dropout: float


_USUAL = Setting(0.01, 5e-3, 0.5), Setting(0.01, 5e-4, 0.5)
GRID: dict[str, tuple[Setting, ...]] = {
    "mlp": _USUAL,
    "sgc": (Setting(0.2, 1e-4, 0.0), Setting(0.2, 1e-5, 0.0), Setting(0.2, 1e-6, 0.0)),
    "gcn": _USUAL,
    "sage": _USUAL,
    "gat": _USUAL,
    "gprgnn": _USUAL,
}
"""SGC: Wu et al., arXiv 1902.07153. GCN: Kipf and Welling, 1609.02907. GraphSAGE (mean): Hamilton et al., 1706.02216.
GAT: Velickovic et al., 1710.10903. GPRGNN: Chien et al., 2006.07988."""


@dataclass(frozen=True)
class Fit:
    """Predictions of several trainings from different starts, under the setting chosen with the first of them.

    Attributes:
        predictions: int32 `[starts, n]`, -1 for training nodes.
        setting: what was chosen.
        val_accuracy, val_loss: of the first start.
    """

    predictions: Labels
    setting: Setting
    val_accuracy: float
    val_loss: float

    def chosen(self) -> dict[str, float]:
        return {**asdict(self.setting), "val_accuracy": self.val_accuracy, "val_loss": self.val_loss}


def fit(problem: NodeProblem, model: str, seed: int = 0, starts: int = 3) -> Fit:
    """Train `model` with each setting from start `seed`, then the best setting from the other starts.

    Raises:
        UserError: no validation node with a label, or torch and torch_geometric are not installed.
    """
    if not len(problem.val):
        raise UserError(f"expected validation nodes with labels to stop {model} early, got none; use another split")
    try:
        import torch
        import torch_geometric  # noqa: F401
    except ImportError:
        raise UserError("networks need torch and torch_geometric: pip install 'agl[graphs]'") from None
    with _one_thread(torch):
        data = _data(problem, model)
        tried = []
        for setting in GRID[model]:
            loss, classes = _train(data, model, setting, seed)
            accuracy = float((classes[problem.val] == problem.val_labels[problem.val]).mean())
            tried.append((accuracy, loss, classes, setting))
        accuracy, loss, first, best = max(tried, key=lambda trial: (trial[0], -trial[1]))
        rest = [_train(data, model, best, seed + more)[1] for more in range(1, starts)]
    found = np.stack([first, *rest]).astype(np.int32)
    found[:, problem.train] = -1
    return Fit(found, best, accuracy, loss)


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, eq=False)
class _Data:
    x: torch.Tensor
    arcs: torch.Tensor
    train: torch.Tensor
    train_y: torch.Tensor
    val: torch.Tensor
    val_y: torch.Tensor
    classes: int


def _data(problem: NodeProblem, model: str) -> _Data:
    import torch

    source = np.repeat(np.arange(problem.n), np.diff(problem.indptr))
    arcs = torch.from_numpy(np.stack([source, problem.indices.astype(np.int64)]))
    x = torch.from_numpy(problem.inputs)
    if model == "sgc":
        step = _propagation(arcs, problem.n)
        x = step @ (step @ x)
    return _Data(
        x,
        arcs,
        torch.from_numpy(problem.train),
        torch.from_numpy(problem.train_labels[problem.train].astype(np.int64)),
        torch.from_numpy(problem.val),
        torch.from_numpy(problem.val_labels[problem.val].astype(np.int64)),
        len(problem.class_names),
    )


def _train(data: _Data, model: str, setting: Setting, seed: int) -> tuple[float, Labels]:
    """Lowest validation loss and the classes [n] of the network that had it."""
    import torch
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    network = _network(data, model, setting.dropout)
    optimiser = torch.optim.Adam(network.parameters(), lr=setting.lr, weight_decay=setting.decay)
    best, since = float("inf"), 0
    classes = np.zeros(len(data.x), dtype=np.int32)
    for _ in range(EPOCHS):
        network.train()
        optimiser.zero_grad()
        error: Any = cross_entropy(network(data.x)[data.train], data.train_y)
        error.backward()
        optimiser.step()
        network.eval()
        with torch.no_grad():
            scores = network(data.x)
            loss = float(cross_entropy(scores[data.val], data.val_y))
        if loss < best:
            best, since = loss, 0
            classes = scores.argmax(dim=1).numpy().astype(np.int32)
        else:
            since += 1
            if since >= PATIENCE:
                break
    return best, classes


def _network(data: _Data, model: str, dropout: float) -> Any:
    from torch import nn
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    width, classes = data.x.shape[1], data.classes
    if model == "sgc":
        return nn.Linear(width, classes)
    if model == "mlp":
        return _mlp(width, classes, dropout)
    if model == "gprgnn":
        return _gprgnn(_mlp(width, classes, dropout), _propagation(data.arcs, len(data.x)))
    if model == "gat":
        layers = (
            GATConv(width, HIDDEN // HEADS, heads=HEADS, dropout=dropout),
            GATConv(HIDDEN, classes, heads=1, dropout=dropout),
        )
    elif model == "gcn":
        layers = GCNConv(width, HIDDEN, cached=True), GCNConv(HIDDEN, classes, cached=True)
    else:
        layers = SAGEConv(width, HIDDEN), SAGEConv(HIDDEN, classes)
    return _two_layers(*layers, data.arcs, dropout)


def _mlp(width: int, classes: int, dropout: float) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Dropout(dropout), nn.Linear(HIDDEN, classes))


def _two_layers(first: Any, second: Any, arcs: torch.Tensor, dropout: float) -> Any:
    from torch import nn

    class TwoLayers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.dropout = first, second, nn.Dropout(dropout)

        def forward(self, x: torch.Tensor) -> Any:
            return self.second(self.dropout(self.first(x, arcs).relu()), arcs)

    return TwoLayers()


def _gprgnn(mlp: Any, step: torch.Tensor) -> Any:
    import torch
    from torch import nn

    class GPRGNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = mlp
            start = [TELEPORT * (1 - TELEPORT) ** hop for hop in range(HOPS)] + [(1 - TELEPORT) ** HOPS]
            self.weights = nn.Parameter(torch.tensor(start))

        def forward(self, x: torch.Tensor) -> Any:
            state = self.mlp(x)
            total = self.weights[0] * state
            for hop in range(1, HOPS + 1):
                state = step @ state
                total = total + self.weights[hop] * state
            return total

    return GPRGNN()


def _propagation(arcs: torch.Tensor, n: int) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2 as a sparse matrix [n, n]."""
    import torch
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    pairs, weights = gcn_norm(arcs, None, n)
    return torch.sparse_coo_tensor(pairs, weights, (n, n), check_invariants=True).coalesce()
