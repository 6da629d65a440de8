"""What holds after every fault: the next run ends as an undisturbed one, and no report claims too much."""

import hashlib
import re
import signal
from collections.abc import Mapping
from typing import Any

import pygit2

from reconciler.base.errors import Exit
from tests.faults.world import FaultWorld, Ran
from tests.support.git import Repo

Refs = Mapping[str, Mapping[str, str]]
_SINCE = re.compile(rb'"since": [^\n]*|since \d{4}-\d\d-\d\d')
_OWN_BRANCH = re.compile(r"refs/heads/reconciler/[^/]+/(state|status)")
CODES = {
    "term": {Exit.PARTIAL},
    "disk": {Exit.UNAVAILABLE},
    "size": {Exit.UNAVAILABLE},
    "descriptors": {Exit.UNAVAILABLE},
    "few-descriptors": {Exit.UNAVAILABLE},
}


def final(world: FaultWorld, lost: re.Pattern[bytes] | None = None) -> dict[str, dict[str, str]]:
    """Return every ref; state and status by content, for a run in two parts records twice.

    `lost` are parts of records that nothing can bring back.
    """
    paths = sorted(world.root.glob("*.git"))
    return {path.name: own_branches_by_content(Repo(path), lost) for path in paths}


def own_branches_by_content(repo: Repo, lost: re.Pattern[bytes] | None = None) -> dict[str, str]:
    """Return the refs of a repository; state and status as the digest of what their commits hold.

    Not the times since which packages stand where they stand: a run in two parts sees more moments.
    """
    return {
        ref: _content(repo, oid, lost) if _OWN_BRANCH.fullmatch(ref) else oid
        for ref, oid in repo.refs().items()
    }


def _content(repo: Repo, commit: str, lost: re.Pattern[bytes] | None) -> str:
    index = pygit2.Index()
    index.read_tree(repo.git[commit].tree)
    texts = ((entry.path, _SINCE.sub(b"", repo.git[entry.id].data)) for entry in index)
    files = sorted((path, lost.sub(b"", text) if lost is not None else text) for path, text in texts)
    return f"content {hashlib.sha256(repr(files).encode()).hexdigest()}"


def check_code(fault: str, ran: Ran, undisturbed: int, where: str) -> None:
    """Check that a faulty run ended as it is documented, or as if nothing had been wrong."""
    if fault == "kill":
        assert ran.code == -signal.SIGKILL, f"{where}: {ran.out}"
        return
    assert ran.code in {*CODES[fault], undisturbed}, f"{where}: exit {ran.code}\n{ran.out}"
    assert "Traceback" not in ran.out, f"{where}: {ran.out}"
    if ran.code != undisturbed:
        assert '"hint": "' in ran.out or "hint: " in ran.out, f"{where}: no hint\n{ran.out}"


def check_report(ran: Ran, before: Refs, after: Refs, where: str) -> None:
    """Check that what the run says it did is there, and that nothing else is."""
    if not ran.effects:
        return
    done = [effect for effect in ran.effects if not effect["error"]]
    failed = {effect["repository"] for effect in ran.effects if effect["error"]}
    for effect in done:
        refs = after.get(f"{effect['repository']}.git", {})
        ref = _full(effect["ref"])
        if effect["what"] in {"pushed", "recorded"}:
            assert refs.get(ref) == effect["oid"], f"{where}: not true: {effect}"
        if effect["what"] == "deleted":
            assert ref not in refs, f"{where}: not true: {effect}"
    for name, ref in _changed(before, after):
        reported = any(_covers(effect, name, ref) for effect in done)
        assert reported or name in failed, f"{where}: {name} {ref} changed, and the report does not say so"


def _covers(effect: Mapping[str, Any], name: str, ref: str) -> bool:
    return effect["repository"] == name and _full(effect["ref"]) == ref


def _changed(before: Refs, after: Refs) -> list[tuple[str, str]]:
    """Return repository and ref of every branch and tag that is not as it was."""
    return [
        (file.removesuffix(".git"), ref)
        for file in after
        for ref in sorted({*before[file], *after[file]})
        if before[file].get(ref) != after[file].get(ref) and ref.startswith(("refs/heads/", "refs/tags/"))
    ]


def _full(ref: str) -> str:
    return ref if ref.startswith("refs/") else f"refs/heads/{ref}"


def check_opened(ran: Ran, opened: int, where: str) -> None:
    """Check that every pull request that the run says it opened is there."""
    claimed = sum(effect["what"] == "opened" and not effect["error"] for effect in ran.effects)
    assert claimed <= opened, f"{where}: {claimed} pull requests are claimed, {opened} were opened"
