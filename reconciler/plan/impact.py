"""Size, identity and risks of a difference, and the objects of clusters that go with it."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import unified_diff
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict
from reconciler.base.text import plural
from reconciler.dependencies.lock.format import PORTER_KIND
from reconciler.functions.resources import LOCAL_CONFIG
from reconciler.krm.bookkeeping import substance
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.filled import changed_paths, masked_digest
from reconciler.names.ids import GroupKind, NamedObject, PackageKey
from reconciler.names.objects import Files
from reconciler.names.substitution import OwnValues
from reconciler.plan.set_diff import deletion_consent
from reconciler.policy import REGISTRY, REMOVAL, RiskPolicy

CLAIM, NAMESPACE = "PersistentVolumeClaim", "Namespace"
_MOST_NAMES = 3
_CACHED_FILES: Final = 1024
"""Files with cached resources: both sides of the changes of a few large charts."""


class Loss(Struct, frozen=True, order=True):
    """Objects of one kind that a cluster loses with `cause`, the object that is removed."""

    cluster: str
    cause: NamedObject
    """The removed object; of kind `package` where its content cannot be read."""
    kind: str
    """Kind of the objects as `Bucket.s3.io`; "" for kinds that are not known."""
    listed: int = 0
    """Number of objects that the snapshot has."""
    is_complete: bool = False
    """Whether there are no others; else the number is unknown."""
    names: tuple[str, ...] = ()
    """The first names, with the namespaces."""
    heir: str = ""
    """Another object that installs the package of the removed one."""

    @property
    def count(self) -> int | None:
        """The number of objects, None where it is unknown."""
        return self.listed if self.is_complete else None

    @property
    def needs_consent(self) -> bool:
        """Whether objects go, or may go."""
        return self.count != 0

    @property
    def objects(self) -> str:
        """The objects with their number: `Bucket.s3.io and its 2 objects`."""
        if self.kind == CLAIM and self.cause.kind == CLAIM:
            return "its data"
        if not self.kind:
            what = "everything else in it" if self.cause.kind == NAMESPACE else "what it brought"
            return f"{what} (an unknown number of objects)"
        if self.is_complete:
            itself = f"and its {plural(self.listed, 'object')}"
            return f"{self.kind} {itself if self.listed else 'without any object'}"
        number = f"at least {self.listed}" if self.listed else "an unknown number"
        return f"{self.kind} and its objects ({number})"

    @property
    def judgement(self) -> AdmissionJudgement:
        """The loss as an answer of its cluster."""
        taken = f"takes {self.objects} with it"
        return AdmissionJudgement(
            AdmissionVerdict.DESTROYS, self.cause.kind, taken, self.cluster, str(self.cause)
        )

    @property
    def text(self) -> str:
        """The loss as a sentence: `dev: Provider aws takes Bucket.s3.io and its 2 objects with it: a, b`."""
        if not self.names:
            return f"{self.cluster}: {self.cause} takes {self.objects} with it"
        more = self.listed - len(self.names[:_MOST_NAMES])
        named = ", ".join(self.names[:_MOST_NAMES]) + (f" and {more} more" if more else "")
        return f"{self.cluster}: {self.cause} takes {self.objects} with it: {named}"

    @property
    def replacement(self) -> str:
        """A sentence about the replacement where another object installs the same package, "" else."""
        if not self.heir:
            return ""
        kind, namespace, short = self.cause
        name = f"{namespace}/{short}" if namespace else short
        stops = ", and Crossplane stops at two packages of one source" if kind != "PackageInstall" else ""
        return (
            f"{self.heir} replaces {self.cause} in {self.cluster} and does not take over its objects. "
            f"Both run until the removal of {name} is merged{stops}. "
            f"Give the {kind} of your manifest the metadata.name {short} to keep the object"
        )


def loss_consent(package: PackageKey, losses: Iterable[Loss]) -> str:
    """Return the checksum that allows policy to remove these objects of a package, however many others go."""
    return deletion_consent({(*package, loss.cluster, str(loss.cause)) for loss in losses})


def all_losses(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return each loss once, those of objects first: two things may tell of the same one."""
    every = {replace(loss, heir=""): loss for loss in sorted(losses)}
    return tuple(sorted(every.values(), key=lambda loss: (not loss.needs_consent, loss)))


def loss_value(loss: Loss) -> dict[str, object]:
    """Return a loss as a JSON value; `count` is null where the number is unknown."""
    return {
        "cluster": loss.cluster,
        "cause": str(loss.cause),
        "kind": loss.kind,
        "listed": loss.listed,
        "count": loss.count,
        "heir": loss.heir,
        "text": loss.text,
        "names": list(loss.names),
    }


