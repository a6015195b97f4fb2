"""What AGL needs of other packages, as its own metadata says, and what is installed of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

_FOR_DEVELOPERS = ("dev", "docs")
_IMPORT_NAMES = {"faiss-cpu": "faiss", "python-sat": "pysat", "pyyaml": "yaml", "scikit-learn": "sklearn"}


@dataclass(frozen=True)
class Package:
    """One requirement: the distribution `name`, the versions that fit, and the extra it belongs to (None: always)."""

    name: str
    versions: str
    extra: str | None

    @property
    def module(self) -> str:
        """The name under which it is imported."""
        return _IMPORT_NAMES.get(self.name, self.name.replace("-", "_"))

    @property
    def installed(self) -> str | None:
        """The installed version, None when there is none."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    @property
    def fits(self) -> bool:
        """Installed in one of the versions that fit."""
        from packaging.specifiers import SpecifierSet

        found = self.installed
        return found is not None and SpecifierSet(self.versions).contains(found, prereleases=True)


def packages() -> list[Package]:
    """Every requirement of AGL; an extra that contains another lists the packages of both.

    Raises:
        PackageNotFoundError: AGL itself is not installed, only imported from a folder.
    """
    from packaging.requirements import Requirement

    found = []
    for line in metadata.requires("agl") or ():
        wanted = Requirement(line)
        extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", str(wanted.marker))
        if wanted.name != "agl":
            found.append(Package(wanted.name.lower(), str(wanted.specifier), extra[1] if extra else None))
    return found


def extras() -> dict[str, list[Package]]:
    """The packages of each extra for users, the extra with the fewest first.

    Raises:
        PackageNotFoundError: as `packages`.
    """
    found: dict[str, list[Package]] = {}
    for package in packages():
        if package.extra is not None and package.extra not in _FOR_DEVELOPERS:
            found.setdefault(package.extra, []).append(package)
    return dict(sorted(found.items(), key=lambda item: (len(item[1]), item[0])))


def extra_of(module: str) -> str | None:
    """The smallest extra that brings the package imported as `module`; None where none does."""
    try:
        return next((extra for extra, wanted in extras().items() if module in (one.module for one in wanted)), None)
    except (metadata.PackageNotFoundError, ImportError):
        return None
