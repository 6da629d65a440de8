"""Impact of a change on its package: size and identity of the difference, and the risks in it. Pure."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from difflib import unified_diff
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE
from reconciler.functions.resource import LOCAL_CONFIG
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.ids import GroupKind, Oid
from reconciler.names.objects import File, Files
from reconciler.policy import RiskPolicy
from reconciler.policy.risks import REGISTRY, REMOVAL

_DOCKER: Final = "docker.io"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_OWN_FILES: Final = frozenset({KPTFILE, PACKAGE_CONTEXT_FILE})
_OWN_NAME: Final = "own-name-of-package"
_LONGEST_DIFF: Final = 4_000_000
"""Product of the lines of both sides; beyond it files are compared as a whole, which takes linear time."""


class Risk(NamedTuple):
    """One risk: its class, the action, and the resource or image; the lowest weight is the worst."""

    category: str
    action: str
    subject: str
    weight: int = 0


class Impact(Struct, frozen=True):
    """Difference between a package on main and its draft.

    `digest` is equal for equal differences; the names of the package itself, in the files that every
    package has of its own, do not count. `added` and `removed` are lines of text.
    """

    digest: str
    files: int = 0
    added: int = 0
    removed: int = 0
    risks: tuple[Risk, ...] = ()


class _Resource(NamedTuple):
    """Identity of a resource in a package; its version is none."""

    group_kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.group_kind.partition('.')[0]} {path}"


Resources = Mapping[_Resource, Any]


class _Contents(NamedTuple):
    """The resources of a file by identity, and the images that they use."""

    resources: Resources
    images: frozenset[str]


_Side = tuple[str, int, Oid | bytes, tuple[bytes, ...]]
"""A file on one side of a difference: its path, mode, and object id or digest, and the names to mask."""


class _Difference(NamedTuple):
    digest: bytes
    added: int
    removed: int


class ImpactReader(Struct):
    """Computes impacts; those of packages that differ by their own names only, and equal files, once.

    What was computed is found by digests: the contents of thousands of packages are not kept.
    """

    policy: RiskPolicy
    _contents: dict[Oid | bytes, _Contents] = field(default_factory=dict)
    _differences: dict[tuple[bytes, bytes], _Difference] = field(default_factory=dict)
    _impacts: dict[bytes, Impact] = field(default_factory=dict)

    def impact(self, before: Files, after: Files, own_names: Collection[str]) -> Impact:
        """Return the impact of a change. Total.

        Args:
            before: The package on main, empty if it is not there.
            after: The package as its draft has it, empty if it is removed.
            own_names: Names of the package, its repository and its owner.
        """
        names = {name.encode() for name in own_names if name}
        key = _digest(repr([*_sides(before, after, names)]).encode())
        impact = self._impacts.get(key)
        if impact is None:
            impact = self._impact(before, after, names)
            # A risk that names the package is one of this package alone.
            own = {_OWN_NAME, *(name.decode() for name in names)}
            if not any(name in risk.subject for risk in impact.risks for name in own):
                self._impacts[key] = impact
        return impact

    def _impact(self, before: Files, after: Files, names: Collection[bytes]) -> Impact:
        changed = sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))
        digest, added, removed = hashlib.sha256(), 0, 0
        for path in changed:
            old, new = before.get(path), after.get(path)
            masked = (_masked(path, old, names), _masked(path, new, names))
            key = (_digest(masked[0]), _digest(masked[1]))
            difference = self._differences.get(key)
            if difference is None:
                difference = self._differences[key] = _compare(*masked)
            modes = (old.mode if old else 0, new.mode if new else 0)
            digest.update(f"{path}\0{modes}\0".encode() + difference.digest)
            added, removed = added + difference.added, removed + difference.removed
        risks = tuple(self._risks(before, after, changed, names))
        return Impact(digest.hexdigest(), len(changed), added, removed, risks)

    def _risks(
        self, before: Files, after: Files, changed: Collection[str], names: Collection[bytes]
    ) -> Iterator[Risk]:
        order = {name: index for index, name in enumerate(self.policy.classes)}
        risks = self._unordered_risks(before, after, changed, names)
        if any(_OWN_NAME in risk.subject for risk in risks):
            risks = self._unordered_risks(before, after, changed, ())
        yield from sorted(
            (risk._replace(weight=order[risk.category]) for risk in risks),
            key=lambda risk: (risk.weight, risk),
        )

    def _unordered_risks(
        self, before: Files, after: Files, changed: Collection[str], names: Collection[bytes]
    ) -> set[Risk]:
        """Return the risks; a subject that the package's own names are part of has `_OWN_NAME` instead."""
        old, new = self._all(before, changed, names), self._all(after, changed, names)
        images = new.images - old.images
        risks = {*self._resource_risks(old.resources, new.resources)}
        if images and (self.policy.registries or before):
            risks.update(self._registry_risks(images, before, names))
        return risks

    def _resource_risks(self, old: Resources, new: Resources) -> Iterator[Risk]:
        for resource in old.keys() | new.keys():
            if resource in old and resource in new and old[resource] == new[resource]:
                continue
            action = "adds" if resource not in old else "changes" if resource in new else "removes"
            if action == "removes":
                yield Risk(REMOVAL, action, str(resource))
            for category in self.policy.of_kind(resource.group_kind):
                yield Risk(category, action, str(resource))

    def _registry_risks(
        self, images: Collection[str], before: Files, names: Collection[bytes]
    ) -> Iterator[Risk]:
        """Yield images of registries that neither the settings nor, without any, the package on main has."""
        if self.policy.registries:
            prefixes = [_qualified(prefix.rstrip("/")) for prefix in self.policy.registries]
            foreign = {image for image in images if not any(_is_below(image, p) for p in prefixes)}
        else:
            in_use = {_registry(image) for image in self._all(before, before, names).images}
            foreign = {image for image in images if _registry(image) not in in_use}
        yield from (Risk(REGISTRY, "uses", image) for image in foreign)

    def _all(self, files: Files, paths: Collection[str], names: Collection[bytes]) -> _Contents:
        resources: dict[_Resource, Any] = {}
        images: set[str] = set()
        for path in sorted(paths):
            if path in files and path.endswith(_SUFFIXES):
                contents = self._parsed(path, files[path], names)
                resources.update(contents.resources)
                images |= contents.images
        return _Contents(resources, frozenset(images))

    def _parsed(self, path: str, file: File, names: Collection[bytes]) -> _Contents:
        """Return what a file holds; the files that every package has of its own differ in its names alone."""
        key: Oid | bytes = file.oid
        data = file.data
        if names and path in _OWN_FILES:
            data = mask_names(data, names, _OWN_NAME.encode())
            key = _digest(data)
        if key not in self._contents:
            resources = dict(_parse(data))
            self._contents[key] = _Contents(resources, frozenset(_images(resources)))
        return self._contents[key]


