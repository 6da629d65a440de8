"""Shards: which part of a fleet one of several runs side by side is responsible for (D16)."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from reconciler.base.errors import UsageError
from reconciler.base.lazy import regex
from reconciler.names.ids import PackageKey

INDEX = "JOB_COMPLETION_INDEX"
MOST = 1000

_SHARD = regex(r"(auto|[0-9]{1,4})/([0-9]{1,4})")


class Shard(NamedTuple):
    """One of `parts`, numbered from 0; or the one repository with the URL `only`, to ask about it."""

    part: int = 0
    parts: int = 1
    only: str = ""

    def __str__(self) -> str:
        """Return it as `--shard` takes it; nothing for the whole fleet."""
        return f"{self.part}/{self.parts}" if self.parts > 1 and not self.only else ""

    def holds(self, url: str) -> bool:
        """Tell whether a downstream repository, by its normalised URL, is this shard's."""
        if self.only:
            return url == self.only
        return self.parts == 1 or shard_of(url, self.parts) == self.part

    def others(self) -> Iterator["Shard"]:
        """Yield the other shards of the same run."""
        yield from (Shard(part, self.parts) for part in range(self.parts) if part != self.part)


WHOLE = Shard()


def dashboard_file(shard: Shard) -> str:
    """Return the path of a shard's part of the dashboard on the status branch."""
    return f"dashboard-{shard.part}-of-{shard.parts}.md" if shard.parts > 1 else "dashboard.md"


@cache
def shard_of(url: str, count: int) -> int:
    """Return the one shard of `count` that a repository belongs to.

    Total and deterministic: it depends on the repository's identity alone, so every package of a
    repository has one writer. With one shard more only the repositories that the new one gets
    move (rendezvous hashing).
    """
    return max(range(count), key=lambda index: (hashlib.sha256(f"{index}\0{url}".encode()).digest(), index))


def parse_shard(text: str, environment: Mapping[str, str]) -> Shard:
    """Return the shard that `I/N` names, I from 0; `auto/N` takes I from a Kubernetes Indexed Job.

    Raises:
        UsageError: It names no shard.
    """
    if not text:
        return WHOLE
    match = _SHARD.fullmatch(text)
    hint = "Give I/N with I from 0 to N-1, or auto/N in an Indexed Job."
    if match is None:
        raise UsageError(f"{text!r} is no shard", hint=hint)
    index = environment.get(INDEX, "") if match[1] == "auto" else match[1]
    if not re.fullmatch(r"[0-9]{1,4}", index):
        raise UsageError(f"{text!r} needs {INDEX}, which is {index!r}", hint=hint)
    shard = Shard(int(index), int(match[2]))
    if not shard.part < shard.parts <= MOST:
        raise UsageError(f"There is no shard {shard.part} of {shard.parts}", hint=hint)
    return shard


class OtherFiles(Struct, frozen=True):
    """The files of the state and status branches that other shards than this one write.

    `owners` are the packages that files are about: they cost much, and a plan that is not applied needs none.
    """

    shard: Shard
    owners: Mapping[str, PackageKey]

    def __contains__(self, path: object) -> bool:
        package = self.owners.get(path) if isinstance(path, str) else None
        if package is not None:
            return not self.shard.holds(package.url)
        return any(path == dashboard_file(other) for other in self.shard.others())


def files_of_other_shards(shard: Shard, owners: Mapping[str, PackageKey]) -> OtherFiles | None:
    """Return the files of the state and status branches that other shards write; None without shards.

    The shards of a plan hold each of its packages exactly once, and one of them proposes the lock. Problems
    and refusals are everybody's. `owners` has the package that each file is about.
    """
    return OtherFiles(shard, owners) if shard.parts > 1 else None
