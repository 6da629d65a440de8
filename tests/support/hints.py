"""Follow a hint to the letter: write what it says at the line that it names."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from tests.support.dependency_manifests import crossplane, package

Documents = list[dict[str, Any]]
_CLUSTER: dict[str, Any] = {"kind": "Cluster"}


def follow(text: str, hint: str) -> str:
    """Return manifests with a hint followed; several steps are joined by "; and "."""
    for step in hint.split("; and "):
        text = _follow_step(text, step[0].upper() + step[1:])
    return text


def _follow_step(text: str, step: str) -> str:
    if match := re.match(r"Write `(.+?)` instead of `(.+?)` .*?:(\d+)(?::\d+)?\b", step):
        new, old, line = match.groups()
        return _replace_in_line(text, int(line), old, new)
    if match := re.match(r"Correct \S+?:(\d+):\d+ \(\w+ '(\S+)' is none of (\w+),", step):
        return _replace_in_line(text, int(match[1]), match[2], match[3])
    for pattern, edit in _EDITS.items():
        if match := re.match(pattern, step):
            documents = [document for document in yaml.safe_load_all(text) if document]
            edit(documents, match)
            return yaml.safe_dump_all(documents, explicit_start=True, sort_keys=False)
    raise AssertionError(f"nobody can follow: {step}")


def _replace_in_line(text: str, number: int, old: str, new: str) -> str:
    """Replace a text in the line, or further below where the line is the first one of a document."""
    lines = text.splitlines(keepends=True)
    place = next(n for n in range(number - 1, len(lines)) if old in lines[n])
    assert "---\n" not in lines[number:place], f"line {number} is about another document"
    lines[place] = lines[place].replace(old, new)
    return "".join(lines)


def _cluster(documents: Documents) -> dict[str, Any]:
    own = next((document for document in documents if document.get("kind") == "Cluster"), None)
    if own is None:
        documents.append(own := dict(_CLUSTER))
    return own


def _named(documents: Documents, kind: str, name: str) -> dict[str, Any]:
    return next(d for d in documents if d.get("kind") == kind and d["metadata"]["name"] == name)


def _write_dependencies(documents: Documents, match: re.Match[str]) -> None:
    written, kind, name = match.groups()
    spec = _named(documents, kind, name)["spec"]
    spec["dependencies"] = {**spec.get("dependencies", {}), **yaml.safe_load(f"{{{written}}}")}


def _annotate(documents: Documents, match: re.Match[str]) -> None:
    written, kind, name = match.groups()
    metadata = _named(documents, kind, name)["metadata"]
    metadata["annotations"] = {**metadata.get("annotations", {}), **yaml.safe_load(written)}


def _configure(documents: Documents, match: re.Match[str]) -> None:
    choices = _cluster(documents).setdefault("choices", {})
    choices.update(yaml.safe_load(match[1]))


def _set_default(documents: Documents, match: re.Match[str]) -> None:
    choices = _cluster(documents).setdefault("choices", {})
    choices["defaults"] = {**choices.get("defaults", {}), match[1]: match[2]}


def _add_package(documents: Documents, match: re.Match[str]) -> None:
    name, ecosystem, version = match.groups()
    _publish(documents, name, ecosystem, version)


def _add_packages(documents: Documents, match: re.Match[str]) -> None:
    for text in re.split(", | and ", match[2]):
        name, _, range_ = text.partition(" ")
        _publish(documents, name, match[1], range_.removeprefix(">="))


def _publish(documents: Documents, name: str, ecosystem: str | None, version: str | None) -> None:
    if ecosystem == "carvel:":
        documents += yaml.safe_load_all(package(name, version or "1.0.0"))
    else:
        documents += yaml.safe_load_all(crossplane(name.rpartition("/")[2], version or "v1.0.0"))


def _install(documents: Documents, match: re.Match[str]) -> None:
    reference = {"refName": match[1], "versionSelection": {"constraints": ""}}
    documents.append(
        {
            "apiVersion": "packaging.carvel.dev/v1alpha1",
            "kind": "PackageInstall",
            "metadata": {"name": "declared", "namespace": "prod"},
            "spec": {"packageRef": reference},
        }
    )


def _import_snapshot(documents: Documents, _: re.Match[str]) -> None:
    needed = [item["gvk"] for d in documents for item in _dependencies(d) if "gvk" in item]
    _cluster(documents)["apis"] = [f"{gvk['apiVersion']}/{gvk['kind']}" for gvk in needed]


def _dependencies(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = document.get("spec", {}).get("dependencies", [])
    return listed if isinstance(listed, list) else []


_EDITS: dict[str, Callable[[Documents, re.Match[str]], None]] = {
    r"Write `(.+)` below spec.dependencies of (\w+) \S+?/(\S+)": _write_dependencies,
    r"Write `(.+)` into the annotations of (\w+) (?:\S+?/)?(\S+)": _annotate,
    r"Write `(.+)` below `dependencies` in reconciler.yaml": _configure,
    r"Run `reconciler index set-default (\S+) (\S+)`": _set_default,
    r"Add all that is missing to the index, .* index add (\w+:)?NAME VERSION.*?`: (.+)": _add_packages,
    r"Add (\S+) to .* or `reconciler index add (\w+:)?\S+ VERSION.*?`(?:, .*is (?:>=)?(.+))?": _add_package,
    r"Install (\S+) with a manifest of its own": _install,
    r"Import the snapshot of cluster": _import_snapshot,
}