# Differences


_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_BEFORE = _WORD | frozenset(b".")


def _digest(content: bytes | None) -> bytes:
    """Return the digest of a content, b"" where there is none."""
    return b"" if content is None else hashlib.sha256(content).digest()


def _sides(before: Files, after: Files, names: Collection[bytes]) -> Iterator[_Side]:
    """Yield everything that an impact is computed from, without the names of the package itself."""
    for path in sorted(before.keys() | after.keys()):
        for file in (before.get(path), after.get(path)):
            if file is None:
                yield path, 0, b"", ()
            elif path not in _OWN_FILES:
                yield path, file.mode, file.oid, ()
            else:
                # Where the mask is a character of the file, it is no place of a name.
                masks = tuple(sorted(names)) if b"\0" in file.data else ()
                yield path, file.mode, _digest(_masked(path, file, names)), masks


def _masked(path: str, file: File | None, names: Collection[bytes]) -> bytes | None:
    if file is None or not names or path not in _OWN_FILES:
        return file.data if file else None
    return mask_names(file.data, names, b"\0")


def mask_names(data: bytes, names: Collection[bytes], mask: bytes) -> bytes:
    """Return the data with `mask` for each whole name; of several at one place the longest counts."""
    # A pattern would do the same, but compiling one for each package takes longer than all the rest.
    places = sorted((start, -len(name)) for name in names for start in _whole(data, name))
    parts, end = [], 0
    for start, length in places:
        if start >= end:
            parts.append(data[end:start])
            end = start - length
    return mask.join([*parts, data[end:]])


