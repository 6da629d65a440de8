"""generate-folders and enable-gcp-services: resources of Config Connector, made from lists of names."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.functions.builtin.call import (
    BuiltinCall,
    FunctionFailedError,
    as_text,
    ensure_mapping,
    file_of,
)
from reconciler.functions.protocol import FunctionResult, default_path, path_below
from reconciler.functions.resources import LOCAL_CONFIG, Resource
from reconciler.krm.values import mapping_at, value_at

_HIERARCHY: Final = "ResourceHierarchy"
_LAYERS, _ANNOTATED, _REFERRING = (
    "cft.dev/v1alpha1",
    "cft.dev/v1alpha2",
    "blueprints.cloud.google.com/v1alpha3",
)
_FOLDER: Final = "resourcemanager.cnrm.cloud.google.com/v1beta1"
_SERVICE_SET: Final = "blueprints.cloud.google.com/v1alpha1"
_SERVICE: Final = "serviceusage.cnrm.cloud.google.com/v1beta1"
_OWNER: Final = "blueprints.cloud.google.com/ownerReference"
_NOT_INHERITED: Final = frozenset((LOCAL_CONFIG, "config.k8s.io/function"))
_Tree = list[tuple[str, Any]]
"""Folders with the folders in each, which subtrees share."""


def generate_folders(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Make a Folder of each folder of every ResourceHierarchy.

    Source: kpt-functions-catalog functions/ts/generate-folders at v0.1.1.
    Differs: an error in a hierarchy fails the step; a folder that is there keeps its file.
    """
    for hierarchy in [item for item in call.items if item.kind == _HIERARCHY]:
        if hierarchy.api_version in (_LAYERS, _ANNOTATED):
            yield FunctionResult(
                f"ResourceHierarchy {hierarchy.name} references an older Resource Hierarchy GroupVersion."
                f" Latest GroupVersion is {_REFERRING}.",
                "warning",
                file=file_of(hierarchy),
            )
        if hierarchy.api_version == _LAYERS:
            config = mapping_at(hierarchy.value, "spec", "config")
            layers = [as_text(layer) for layer in value_at(hierarchy.value, "spec", "layers") or ()]
            organization = as_text(value_at(hierarchy.value, "spec", "organization"))
            tree = _layer_tree(hierarchy, layers, config)
            folders = _folders(hierarchy, tree, "Organization", organization, {})
        elif hierarchy.api_version in (_ANNOTATED, _REFERRING):
            parent = mapping_at(hierarchy.value, "spec", "parentRef")
            if parent.get("external") is None:
                raise FunctionFailedError(f"ResourceHierarchy {hierarchy.name} has an undefined parentRef")
            kind = parent.get("kind") or "Organization"
            if kind not in ("Organization", "Folder"):
                raise FunctionFailedError(
                    f"ResourceHierarchy {hierarchy.name} has an unsupported parentRef kind"
                )
            inherited = {k: v for k, v in hierarchy.annotations.items() if k not in _NOT_INHERITED}
            # A subtree may use those before it.
            subtrees: dict[str, _Tree] = {}
            for name, children in mapping_at(hierarchy.value, "spec", "subtrees").items():
                subtrees[name] = _children(hierarchy, children, subtrees)
            tree = _children(hierarchy, value_at(hierarchy.value, "spec", "config"), subtrees)
            folders = _folders(hierarchy, tree, kind, as_text(parent["external"]), inherited)
        else:
            continue
        for folder in folders:
            _insert(call, folder)


def _layer_tree(hierarchy: Resource, layers: list[str], config: Mapping[str, Any]) -> _Tree:
    if not layers:
        return []
    if layers[0] not in config:
        raise FunctionFailedError(
            f'Layer "{layers[0]}" of ResourceHierarchy {hierarchy.name} has no entry in spec.config'
        )
    below = _layer_tree(hierarchy, layers[1:], config)
    return [(as_text(name), below) for name in config[layers[0]] or ()]


def _children(hierarchy: Resource, value: Any, subtrees: Mapping[str, _Tree]) -> _Tree:
    if not isinstance(value, list):
        raise FunctionFailedError(f"ResourceHierarchy {hierarchy.name} has folders that are no list")
    tree: _Tree = []
    for child in value:
        if isinstance(child, str):
            tree.append((child, []))
        elif isinstance(child, dict) and len(child) == 1:
            ((name, below),) = child.items()
            subtree = below.get("$subtree") if isinstance(below, dict) else None
            if subtree is None:
                tree.append((name, _children(hierarchy, below, subtrees)))
            elif subtree in subtrees:
                tree.append((name, subtrees[subtree]))
            else:
                raise FunctionFailedError(
                    f'ResourceHierarchy {hierarchy.name} references non-existent subtree "{subtree}"'
                )
        elif child is not None:
            raise FunctionFailedError(
                f"ResourceHierarchy {hierarchy.name} has the folder {child!r}, which is no name and no name"
                " with a list"
            )
    return tree


