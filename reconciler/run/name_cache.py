"""Names of a fleet that the last run saw, kept in the cache for the completion of shells.

Needs nothing but the standard library: a shell waits for each completion.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.inventory.inventory import Inventory

_MOST = 20_000
"""Names of one kind that are kept."""


def read_names(cache_dir: Path, control: str, kind: str) -> list[str]:
    """Return kept names: `packages`, `sets`, `repositories`, `clusters` or `variants`. Total."""
    try:
        names = json.loads(_file(cache_dir, control).read_bytes())[kind]
        return [name for name in names if isinstance(name, str)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def keep_names(cache_dir: Path, control: str, inventory: "Inventory") -> None:
    """Keep the names of a fleet. A failure is ignored: there is nothing to complete then."""
    kinds = {
        "packages": _packages(inventory),
        "sets": iter(str(pvs.key) for pvs in inventory.sets),
        "repositories": iter(key.name for key in inventory.repositories),
        "clusters": iter(view.cluster for view in inventory.repositories.values() if view.deployment),
        "variants": _variants(inventory),
    }
    data = json.dumps({kind: sorted(set(islice(names, _MOST))) for kind, names in kinds.items()}).encode()
    file = _file(cache_dir, control)
    with suppress(OSError):
        if file.is_file() and file.read_bytes() == data:
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Write and rename: a shell may read the file meanwhile.
        with NamedTemporaryFile(dir=file.parent, delete=False) as new:
            new.write(data)
        Path(new.name).replace(file)


def default_cache() -> Path:
    """Return the directory of mirrors in the user's cache directory (XDG)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "reconciler"


def _file(cache_dir: Path, control: str) -> Path:
    """Return the file of a control repository: the same one from anywhere in a working copy."""
    place = control
    if "://" not in control:
        path = Path(control).absolute()
        copies = (each for each in (path, *path.parents) if (each / ".git").exists())
        place = str(next(copies, path))
    return cache_dir / "names" / f"{sha256(place.encode()).hexdigest()[:32]}.json"


def _packages(inventory: "Inventory") -> Iterator[str]:
    directories = {(view.url, view.key.name): view.directory for view in inventory.repositories.values()}
    for view in inventory.repositories.values():
        below = f"{view.directory}/" if view.directory else ""
        yield from (f"{view.key.name}/{path.removeprefix(below)}" for path in view.packages)
    for record in inventory.records.values():
        directory = directories.get((record.url, record.repository))
        if directory is not None:
            below = f"{directory}/" if directory else ""
            yield f"{record.repository}/{record.path.removeprefix(below)}"
    for variant in inventory.variants:
        if downstream := variant.manifest.spec.downstream:
            yield f"{downstream.repo}/{downstream.package}"


def _variants(inventory: "Inventory") -> Iterator[str]:
    yield from (str(variant.key) for variant in inventory.variants)
    yield from (str(key) for key in inventory.records)
