"""Random packages and what two people make of them: a base, an upstream's edits, a downstream's edits.

Choices come from a `Chooser`, so that hypothesis can draw and shrink them.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Draw = Callable[[int], int]
"""Returns a number in [0, n)."""


@dataclass(frozen=True)
class Chooser:
    """Makes the choices of one example."""

    draw: Draw

    def one(self, options: Sequence[T]) -> T:
        return options[self.draw(len(options))]

    def chance(self, percent: int) -> bool:
        return self.draw(100) >= 100 - percent


@dataclass
class Resource:
    """One resource as data, with line comments by path, in a file."""

    file: str
    data: dict[str, Any]
    notes: dict[tuple[Any, ...], str] = field(default_factory=dict)


Package = list[Resource]
WORDS = ("alpha", "beta", "gamma", "delta", "some words", "a: b", "1", "true", "x/y:z", "")
SCALARS = (*WORDS, 1, 2, 80, 8080, True, False)


@dataclass
class Example:
    """Three sides as texts by path."""

    base: dict[str, str]
    upstream: dict[str, str]
    local: dict[str, str]


def draw_example(chooser: Chooser) -> Example:
    """Draw a package and the edits of both sides; most edit the same resource."""
    base = _package(chooser)
    focus = chooser.draw(len(base))
    sides = []
    wide = chooser.chance(20)
    kptfile = _kptfile(chooser)
    for _ in range(2):
        package, header = deepcopy(base), deepcopy(kptfile)
        _edit(chooser, package, focus)
        if chooser.chance(40):
            _edit_kptfile(chooser, header)
        sides.append(_texts(package, header, wide=wide))
    return Example(_texts(base, kptfile, wide=wide), *sides)


def _kptfile(chooser: Chooser) -> dict[str, Any]:
    named = chooser.chance(40)
    functions = [_function(number, named=named) for number in range(chooser.draw(4))]
    header = {**_meta("Kptfile", "kpt.dev/v1", "pkg"), "info": {"description": "old", "keywords": ["a"]}}
    return {**header, "pipeline": {"mutators": functions}} if functions else header


def _function(number: int, *, named: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"image": f"fn{number}:v1", "configMap": {"a": "x", "b": "x"}}
    return {**function, "name": f"f{number}"} if named else function


def _edit_kptfile(chooser: Chooser, header: dict[str, Any]) -> None:
    functions = header.get("pipeline", {}).get("mutators", [])
    kind = chooser.draw(5)
    if kind == 0 or not functions:
        header["info"]["description"] = chooser.one(("new", "other"))
    elif kind == 1:
        functions.append(_function(5 + chooser.draw(2), named="name" in functions[0]))
    elif kind == 2:
        header["metadata"].setdefault("labels", {})[chooser.one(("k", "l"))] = chooser.one(("x", "y"))
    else:
        function = chooser.one(functions)
        if kind == 3:
            function["image"] = function["image"].replace(":v1", chooser.one((":v2", ":v3")))
        else:
            function["configMap"][chooser.one(("a", "c"))] = chooser.one(("up", "mine"))


def _package(chooser: Chooser) -> Package:
    makers = (_deployment, _service, _config_map, _custom, _deployment, _definition)
    package: Package = []
    for number in range(1 + chooser.draw(3)):
        file = chooser.one(("r.yaml", "r.yaml", "a/b.yaml"))
        package.append(Resource(file, chooser.one(makers)(chooser, f"n{number}")))
    for resource in package:
        _annotate(chooser, resource)
    return package


def _meta(kind: str, version: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def _deployment(chooser: Chooser, name: str) -> dict[str, Any]:
    containers = [_container(chooser, f"c{number}") for number in range(1 + chooser.draw(3))]
    spec: dict[str, Any] = {"containers": containers}
    if chooser.chance(40):
        spec["volumes"] = [{"name": f"v{number}", "emptyDir": {}} for number in range(1 + chooser.draw(2))]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {**_meta("Deployment", "apps/v1", name), "spec": {"replicas": 1, "template": template}}


def _container(chooser: Chooser, name: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": name, "image": f"{name}:1"}
    if chooser.chance(50):
        container["env"] = [
            {"name": f"E{n}", "value": chooser.one(WORDS)} for n in range(1 + chooser.draw(3))
        ]
    if chooser.chance(40):
        container["ports"] = [
            {"containerPort": 80 + n, "protocol": "TCP"} for n in range(1 + chooser.draw(2))
        ]
    if chooser.chance(40):
        container["args"] = [f"--a{n}" for n in range(1 + chooser.draw(3))]
    if chooser.chance(30):
        container["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    return container


def _service(chooser: Chooser, name: str) -> dict[str, Any]:
    ports = [{"port": 80 + n, "protocol": "TCP", "name": f"p{n}"} for n in range(1 + chooser.draw(3))]
    return {**_meta("Service", "v1", name), "spec": {"selector": {"app": name}, "ports": ports}}


def _config_map(chooser: Chooser, name: str) -> dict[str, Any]:
    data = {f"k{n}": chooser.one((*WORDS, "l1\nl2\n", "l1\nl2\nl3")) for n in range(1 + chooser.draw(4))}
    return {**_meta("ConfigMap", "v1", name), "data": data}


def _custom(chooser: Chooser, name: str) -> dict[str, Any]:
    shops = [{"name": f"s{n}", "price": n} for n in range(1 + chooser.draw(3))]
    spec = {"shops": shops, "deep": {"er": {"a": 1, "b": [1, 2]}}, "flag": True}
    return {**_meta("Market", "example.com/v1", name), "spec": spec}


def _definition(chooser: Chooser, name: str) -> dict[str, Any]:
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"properties": {"shops": items}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.org", "names": {"kind": f"K{chooser.draw(3)}"}, "versions": [version]}
    return {
        **_meta("CustomResourceDefinition", "apiextensions.k8s.io/v1", f"{name}.example.org"),
        "spec": spec,
    }


def _annotate(chooser: Chooser, resource: Resource) -> None:
    for path, value in list(_leaves(resource.data)):
        if len(path) > 1 and not isinstance(value, (dict, list)) and chooser.chance(8):
            resource.notes[path] = chooser.one(("kpt-set: ${x}", "why", "keep"))


def _edit(chooser: Chooser, package: Package, focus: int) -> None:
    for _ in range(1 + chooser.draw(3)):
        index = focus if chooser.chance(75) else chooser.draw(len(package))
        if index >= len(package):
            continue
        resource = package[index]
        kind = chooser.draw(20)
        if kind == 0:
            package.append(Resource("r.yaml", _config_map(chooser, f"new{chooser.draw(2)}")))
        elif kind == 1 and len(package) > 1:
            del package[index]
        elif kind == 2:
            _note(chooser, resource)
        else:
            _edit_data(chooser, resource)


def _note(chooser: Chooser, resource: Resource) -> None:
    leaves = [
        path
        for path, value in _leaves(resource.data)
        if len(path) > 1 and not isinstance(value, (dict, list))
    ]
    resource.notes[chooser.one(leaves)] = chooser.one(("kpt-set: ${y}", "changed"))


def _edit_data(chooser: Chooser, resource: Resource) -> None:
    places = [path for path, _ in _leaves(resource.data) if path[0] not in ("apiVersion", "kind", "metadata")]
    lists = [path for path, value in _leaves(resource.data) if isinstance(value, list)]
    path = chooser.one(lists) if lists and chooser.chance(35) else chooser.one(places)
    value = _at(resource.data, path)
    if isinstance(value, list):
        _edit_list(chooser, value)
    elif isinstance(value, dict):
        value[f"new{chooser.draw(3)}"] = chooser.one(SCALARS)
    else:
        parent, key = _at(resource.data, path[:-1]), path[-1]
        if isinstance(parent, dict) and chooser.chance(20) and len(parent) > 1 and key not in _KEYS:
            del parent[key]
            resource.notes.pop(path, None)
        elif key not in _KEYS:
            parent[key] = _other(chooser, value)


_KEYS = ("name", "port", "containerPort", "protocol")


def _other(chooser: Chooser, value: Any) -> Any:
    same = [option for option in SCALARS if type(option) is type(value) and option != value]
    if isinstance(value, str) and "\n" in value:
        return f"{chooser.one(('l1', 'L1'))}\nl2\n{chooser.one(('x', 'y'))}\n"
    return chooser.one(same) if same else value


def _edit_list(chooser: Chooser, items: list[Any]) -> None:
    kind = chooser.draw(4)
    if kind == 0 and len(items) > 1:
        del items[chooser.draw(len(items))]
    elif kind == 1 and len(items) > 1:
        items.reverse()
    elif items and isinstance(items[0], dict):
        new = deepcopy(items[0])
        for key in _KEYS[:3]:
            if (key in new and key != "name") or (
                key == "name" and "port" not in new and "containerPort" not in new
            ):
                new[key] = f"new{chooser.draw(3)}" if key == "name" else 9000 + chooser.draw(3)
        if kind == 2:
            items.append(new)
        else:
            items[chooser.draw(len(items))][f"f{chooser.draw(2)}"] = chooser.one(SCALARS)
        if len({repr([item.get(k) for k in _KEYS]) for item in items}) < len(items):
            items.pop()
    else:
        items.append(chooser.one(("new", "other")) if not items or isinstance(items[0], str) else 7)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _leaves(child, (*path, index))


def _at(value: Any, path: Sequence[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


def _texts(package: Package, header: dict[str, Any], *, wide: bool) -> dict[str, str]:
    files: dict[str, list[str]] = {"Kptfile": [_block(header, {}, (), 0, wide=wide)]}
    for resource in package:
        files.setdefault(resource.file, []).append(_block(resource.data, resource.notes, (), 0, wide=wide))
    return {path: "---\n".join(documents) for path, documents in files.items()}


def _block(
    value: Any, notes: dict[tuple[Any, ...], str], path: tuple[Any, ...], indent: int, *, wide: bool
) -> str:
    lines = []
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        at = (*path, key)
        note = f" # {notes[at]}" if at in notes else ""
        lead = " " * indent + (f"{key}:" if isinstance(value, dict) else "-")
        if isinstance(child, (dict, list)) and child:
            if isinstance(value, list):
                inner = _block(child, notes, at, indent + 2, wide=wide)
                lines.append(f"{lead} {inner.lstrip()}")
            else:
                step = 2 if isinstance(child, dict) or wide else 0
                lines.append(f"{lead}{note}\n" + _block(child, notes, at, indent + step, wide=wide))
        elif isinstance(child, str) and "\n" in child:
            body = "".join(f"{' ' * (indent + 2)}{line}\n" for line in child.splitlines())
            lines.append(f"{lead} |{'' if child.endswith(chr(10)) else '-'}\n{body}")
        else:
            lines.append(f"{lead} {_scalar(child)}{note}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = value and value not in ("1", "true") and ": " not in value
        return value if plain else f'"{value}"'
    return "{}" if value == {} else "[]" if value == [] else str(value)