def _whole(data: bytes, name: bytes) -> Iterator[int]:
    """Yield the start of each occurrence of a name that is a word of its own."""
    start = data.find(name) if name else -1
    while start >= 0:
        end = start + len(name)
        if not (start and data[start - 1] in _BEFORE) and not (end < len(data) and data[end] in _WORD):
            yield start
        start = data.find(name, start + 1)


def _compare(old: bytes | None, new: bytes | None) -> _Difference:
    """Return the identity of a difference: its text without line numbers, or both sides as a whole."""
    whole = hashlib.sha256(b"%d %b %b" % (len(old or b""), old or b"", new or b"")).digest()
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return _Difference(whole, 0, 0)
    if len(before) * len(after) > _LONGEST_DIFF:
        return _Difference(whole, len(after), len(before))
    body = list(unified_diff(before, after, lineterm=""))[2:]
    added, removed = (sum(line.startswith(sign) for line in body) for sign in "+-")
    text = "\n".join("@@" if line.startswith("@@") else line for line in body)
    return _Difference(hashlib.sha256(text.encode()).digest(), added, removed)


def _lines(data: bytes | None) -> list[str] | None:
    """Return the lines of a text, None for other data."""
    try:
        return (data or b"").decode().split("\n")
    except UnicodeDecodeError:
        return None


# Resources


def _parse(data: bytes) -> Iterator[tuple[_Resource, Any]]:
    """Yield the resources of a file; none of a file that is not YAML, such as a template."""
    try:
        documents = load_documents(data)
    except YamlError:
        return
    for document in documents:
        yield from _resources(document.value)


def _resources(value: Any) -> Iterator[tuple[_Resource, Any]]:
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if str(value.get("kind", "")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _resources(item)
        return
    metadata = value.get("metadata")
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or not isinstance(metadata, Mapping):
        return
    notes = metadata.get("annotations")
    if isinstance(notes, Mapping) and notes.get(LOCAL_CONFIG) == "true":
        return
    group = version.partition("/")[0] if "/" in version else ""
    name, namespace = metadata.get("name"), metadata.get("namespace")
    yield _Resource(str(GroupKind(group, kind)), str(namespace or ""), str(name or "")), value


def _images(value: Any) -> Iterator[str]:
    """Yield every image that a resource uses: the texts of fields called `image`, no value of a Secret."""
    if isinstance(value, Mapping) and value.get("kind") != "Secret":
        image = value.get("image")
        if isinstance(image, str) and image:
            yield _qualified(image)
        for part in value.values():
            yield from _images(part)
    elif isinstance(value, list):
        for part in value:
            yield from _images(part)


def _qualified(image: str) -> str:
    """Return an image with its registry, as container engines complete it."""
    first, slash, _ = image.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    if has_registry or (not slash and "." in first and ":" not in first):
        return image
    return f"{_DOCKER}/{image}" if slash else f"{_DOCKER}/library/{image}"


def _registry(image: str) -> str:
    return image.partition("/")[0]


def _is_below(image: str, prefix: str) -> bool:
    return image == prefix or image.startswith((f"{prefix}/", f"{prefix}:", f"{prefix}@"))
