"""Render packages that differ in their own values only once, and fill in the values of each.

Most packages of a fleet are equal but for the names of their repository and variant, and the values of the
variant's functions and package context. A class of them is rendered with placeholders; the result has one
wherever a value was copied to.

That is exact because rendering compares these values with nothing else and takes none apart: they are words
of letters, digits, dots and hyphens that no other input of the class contains, no key, kind or path has one,
and all functions are builtins that only copy them. Packages of which that is not certain are rendered by
themselves, and so are those with a value in a text of the result, as conflicts may have.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.porch import Function, PackageVariantSpec
from reconciler.functions.catalog import COPYING
from reconciler.functions.pipeline import StepEngine, declared_steps, find_engine, may_have_pipeline
from reconciler.functions.step import InvalidPipelineError, Stage, Step
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, Files, object_id, tree_id
from reconciler.names.own_values import OwnValues
from reconciler.names.trailers import NO_ANSWERS
from reconciler.policy import FunctionPolicy, OnConflict
from reconciler.render.merging import Contents
from reconciler.render.rendered import Blocked, Package
from reconciler.resolve.resolution import ResolvedVariant, variant_trees

_LONGEST: Final = 63
"""Of a value, as of labels: some limits depend on the length of a text."""
_MOST_PARTS: Final = 3
"""Of a value of the package context: with the longer ones of a sample it stays below `_LONGEST`."""
_MEANINGFUL: Final = frozenset(("default", "required", "optional", "function-input", *map(str, OnConflict)))
"""Words with which values of fields are compared."""
_DECIDES: Final = re.compile(
    rb"\0\S*[ \t]*:(?:\s|\Z)"  # a key
    rb"|\?\s[^\n]*\0"  # an explicit key
    rb"|(?:kind|apiVersion)[\"']?[ \t]*:[^\n]*\0"
    rb"|reconciler\.dev/(?!location|owner)[^\n]*\0"
)
"""A masked value that decides about more than itself."""


class _FilledFiles(Mapping[str, File]):
    """The files of a member of a class: one with own values is made whenever it is asked for.

    Packages of one class take the memory of one, however many they are.
    """

    def __init__(self, files: Files, masked: Mapping[str, bytes], own: OwnValues) -> None:
        self._files = files
        self._masked = masked
        self._own = own
        self._oids = {path: object_id("blob", own.fill(data)) for path, data in masked.items()}

    def __getitem__(self, path: str) -> File:
        file = self._files[path]
        if path not in self._masked:
            return file
        return File(self._own.fill(self._masked[path]), file.mode, self._oids[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class VariantClass(Struct, frozen=True):
    """Variants with equal inputs but for their own values, and the sample that is rendered for all of them.

    `mark` is the start of each placeholder, `inputs` are the sample's contents and `inventory`.
    """

    members: tuple[tuple[ResolvedVariant, OwnValues], ...]
    sample: ResolvedVariant
    contents: Contents
    inventory: Inventory
    placeholders: OwnValues
    mark: str

    def fill(self, result: Package | Blocked) -> Iterator[tuple[ResolvedVariant, Package | Blocked]]:
        """Yield the members with their packages, without those for which the result may be another one."""
        if isinstance(result, Blocked):
            if self.mark not in repr(result):
                yield from ((resolved, result) for resolved, _ in self.members)
            return
        mark = self.mark.encode()
        masked = {
            path: self.placeholders.mask(file.data)
            for path, file in result.files.items()
            if mark in file.data
        }
        others = (sorted(result.files), replace(result, files={}))
        if any(mark in data for data in masked.values()) or self.mark in repr(others) or result.answers:
            return
        for resolved, own in self.members:
            # The draft decides too whether a conflict is hidden.
            if resolved.draft is None or not result.conflicts:
                files = _FilledFiles(result.files, masked, own)
                yield resolved, replace(result, tree=tree_id(files), files=files)


def find_classes(
    variants: Iterable[ResolvedVariant], contents: Contents, inventory: Inventory
) -> list[VariantClass]:
    """Return the classes of two variants or more. All others are rendered by themselves."""
    inputs = _Inputs(contents, inventory)
    by_key: dict[object, tuple[_Masked, list[tuple[ResolvedVariant, OwnValues]]]] = {}
    for resolved in variants:
        masked = inputs.mask(resolved) if _may_share(resolved, contents) else None
        if masked is not None:
            # Of the masked files of a class one copy is kept.
            by_key.setdefault(masked.key, (masked, []))[1].append((resolved, masked.own))
    numbered = enumerate(each for each in by_key.values() if len(each[1]) > 1)
    classes = (inputs.make_class(number, *each) for number, each in numbered)
    return [each for each in classes if each is not None]


def _may_share(resolved: ResolvedVariant, contents: Contents) -> bool:
    """Tell whether a package is made of upstream and main alone, and both were read."""
    draft = resolved.draft
    return (
        resolved.settled is None
        and (draft is None or (not draft.append_only and draft.answers == NO_ANSWERS))
        and not resolved.lost_base
        and (resolved.local is None or resolved.base is not None)
        and not resolved.variant.spec.injectors
        and all(tree in contents for _, tree in variant_trees(resolved))
    )


class _Masked(NamedTuple):
    """The inputs of a variant with the places of its own values; equal keys are of one class."""

    own: OwnValues
    facts: bytes
    local: Mapping[str, bytes]
    sources: tuple[Oid, ...]
    key: object


class _Inputs(Struct):
    """The inputs of all variants; what several of them share is read once."""

    contents: Contents
    inventory: Inventory
    _shared: dict[tuple[Oid, ...], bytes] = field(default_factory=dict)
    _is_own: dict[tuple[tuple[Oid, ...], str], bool] = field(default_factory=dict)
    _copies: dict[Oid, bool] = field(default_factory=dict)

    def mask(self, resolved: ResolvedVariant) -> _Masked | None:
        """Return the masked inputs of a variant, None if its functions may do more than copy its values."""
        sources = tuple(tree for _, tree in variant_trees(resolved) if tree != resolved.local)
        policy = self.inventory.policy.functions
        for tree in sources:
            if tree not in self._copies:
                self._copies[tree] = _copies_values(self.contents[tree], policy)
        own_steps = (
            Step("", Stage.MUTATORS, 0, image=each.image or "", tag=each.tag or "")
            for each in _own_functions(resolved.variant.spec)
        )
        if not all(self._copies[tree] for tree in sources) or not all(_copies(s, policy) for s in own_steps):
            return None
        own = OwnValues.of(self._own_values(resolved, sources))
        facts = own.mask(_facts(resolved, self.inventory))
        local = self.contents[resolved.local] if resolved.local is not None else {}
        masked: dict[str, bytes] = {}
        digest = hashlib.sha256()
        for path, file in sorted(local.items()):
            binary = b"\0" in file.data
            data = own.mask(file.data.replace(b"\0", b"\n") if binary else file.data)
            if b"\0" in data:
                if binary:
                    return None
                masked[path] = data
            content = hashlib.sha256(data).hexdigest() if path in masked else file.oid
            digest.update(f"{path}\0{file.mode}\0{content}\0".encode())
        if any(own.mask_text(path) != path for path in local):
            return None
        key = (resolved.pin, resolved.base, facts, digest.digest())
        return _Masked(own, facts, masked, sources, key)

    def _own_values(self, resolved: ResolvedVariant, sources: tuple[Oid, ...]) -> Iterator[str]:
        """Yield the own values that nothing contains that is shared by the class."""
        if sources not in self._shared:
            files = (item for tree in sources for item in self.contents[tree].items())
            pins = f"{resolved.pin}\n{resolved.base}\n{self.inventory.policy.instance}".encode()
            parts = (part for path, file in files for part in (path.encode(), file.data))
            self._shared[sources] = b"\n".join((pins, *parts)).replace(b"\0", b"\n")
        variant, spec = resolved.variant, resolved.variant.spec
        configured = (value for f in _own_functions(spec) for value in (f.config_map or {}).values())
        context = (spec.package_context.data or {}) if spec.package_context else {}
        names = (resolved.view.name, variant.key.name, variant.key.namespace, resolved.downstream.path)
        # Nothing compares or splits the values of a context: of `edge/web` each part may be an own value.
        short = (text for text in context.values() if len(text) <= _LONGEST)
        words = (part for text in short for part in text.split("/", _MOST_PARTS - 1))
        for value in (*names, *configured, *words):
            if "/" in value or len(value) > _LONGEST or value in _MEANINGFUL:
                continue
            if (sources, value) not in self._is_own:
                shared = self._shared[sources]
                self._is_own[sources, value] = OwnValues.of([value]).mask(shared) is shared
            if self._is_own[sources, value]:
                yield value

    def make_class(
        self, number: int, masked: _Masked, members: list[tuple[ResolvedVariant, OwnValues]]
    ) -> VariantClass | None:
        """Return a class with its sample, None if values may decide about more than themselves."""
        mark = f"own{number}x"
        places = range(len(masked.own.values))
        placeholders = OwnValues(tuple(f"{mark}{place}value".encode() for place in places))
        first = members[0][0]
        original = self.contents[first.local] if first.local is not None else {}
        inputs = (self._shared[masked.sources], masked.facts, *(file.data for file in original.values()))
        if any(mark.encode() in data for data in inputs) or any(map(_DECIDES.search, masked.local.values())):
            return None
        filled = {
            path: File.of(placeholders.fill(d), original[path].mode) for path, d in masked.local.items()
        }
        local = {**original, **filled}
        if not _copies_values(local, self.inventory.policy.functions):
            return None
        view, directory, path, key, annotations, text, _ = orjson.loads(placeholders.fill(masked.facts))
        spec = PackageVariantSpec.model_validate_json(text)
        decisive = ([f.image, f.tag, f.exec] for f in _own_functions(spec))
        if mark in repr((list(decisive), list(_keys(orjson.loads(text))), annotations)):
            return None
        if "reconciler.dev/" in text:
            return None
        own_view = self.inventory.repositories[first.view]
        own_view = replace(own_view, key=ObjectName(*view), directory=directory)
        sample = replace(
            first,
            variant=replace(first.variant, key=ObjectName(*key), spec=spec),
            view=own_view.key,
            downstream=PackageKey(first.downstream.url, path),
            local=tree_id(local) if first.local is not None else None,
            draft=None,
        )
        trees = {tree: self.contents[tree] for tree in masked.sources}
        if sample.local is not None:
            trees[sample.local] = local
        views = {own_view.key: own_view}
        inventory = replace(self.inventory, repositories=views)
        return VariantClass(tuple(members), sample, trees, inventory, placeholders, mark)


def _own_functions(spec: PackageVariantSpec) -> tuple[Function, ...]:
    pipeline = spec.pipeline
    own = (*(pipeline.validators or ()), *(pipeline.mutators or ())) if pipeline else ()
    return (*own, *(spec.mutators or ()))


def _copies_values(files: Files, policy: FunctionPolicy) -> bool:
    """Tell whether all functions of a package are builtins that only copy values."""
    try:
        steps = declared_steps(files) if may_have_pipeline(files) else ()
    except InvalidPipelineError:
        return False
    return all(_copies(step, policy) for step in steps)


def _copies(step: Step, policy: FunctionPolicy) -> bool:
    engine = find_engine(step, (), policy)
    return isinstance(engine, StepEngine) and engine.builtin in COPYING


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(part)


def _facts(resolved: ResolvedVariant, inventory: Inventory) -> bytes:
    """Return everything that rendering reads of a variant and its repository, apart from contents."""
    variant, view = resolved.variant, inventory.repositories[resolved.view]
    return orjson.dumps(
        (
            tuple(resolved.view),
            view.directory,
            resolved.downstream.path,
            tuple(variant.key),
            sorted(variant.annotations.items()),
            variant.spec.model_dump_json(),
            view.deployment,
        )
    )
