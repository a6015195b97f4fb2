"""`debian`: the package index of this machine's apt as a text-attributed graph.

Nodes are binary packages, texts their descriptions, labels their sections. An arc leads from a package to each
package that its Pre-Depends, Depends or Recommends names; every alternative counts, virtual packages and packages
outside the index do not.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from agl.errors import UserError
from agl.graphs.sources.remembered import file_state, remembered
from agl.graphs.sources.splits import with_standard_splits
from agl.graphs.text_graph import TextGraph, edge_rows, natural_order

LISTS = Path("/var/lib/apt/lists")
_RELATIONS = ("Pre-Depends", "Depends", "Recommends")
_PACKAGE = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")
_NO_INDEX = "expected an apt package index, found none on this machine; run `apt-get update` on Debian or Ubuntu"


def build(name: str = "debian", texts: Path | None = None) -> TextGraph:
    """The graph of the packages that apt knows here; built again only after `apt-get update` brought something new.

    Raises:
        UserError: there is no apt, or its index is empty.
    """
    state = file_state(*sorted(path for path in LISTS.glob("*_Packages*") if path.is_file()))
    if shutil.which("apt-cache") is None or not state:
        raise UserError(_NO_INDEX)
    return remembered(name, state, _build)


def _build() -> TextGraph:
    done = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=False)
    return graph_of(done.stdout.decode("utf-8", "replace"))


def graph_of(index: str) -> TextGraph:
    """The graph of an index in Debian's control format. Of several versions of a package the first counts.

    Raises:
        UserError: the index holds no package.
    """
    packages: dict[str, dict[str, str]] = {}
    for fields in _paragraphs(index):
        if "Package" in fields:
            packages.setdefault(fields["Package"], fields)
    if not packages:
        raise UserError(_NO_INDEX)
    ids = sorted(packages)
    arcs = [
        (source, target)
        for source in ids
        for relation in _RELATIONS
        for alternative in re.split(r"[,|]", packages[source].get(relation, ""))
        if (found := _PACKAGE.match(alternative)) and (target := found[1]) in packages
    ]
    sections = [packages[name].get("Section", "").rpartition("/")[2] or None for name in ids]
    class_names = natural_order(section for section in sections if section is not None)
    place = {section: code for code, section in enumerate(class_names)}
    graph = TextGraph.build(
        ids,
        [_text(packages[name].get("Description") or packages[name].get("Description-en") or "") for name in ids],
        edge_rows(ids, arcs),
        labels=[-1 if section is None else place[section] for section in sections],
        class_names=class_names,
        directed=True,
        meta={
            "name": "debian",
            "licence": "package descriptions: as the packages; the facts: none claimed",
            "source": "apt-cache dumpavail",
            "edge": "package -> package in its Pre-Depends, Depends or Recommends",
        },
    )
    return with_standard_splits(graph)


def _paragraphs(index: str) -> Iterator[dict[str, str]]:
    for paragraph in index.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.split("\n"):
            if line[:1] in (" ", "\t"):
                if name in fields:
                    fields[name] += "\n" + line
            else:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        yield fields


def _text(description: str) -> str:
    """The synopsis, and the long description where the index carries it (` .` is its blank line)."""
    lines = [line.strip() for line in description.split("\n")]
    return "\n".join("" if line == "." else line for line in lines)
