"""`networkx-docs`: the installed networkx as a text-attributed graph; needs no download.

Nodes are the public documented functions, texts their docstrings, labels the sub-packages. The id is the bare name
(`density`, `density~2`, ... where several share it, in the order of their paths), since the dotted path would tell the
label; it stands in the extras.
An arc leads from a function to each function that its docstring refers to (See Also, backquoted names, names followed
by a bracket, names with an underscore; examples apart) or that its body calls. Read from the source text; no module of
networkx is run.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agl.graphs.sources.remembered import file_state, remembered
from agl.graphs.sources.splits import with_standard_splits
from agl.graphs.text_graph import TextGraph, edge_rows, natural_order

_REFERENCE = re.compile(r"`+~?([A-Za-z_][\w.]*)(?:\(\))?`+|\b(?:nx\.)?([A-Za-z_]\w*)\(|\b([A-Za-z]\w*_\w+)\b")
_DOCTEST = re.compile(r"^\s*(>>>|\.\.\.).*$", re.MULTILINE)
_SEE_ALSO = re.compile(r"^See Also\n-+\n(.*?)(?=\n\S[^\n]*\n-{3,}|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class _Function:
    path: str
    module: str
    label: str
    doc: str
    tree: ast.FunctionDef


def build(name: str = "networkx-docs", texts: Path | None = None) -> TextGraph:
    """The graph of the installed networkx; the same for the same version of networkx."""
    import networkx

    init = Path(networkx.__file__)
    return remembered(
        name, [networkx.__version__, *file_state(init)], lambda: _build(init.parent, networkx.__version__)
    )


def _build(root: Path, version: str) -> TextGraph:
    functions: list[_Function] = []
    imports: dict[str, dict[str, str]] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] == "lazy_imports" or any(part == "tests" or part.startswith("_") for part in parts[:-1]):
            continue
        if parts[-1].startswith("_") and parts[-1] != "__init__":
            continue
        module = ".".join(("networkx", *(part for part in parts if part != "__init__")))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports[module] = dict(_imported(tree))
        functions += _functions(tree, module, _label(parts))
    arcs = list(_references(functions, imports))
    ids = _names(functions)
    class_names = natural_order(function.label for function in functions)
    graph = TextGraph.build(
        ids,
        [function.doc for function in functions],
        edge_rows([function.path for function in functions], arcs),
        labels=[class_names.index(function.label) for function in functions],
        class_names=class_names,
        directed=True,
        extras=[{"path": function.path} for function in functions],
        meta={
            "name": "networkx-docs",
            "licence": "BSD-3-Clause, NetworkX developers",
            "source": f"networkx {version}, docstrings and source",
            "edge": "function -> function it refers to or calls",
        },
    )
    return with_standard_splits(graph)


def _names(functions: list[_Function]) -> list[str]:
    times: Counter[str] = Counter()
    names: list[str] = []
    for name in (function.tree.name for function in functions):
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name}~{times[name]}")
    return names


def _label(parts: tuple[str, ...]) -> str:
    packages = parts[:-1]
    if packages[:1] == ("algorithms",) and len(packages) > 1:
        return f"algorithms.{packages[1]}"
    return packages[0] if packages else parts[0]


def _functions(tree: ast.Module, module: str, label: str) -> Iterator[_Function]:
    seen: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in seen:
            doc = ast.get_docstring(node)
            if doc:
                seen.add(node.name)
                yield _Function(f"{module}.{node.name}", module, label, inspect.cleandoc(doc), node)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _references(functions: list[_Function], imports: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    by_path = {function.path for function in functions}
    by_name: dict[str, list[str]] = {}
    for function in functions:
        by_name.setdefault(function.tree.name, []).append(function.path)

    def resolve(mention: str, function: _Function) -> str | None:
        name = mention.rpartition(".")[2]
        for candidate in (mention, f"{function.module}.{name}", imports[function.module].get(name, "")):
            if candidate in by_path:
                return candidate
        found = by_name.get(name, [])
        if "." in mention:
            found = [node for node in found if node.endswith(f".{mention.removeprefix('nx.')}")] or found
        near = [node for node in found if node.startswith(function.module.rpartition(".")[0] + ".")]
        return next((group[0] for group in (near, found) if len(group) == 1), None)

    for function in functions:
        prose = _DOCTEST.sub("", function.doc)
        mentions = [next(filter(None, match)) for match in _REFERENCE.findall(prose)]
        for block in _SEE_ALSO.findall(function.doc):
            mentions += re.findall(r"[A-Za-z_][\w.]*", block)
        mentions += _called(function.tree)
        targets = {resolve(mention.strip("."), function) for mention in mentions}
        yield from ((function.path, target) for target in sorted(t for t in targets if t and t != function.path))


def _called(tree: ast.FunctionDef) -> list[str]:
    names: list[str] = []
    for node in (inner for statement in tree.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
            if re.fullmatch(r"(nx\.)?[\w.]+", called) and ("." not in called or called.startswith("nx.")):
                names.append(called)
    return names
