"""Where a render wanted here differs from `kpt fn render`: rules over the package and both results.

A rule is a predicate and the name of a row of `docs/contributing/divergences.md`, section Functions. What no
rule explains is a fault.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import yaml

from tests.ecosystem.kpt_rules import ABSENT, differences, documents_of
from tests.support.merges import files_of_bytes, is_yaml

Files = Mapping[str, bytes]
ATTRIBUTION = "cnrm.cloud.google.com/blueprint"
"""By this annotation kpt tells Google that it touched a resource of Config Connector."""


class Render(NamedTuple):
    """A package, what kpt made of it with which words and exit code, and what we did."""

    before: Files
    kpts: Files
    kpts_code: int
    kpts_words: str
    kpts_output: str
    ours: Files
    code: int
    words: str


def unexplained(render: Render) -> list[str]:
    """Return what differs and no rule explains."""
    if any(explains(render) for explains in (*RULES.values(), *COMMANDS)):
        return []
    if bool(render.kpts_code) is not bool(render.code):
        words = (render.kpts_words or "rendered", render.words)
        return [f"kpt exits {render.kpts_code}: {words[0][:300]}; ours {render.code}: {words[1][:600]}"]
    kpts, ours = (_without_kustomizations(files, render) for files in (render.kpts, render.ours))
    return _differing(kpts, ours)


def _without_kustomizations(files: Files, render: Render) -> Files:
    """Leave out what kustomize owns where it was left as it was: the row `kustomization`."""
    names = ("kustomization.yaml", "kustomization.yml", "Kustomization")
    kept = {
        path for path, data in render.before.items() if path.endswith(names) and render.ours.get(path) == data
    }
    return {path: data for path, data in files.items() if path not in kept}


def _differing(kpts: Files, ours: Files) -> list[str]:
    """Return the values that differ; the Kptfile's `status` is kpt's own, and so is the row `attribution`."""
    theirs, mine = (documents_of(files_of_bytes(files)) for files in (kpts, ours))
    for key, document in theirs.items():
        own, annotations = _annotations(mine.get(key)), _annotations(document)
        if ATTRIBUTION not in own and annotations.pop(ATTRIBUTION, "") and not annotations and not own:
            del document["metadata"]["annotations"]
    found = []
    for key in sorted(theirs.keys() | mine.keys(), key=str):
        values = [ABSENT, ABSENT, ABSENT, theirs.get(key, ABSENT), mine.get(key, ABSENT)]
        for at, (*_, kpt, our) in differences((), values):
            if at[:1] != ("status",):
                found.append(
                    f"{key[0]} {key[1]} {'.'.join(map(str, at))}: kpt {str(kpt)[:200]}, ours {str(our)[:200]}"
                )
    return found


def _annotations(document: Any) -> dict[str, Any]:
    """Return the annotations of a resource of Config Connector, none of others."""
    if not isinstance(document, dict) or ".cnrm." not in str(document.get("apiVersion")):
        return {}
    metadata = document.get("metadata")
    return (metadata.get("annotations") or {}) if isinstance(metadata, dict) else {}


def _is_not_built_in(render: Render) -> bool:
    kptfiles = b"".join(data for path, data in render.before.items() if path.endswith("Kptfile")).decode()
    images = re.findall(r"^ *(?:- )?(?:image|exec): *[\"']?(.+?)[\"']?(?: +#.*)?$", kptfiles, re.MULTILINE)
    named = any(f"{image}: It is not built in" in render.words for image in images)
    return render.code == 4 and named and render.ours == render.before


def _is_no_resource(render: Render) -> bool:
    """kpt stops at YAML documents that are no resources; here their files stay as they are."""
    refused = "must contain only KRM resources" in render.kpts_words
    documents = documents_of(files_of_bytes(render.before)).items()
    others = {key[0] for key, document in documents if is_yaml(key[0]) and not _is_resource(document)}
    kept = all(render.ours.get(path) == render.before[path] for path in others)
    return refused and render.code == 0 and bool(others) and kept


def _is_resource(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    return all((document.get("apiVersion"), document.get("kind"), document["metadata"].get("name")))


def _is_printed(render: Render) -> bool:
    """kpt was told to print the package instead of writing it, perhaps to functions that add to it."""
    if not render.kpts_output.strip() or render.kpts != render.before or render.code:
        return False
    printed = [d for d in yaml.load_all(render.kpts_output, yaml.BaseLoader) if d]
    items = printed[0]["items"] if printed[0]["kind"] == "ResourceList" else printed
    written = documents_of(files_of_bytes(render.ours)).values()
    resources = [document for document in written if isinstance(document, dict) and "kind" in document]
    return len(items) == len(resources) and all(any(_is_within(r, item) for item in items) for r in resources)


def _is_within(value: Any, whole: Any) -> bool:
    if isinstance(value, dict) and isinstance(whole, dict):
        return all(key in whole and _is_within(child, whole[key]) for key, child in value.items())
    return bool(value == whole)


def _has_output_directory(render: Render) -> bool:
    """kpt was told to write into a directory, and it was there."""
    return 'directory "out" already exists' in render.kpts_words and not render.code


RULES: dict[str, Callable[[Render], bool]] = {
    "not-built-in": _is_not_built_in,
    "no-resource": _is_no_resource,
}
COMMANDS = (_is_printed, _has_output_directory)
"""Commands of kpt that a recorded case does not name."""