_DOCKER: Final = "docker.io"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
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

    `digest` is equal for equal differences; the names of the package itself do not count. `added` and
    `removed` are lines of text.
    """

    digest: str
    files: int = 0
    added: int = 0
    removed: int = 0
    risks: tuple[Risk, ...] = ()


class ResourceId(NamedTuple):
    """Identity of a resource in a package; its version is none."""

    group_kind: str
    namespace: str
    name: str

    @property
    def object(self) -> NamedObject:
        """The resource as texts name it, without its group."""
        return NamedObject(self.group_kind.partition(".")[0], self.namespace, self.name)

    def __str__(self) -> str:
        return str(self.object)


_FileResources = tuple[tuple[ResourceId, Mapping[str, Any]], ...]

Resources = Mapping[ResourceId, bytes]
"""The digests of what resources do, by their identities."""


class _Contents(NamedTuple):
    """The resources of a file, and the images that they use, with the places of own names."""

    resources: Resources
    images: frozenset[str]


class _Difference(NamedTuple):
    digest: bytes
    added: int
    removed: int


class _Facts(NamedTuple):
    """The facts of risks: category, action and subject of resources, and the images of both sides."""

    risks: tuple[tuple[str, str, str], ...]
    old_images: frozenset[str]
    new_images: frozenset[str]


class ImpactReader(Struct):
    """Computes impacts; what is equal but for own names once, which most packages of a fleet share.

    Kept are digests of contents and differences, no contents.
    """

    policy: RiskPolicy
    _contents: dict[bytes, _Contents] = field(default_factory=dict)
    _differences: dict[tuple[bytes, bytes], _Difference] = field(default_factory=dict)
    _facts: dict[tuple[tuple[bytes, bytes], ...], _Facts] = field(default_factory=dict)

    def impact(
        self, before: Files, after: Files, own_names: Iterable[str], values: Iterable[str] = ()
    ) -> Impact:
        """Return the impact of a change. Total.

        A side is empty if the package is not there. `own_names` are those of the package, its repository and
        its owner, in this order. `values` are what its functions set: they change nothing, but files equal
        but for them are read once.
        """
        names = tuple(own_names)
        own_values, wide = OwnValues.of(names), OwnValues.of((*names, *values))
        changed = changed_paths(before, after)
        digest, added, removed = hashlib.sha256(), 0, 0
        old, new = _Side(before, own_values), _Side(after, own_values)
        for path in changed:
            key = (old.digest(path), new.digest(path))
            difference = self._differences.get(key)
            if difference is None:
                difference = self._differences[key] = _compare(old.data(path), new.data(path))
            modes = (before[path].mode if path in before else 0, after[path].mode if path in after else 0)
            digest.update(f"{path}\0{modes}\0".encode() + difference.digest)
            added, removed = added + difference.added, removed + difference.removed
        if wide != own_values:
            old, new = _Side(before, wide), _Side(after, wide)
        return Impact(digest.hexdigest(), len(changed), added, removed, self._risks(old, new, changed))

    def _risks(self, before: "_Side", after: "_Side", changed: Collection[str]) -> tuple[Risk, ...]:
        paths = [path for path in changed if path.endswith(_SUFFIXES)]
        key = tuple((before.digest(path), after.digest(path)) for path in paths)
        facts, fill = self._facts.get(key), after.own_values.fill_text
        if facts is None:
            old, new = self._all(before, paths), self._all(after, paths)
            risks = tuple(self._resource_risks(old.resources, new.resources, after.own_values))
            facts = _Facts(risks, old.images, new.images)
            # A kind with an own value is another one in the next package.
            if not any("\0" in resource.group_kind for side in (old, new) for resource in side.resources):
                self._facts[key] = facts
        risks_here = {Risk(category, action, fill(text)) for category, action, text in facts.risks}
        images = {_qualified(fill(i)) for i in facts.new_images} - {
            _qualified(before.own_values.fill_text(i)) for i in facts.old_images
        }
        if images and (self.policy.registries or before.files):
            risks_here.update(self._registry_risks(images, before))
        order = {name: index for index, name in enumerate(self.policy.classes)}
        weighted = (risk._replace(weight=order[risk.category]) for risk in risks_here)
        return tuple(sorted(weighted, key=lambda risk: (risk.weight, risk)))

    def _resource_risks(
        self, old: Resources, new: Resources, own_values: OwnValues
    ) -> Iterator[tuple[str, str, str]]:
        """Yield category, action and subject of each risk, with the places of own values."""
        moves = _moves(old.keys() - new.keys(), new.keys() - old.keys())
        for resource in (old.keys() | new.keys()) - set(moves.values()):
            if resource in old and resource in new and old[resource] == new[resource]:
                continue
            action = "adds" if resource not in old else "changes" if resource in new else "removes"
            subject, to = str(resource), moves.get(resource)
            if to is not None:
                where = f"namespace {to.namespace}" if to.namespace else "no namespace"
                action, subject = "moves", f"{subject} to {where}"
            if action in ("removes", "moves"):
                yield REMOVAL, action, subject
            for category in self.policy.of_kind(own_values.fill_text(resource.group_kind)):
                yield category, action, subject

    def _registry_risks(self, images: Collection[str], before: "_Side") -> Iterator[Risk]:
        """Yield images of registries that neither the settings nor, without any, the package on main has."""
        if self.policy.registries:
            prefixes = [_qualified(prefix.rstrip("/")) for prefix in self.policy.registries]
            foreign = {image for image in images if not any(_is_below(image, p) for p in prefixes)}
        else:
            images_in_use = self._all(before, before.files).images
            in_use = {_registry(_qualified(before.own_values.fill_text(image))) for image in images_in_use}
            foreign = {image for image in images if _registry(image) not in in_use}
        yield from (Risk(REGISTRY, "uses", image) for image in foreign)

    def _all(self, side: "_Side", paths: Collection[str]) -> _Contents:
        """Return the contents of files, with the places of own names."""
        resources: dict[ResourceId, bytes] = {}
        images: set[str] = set()
        for path in sorted(paths):
            if path not in side.files or not path.endswith(_SUFFIXES):
                continue
            digest = side.digest(path)
            if digest not in self._contents:
                self._contents[digest] = _read_contents(side.files[path].data, side.own_values)
            resources.update(self._contents[digest].resources)
            images |= self._contents[digest].images
        return _Contents(resources, frozenset(images))


def _moves(gone: Iterable[ResourceId], new: Collection[ResourceId]) -> Mapping[ResourceId, ResourceId]:
    """Return where resources got a namespace, or lost it: who applies them may have put them there before."""
    there = {r._replace(namespace=""): r for r in sorted(new)}
    moves = {r: r._replace(namespace="") if r.namespace else there.get(r, r) for r in gone}
    return {r: to for r, to in moves.items() if to in new}


# Differences


class _Side(Struct):
    """The package on main or as its draft has it; each file is masked once."""

    files: Files
    own_values: OwnValues
    _digests: dict[str, bytes] = field(default_factory=dict)

    def digest(self, path: str) -> bytes:
        """Return the digest of a file with the places of own names, b"" where there is none."""
        if path not in self._digests:
            there = path in self.files
            self._digests[path] = masked_digest(self.files, path, self.own_values) if there else b""
        return self._digests[path]

    def data(self, path: str) -> bytes | None:
        """Return a file with the places of own names, None where there is none."""
        file = self.files.get(path)
        return self.own_values.mask(file.data) if file else None


def _compare(old: bytes | None, new: bytes | None) -> _Difference:
    """Return the identity of a difference: its text without line numbers, or both sides as a whole."""
    whole = hashlib.sha256(b"%d %b %b" % (len(old or b""), old or b"", new or b"")).digest()
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return _Difference(whole, 0, 0)
    if old is None or new is None or len(before) * len(after) > _LONGEST_DIFF:
        # A final line break ends the last line.
        return _Difference(whole, len(after) - (after[-1] == ""), len(before) - (before[-1] == ""))
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


def _read_contents(data: bytes, own_values: OwnValues) -> _Contents:
    """Return the contents of a file."""
    # Kinds decide what is a resource, so identities are read before names are masked.
    resources = dict(resources_in(data))
    images = frozenset(own_values.mask_text(i) for value in resources.values() for i in _images(value))
    digests = {
        ResourceId(*map(own_values.mask_text, name)): value_digest(own_values.mask_value(substance(value)))
        for name, value in resources.items()
    }
    return _Contents(digests, images)


def value_digest(value: object) -> bytes:
    """Return a digest that equal values have. Total."""
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        data = repr(value).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).digest()


def resources_in(data: bytes) -> _FileResources:
    """Return the resources of a file; none of a file that is not YAML, such as a template."""
    return msgspec.msgpack.decode(_packed_resources(data), type=_FileResources)


@lru_cache(maxsize=_CACHED_FILES)
def _packed_resources(data: bytes) -> bytes:
    """Return the resources of a file, packed: impact, admission and losses ask for those of the same ones."""
    try:
        resources = tuple(
            resource for parsed in load_documents(data) for resource in resources_of(parsed.value)
        )
    except YamlError:
        resources = ()
    return msgspec.msgpack.encode(resources)


def resources_of(value: object) -> Iterator[tuple[ResourceId, Mapping[str, Any]]]:
    """Yield the resources of a document, or of its list, with identities; no local configuration."""
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if str(value.get("kind", "")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from resources_of(item)
        return
    if value.get("schemaType") == PORTER_KIND and isinstance(value.get("name"), str):
        # Porter's file of an Installation is no object of Kubernetes, but it stands for what is installed.
        yield ResourceId(PORTER_KIND, str(value.get("namespace") or ""), value["name"]), value
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
    yield ResourceId(str(GroupKind(group, kind)), str(namespace or ""), str(name or "")), value


def _images(value: object) -> Iterator[str]:
    """Yield every image that a resource uses: the texts of fields called `image`, no value of a Secret."""
    if isinstance(value, Mapping) and value.get("kind") != "Secret":
        image = value.get("image")
        if isinstance(image, str) and image:
            yield image
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
