"""What agents read of a package: as `kubectl apply -R` takes each file, with the kinds that a cluster has."""

from collections.abc import Iterator
from pathlib import Path

import pygit2

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE
from reconciler.functions.pipeline import declared_steps
from reconciler.krm.schema import served_everywhere
from reconciler.krm.values import value_at
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.objects import File, Files

ENDINGS = (".json", ".yaml", ".yml")
LOCAL_CONFIG = "config.kubernetes.io/local-config"
HOOK = "argocd.argoproj.io/hook"


def refused(files: Files, *groups: str) -> list[str]:
    """Return the files that an agent stumbles over, with reasons.

    A cluster knows the kinds of Kubernetes, those that the package brings, and those of `groups`. What a
    Kptfile names as configuration of a function has to stay for kpt: it is marked, so that agents pass it by.
    """
    brought = {value_at(each, "spec", "names", "kind") for _, each in _documents(files)}
    configs = {f"{each.package}/{each.config_path}".lstrip("/") for each in declared_steps(files)}
    return [
        f"{path}: {value_at(value, 'kind')}"
        for path, value in _documents(files)
        if not (_is_marked(value) and path in configs)
        and not _is_known(value, groups)
        and value_at(value, "kind") not in brought
    ]


def unmarked(files: Files) -> list[str]:
    """Return the local configuration that Argo CD applies; the guide excludes the package context."""
    return [
        path
        for path, value in _documents(files)
        if value_at(value, "metadata", "annotations", LOCAL_CONFIG) == "true"
        and value_at(value, "metadata", "annotations", HOOK) != "Skip"
        and path.rpartition("/")[2] != PACKAGE_CONTEXT_FILE
    ]


def packages_at(repository: Path, ref: str) -> Iterator[Files]:
    """Yield the packages of ours in a tree, without their place in it."""
    odb = pygit2.Repository(str(repository))
    files = {path: File.of(data) for path, data in _blobs(odb.revparse_single(f"{ref}^{{tree}}"))}
    for path, file in files.items():
        if path.endswith(f"/{KPTFILE}") and b"reconciler.dev/owner" in file.data:
            start = path.removesuffix(KPTFILE)
            yield {p.removeprefix(start): f for p, f in files.items() if p.startswith(start)}


def _blobs(tree: pygit2.Object, start: str = "") -> Iterator[tuple[str, bytes]]:
    assert isinstance(tree, pygit2.Tree)
    for entry in tree:
        if isinstance(entry, pygit2.Blob):
            yield f"{start}{entry.name}", entry.data
        elif isinstance(entry, pygit2.Tree):
            yield from _blobs(entry, f"{start}{entry.name}/")


def _documents(files: Files) -> Iterator[tuple[str, object]]:
    for path, file in sorted(files.items()):
        if path.endswith(ENDINGS):
            try:
                documents = [each.value for each in load_documents(file.data)]
            except YamlError:
                documents = []
            yield from ((path, value) for value in documents or ["nothing that is YAML"])


def _is_known(value: object, groups: tuple[str, ...]) -> bool:
    api, kind = str(value_at(value, "apiVersion")), str(value_at(value, "kind"))
    is_served = api.partition("/")[0] in groups or served_everywhere(f"{api}/{kind}") is True
    return is_served and bool(value_at(value, "metadata", "name"))


def _is_marked(value: object) -> bool:
    return value_at(value, "metadata", "annotations", LOCAL_CONFIG) == "true"