def _folders(
    hierarchy: Resource, tree: _Tree, kind: str, external: str, inherited: Mapping[str, Any], *path: str
) -> Iterator[Resource]:
    refers = hierarchy.api_version == _REFERRING
    for name, below in tree:
        above = _normalized(".".join(path) or external)
        annotations, spec = dict(inherited), {"displayName": name}
        if refers:
            reference = {"name": above} if path else {"external": external}
            spec["organizationRef" if kind == "Organization" and not path else "folderRef"] = reference  # type: ignore[assignment] # a mapping
        else:
            by_organization = kind == "Organization" and not path
            suffix = "organization-id" if by_organization else "folder-ref"
            annotations[f"cnrm.cloud.google.com/{suffix}"] = above
        metadata: dict[str, Any] = {"name": _normalized(".".join((*path, name)))}
        if annotations:
            metadata["annotations"] = annotations
        if hierarchy.namespace:
            metadata["namespace"] = hierarchy.namespace
        value = {"apiVersion": _FOLDER, "kind": "Folder", "metadata": metadata, "spec": spec}
        folder = Resource(value, package=hierarchy.package)
        folder.path = path_below(hierarchy.package, default_path(folder))
        yield folder
        yield from _folders(hierarchy, below, kind, external, inherited, *path, name)


def _normalized(name: str) -> str:
    """Return a name as Kubernetes takes it; the blanks that are left are no dashes upstream either."""
    name = re.sub(r"[_ ]", "-", re.sub(r"['\"]", "", name.lower()))
    return re.sub(r"[^a-z0-9.\- ]", "", name)


def _insert(call: BuiltinCall, new: Resource) -> None:
    old = next((item for item in call.items if _key(item) == _key(new)), None)
    if old is None:
        call.items.append(new)
    else:
        old.value = new.value


def _key(item: Resource) -> tuple[str, ...]:
    return item.api_version, item.kind, item.namespace, item.name


def enable_gcp_services(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Make a Service of each service of every ProjectServiceSet, and remove those that it made before.

    Source: kpt-functions-catalog functions/go/enable-gcp-services at v0.1.0.
    Differs: a service that is made again keeps its comments.
    """
    results: list[FunctionResult] = []
    made: list[Resource] = []
    for service_set in [
        e for e in call.items if (e.api_version, e.kind) == (_SERVICE_SET, "ProjectServiceSet")
    ]:
        ensure_mapping(service_set.value, "metadata", "annotations")[LOCAL_CONFIG] = "true"
        owner = f"{_SERVICE_SET.partition('/')[0]}/{service_set.kind}/{service_set.name}"
        owned = {id(item): item for item in call.items if item.annotations.get(_OWNER) == owner}
        call.items[:] = [item for item in call.items if id(item) not in owned]
        for new in _services(service_set, owner):
            old = next((item for item in owned.values() if _key(item) == _key(new)), None)
            if old is not None:
                del owned[id(old)]
                old.value, old.path = new.value, new.path
            made.append(old or new)
            results.append(
                _service_result("recreated service" if old is not None else "generated service", new)
            )
        results += [_service_result("pruned service", item) for item in owned.values()]
    call.items += made
    yield from sorted(results, key=lambda result: (str((result.file or {}).get("path")), result.message))


def _services(service_set: Resource, owner: str) -> Iterator[Resource]:
    listed = value_at(service_set.value, "spec", "services")
    if not isinstance(listed, list) or not listed:
        raise FunctionFailedError(
            "failed to add services: at least one service must be specified under `spec.services[]`"
        )
    project = as_text(value_at(service_set.value, "spec", "projectID"))
    inherited = {name: text for name, text in service_set.annotations.items() if name != LOCAL_CONFIG}
    for service in map(as_text, listed):
        short, *rest = service.split(".")
        if len(rest) < 2:  # noqa: PLR2004 - such as compute.googleapis.com
            raise FunctionFailedError(f"failed to add services: invalid service specified: {service}")
        metadata: dict[str, Any] = {
            "name": f"{service_set.name}-{short}",
            "annotations": {**inherited, _OWNER: owner},
        }
        if service_set.namespace:
            metadata["namespace"] = service_set.namespace
        spec: dict[str, Any] = {"resourceID": service}
        if project:
            spec["projectRef"] = {"external": project}
        new = Resource(
            {"apiVersion": _SERVICE, "kind": "Service", "metadata": metadata, "spec": spec},
            package=service_set.package,
        )
        new.path = posixpath.join(posixpath.dirname(service_set.path), default_path(new))
        yield new


def _service_result(message: str, service: Resource) -> FunctionResult:
    reference = {
        "apiVersion": service.api_version,
        "kind": service.kind,
        "name": service.name,
        "namespace": service.namespace,
    }
    return FunctionResult(
        message, "info", {k: v for k, v in reference.items() if v}, file={"path": service.file}
    )
