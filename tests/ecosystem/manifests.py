"""Manifests of other tools: each is understood, or refused at its line."""

from pathlib import Path
from typing import Any

import yaml

from tests.ecosystem.fleet import CONFIGURATION
from tests.ecosystem.session import Session, read_files, write_files
from tests.support.git import run
from tests.support.merges import documents

DONE_OR_INVALID = 0, 3
NAMES = {
    "carvel": lambda document, _: document["spec"]["refName"],
    "crossplane": lambda _, directory: f"xpkg.upbound.io/upbound/{directory.parent.name}",
    "porter": lambda document, _: f"localhost:5000/{document['name']}",
}
"""How the package of a manifest is called where it is published."""


def run_manifests(session: Session, directory: Path) -> None:
    """Validate every manifest; put each version of a package into an index, and list what it needs."""
    kind = directory.parent.name
    for path in sorted(read_files(directory)):
        if path.endswith((".yaml", ".yml", ".json")):
            _validate(session, directory / path)
    if kind not in NAMES:
        return
    control = write_files(session.root / "control", {"reconciler.yaml": CONFIGURATION.encode()})
    run("init", "-q", cwd=control)
    asked: dict[str, dict[str, tuple[Path, int]]] = {}
    for file in sorted(directory.rglob("*.yaml")):
        document = next((d for d in yaml.safe_load_all(file.read_text()) if d), {})
        if file.name == "metadata.yaml" or not isinstance(document, dict):
            continue
        name = NAMES[kind](document, file.parent)
        version = str(
            document.get("version") or (document.get("spec") or {}).get("version") or file.parent.name
        )
        add = ("index", "add", name, version, "--manifest", file, "--control", control)
        added = session.run(*add, allowed=(0, 3, 4))
        located = file.name in added["text"] or "exists already" in added["text"]
        session.law(not added["code"] or located, f"unlocated: {added['text'][:500]}")
        if not added["code"]:
            asked.setdefault(name, {})[version] = file, _asked(document)
    for name, versions in asked.items():
        shown = session.run("index", "show", name, "-o", "json", "--control", control)
        listed = {each["version"]: len(each["needs"]) for each in shown["items"]}
        for version, (file, number) in versions.items():
            session.law(
                listed.get(version) == number, f"needs: {listed.get(version)} of {number} listed of {file}"
            )
    session.keep("index", read_files(control / "index"))


def _validate(session: Session, file: Path) -> None:
    """A file is valid, its kind is named as unread, or each problem of it has its place."""
    ran = session.run("validate", file, "-o", "json", allowed=DONE_OR_INVALID)
    problems = ran["problems"]
    session.law(ran["code"] == 0 or problems, f"unlocated: {file}: {ran['text'][:500]}")
    for problem in problems:
        location = problem["location"]
        session.law(location["path"] and location["line"] > 0 and problem["message"], f"unlocated: {problem}")
    empty = documents(file.read_bytes()) == []
    understood = ran["manifests"] or "are not read" in "".join(ran["notes"]) or problems or empty
    session.law(understood, f"unread: {file}: {ran['text'][:500]}")


def _asked(document: dict[str, Any]) -> int:
    """Return how many dependencies a manifest names."""
    spec = document.get("spec") or {}
    requires = (document.get("dependencies") or {}).get("requires") or []
    return len(spec.get("dependsOn") or requires)
