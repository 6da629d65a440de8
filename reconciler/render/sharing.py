"""Render packages that differ in their own values only once, and fill in the values of each.

Most packages of a fleet are equal but for the names of their repository and variant, and the values of the
variant's functions and package context. A class of them is rendered with placeholders; the result has one
wherever a value was copied to.

That is exact because rendering compares these values with nothing else and takes none apart: they are words
of letters, digits, dots and hyphens that no other input of the class contains, no key, kind or path has one,
and all functions are builtins that copy them and take no text with one apart, or none can run. Packages of
which that is not certain are rendered by themselves, and so are those with a value in a text of the result,
as conflicts may have.
"""

import hashlib
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any, Final, NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, OWNER
from reconciler.api.porch import Function, PackageVariantSpec
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.functions.catalog import APPLY_REPLACEMENTS, APPLY_SETTERS, COPYING
from reconciler.functions.pipeline import StepEngine, declared_steps, find_engine, may_have_pipeline
from reconciler.functions.step import InvalidPipelineError, Stage, Step
from reconciler.inventory.inventory import Inventory
from reconciler.names.filled import Digests, FilledFiles
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, Files, tree_id
from reconciler.names.substitution import OwnValues, words_in
from reconciler.names.trailers import NO_ANSWERS
from reconciler.policy import FunctionPolicy, OnConflict
from reconciler.render.kptfile import own_functions
from reconciler.render.merging import Contents
from reconciler.render.rendered import Blocked, Package
from reconciler.resolve.resolution import Pin, ResolvedVariant, variant_trees

_LONGEST: Final = 63
"""Of a value, as of labels: some limits depend on the length of a text."""
_MOST_PARTS: Final = 3
"""Of a value of the package context: with the longer ones of a sample it stays below `_LONGEST`."""
_MEANINGFUL: Final = frozenset(("default", "required", "optional", "function-input", *map(str, OnConflict)))
"""Words with which values of fields are compared."""
_DECIDES: Final = regex(
    rb"\0\S*[ \t]*:(?:\s|\Z)"  # a key
    rb"|\?\s[^\n]*\0"  # an explicit key
    rb"|(?:kind|apiVersion)[\"']?[ \t]*:[^\n]*\0"
    rb"|reconciler\.dev/(?!location|owner)[^\n]*\0"
)
"""A masked value that decides about more than itself."""

_PLACE: Final = regex(rb"\0(\d+)\0")
_RUNS_NOWHERE: Final = "-"
"""A function without any runtime: a pipeline that has it does nothing."""
_SHARED: Final = COPYING | {APPLY_SETTERS, APPLY_REPLACEMENTS, _RUNS_NOWHERE}
"""The functions of packages that are shared."""


_EMPTY: Final = File.of(b"")


class VariantClass(Struct, frozen=True):
    """Variants with equal inputs but for their own values, and the sample that is rendered for all of them.

    `mark` is the start of each placeholder, `inputs` are the sample's contents and `inventory`. A class
    `is_idle` if its functions run nowhere, as long as its result has one of those that cannot.
    """

    members: tuple[tuple[ResolvedVariant, OwnValues], ...]
    sample: ResolvedVariant
    contents: Contents
    inventory: Inventory
    placeholders: OwnValues
    mark: str
    is_idle: bool

    def fill(
        self, result: Package | Blocked, splits: Iterable[tuple[str, str]]
    ) -> Iterator[tuple[ResolvedVariant, Package | Blocked]]:
        """Yield the members with their packages, without those for which the result may be another one.

        `splits` are the texts of which functions used a part, and the separator of the parts.
        """
        between = {separator.encode() for text, separator in splits if self.mark in text}
        own_values = (self.placeholders, *(values for _, values in self.members))
        texts = [text for values in own_values for text in values.values]
        # A longer separator could begin in a value and end behind it.
        if any(len(separator) != 1 or any(separator in text for text in texts) for separator in between):
            return
        if isinstance(result, Blocked):
            # A bug of ours is the problem of each member by itself.
            if result.reason is not Reason.DEFECT and self.mark not in repr(result):
                yield from ((resolved, result) for resolved, _ in self.members)
            return
        mark = self.mark.encode()
        masked = {
            path: self.placeholders.mask(file.data)
            for path, file in result.files.items()
            if mark in file.data
        }
        others = (sorted(result.files), replace(result, files={}))
        if any(mark in data or _DECIDES.search(data) for data in masked.values()):
            return
        if self.mark in repr(others) or result.answers:
            return
        policy = self.inventory.policy.functions
        if self.is_idle and all(_function(step, policy) != _RUNS_NOWHERE for step in _steps(result.files)):
            return
        digests: Digests = {}
        for resolved, values in self.members:
            # The draft decides too whether a conflict is hidden.
            if resolved.draft is None or not result.conflicts:
                files = FilledFiles(result.files, masked, values, digests)
                yield resolved, replace(result, tree=tree_id(files.identities), files=files)


def find_classes(
    variants: Iterable[ResolvedVariant],
    contents: Contents,
    inventory: Inventory,
    made: Container[Oid] = frozenset(),
) -> list[VariantClass]:
    """Return the classes of two variants or more. All others are rendered by themselves.

    Upstream trees that are `made` from the values of their variant have own values, as its package on main.
    """
    instance = inventory.policy.instance
    sharing = (resolved for resolved in variants if _may_share(resolved, contents, instance))
    return list(_Inputs(contents, inventory, made).classes(sharing))


def _may_share(resolved: ResolvedVariant, contents: Contents, instance: str) -> bool:
    """Tell whether a package is made of upstream and main alone, and both were read."""
    draft, owner = resolved.draft, f"{OWNER}: {instance}/{resolved.variant.key}\n".encode()
    return (
        resolved.settled is None
        and (draft is None or (not draft.append_only and draft.answers == NO_ANSWERS))
        and not resolved.lost_base
        and not resolved.former
        and (resolved.local is None or resolved.base is not None)
        and not resolved.variant.spec.injectors
        and all(tree in contents for _, tree in variant_trees(resolved))
        # The functions of a former owner go, whose name is no value of the variant.
        and (resolved.local is None or owner in contents[resolved.local].get(KPTFILE, _EMPTY).data)
    )


class _Sources(NamedTuple):
    """The upstream trees and pins that the variants of a class have in common."""

    trees: tuple[Oid, ...]
    pin: Pin
    base: Pin | None


class _Masked(NamedTuple):
    """The inputs of a variant with the places of its own values; equal keys are of one class.

    `trees` has the masked files of each tree of its own.
    """

    own_values: OwnValues
    facts: bytes
    trees: Mapping[Oid, Mapping[str, bytes]]
    sources: _Sources
    key: object


class _Inputs(Struct):
    """The inputs of all variants; what several of them share is read once."""

    contents: Contents
    inventory: Inventory
    made: Container[Oid]
    _shared: dict[_Sources, bytes] = field(default_factory=dict)
    _words: dict[_Sources, frozenset[bytes]] = field(default_factory=dict)
    _masked: dict[Hashable, tuple[Mapping[str, bytes], bytes] | None] = field(default_factory=dict)
    _steps: dict[Oid, tuple[Step, ...]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def classes(
        self, variants: Iterable[ResolvedVariant], fixed: frozenset[bytes] = frozenset()
    ) -> Iterator[VariantClass]:
        """Yield the classes of variants; all members of one have the `fixed` values in the same places."""
        by_key: dict[object, tuple[_Masked, list[tuple[ResolvedVariant, OwnValues]]]] = {}
        for resolved in variants:
            if (masked := self.mask(resolved, fixed)) is not None:
                # Of the masked files of a class one copy is kept.
                by_key.setdefault(masked.key, (masked, []))[1].append((resolved, masked.own_values))
        for masked, members in by_key.values():
            if len(members) == 1:
                continue
            texts = (data for files in masked.trees.values() for data in files.values())
            decisive = b"\n".join(match[0] for data in texts for match in _DECIDES.finditer(data))
            if decisive:
                # Such as the environment `dev`, which is in `kpt.dev` too.
                numbers = {int(number) for number in _PLACE.findall(decisive)}
                values = {filled.values[number] for _, filled in members for number in numbers}
                yield from self.classes((r for r, _ in members), fixed | values) if values else ()
            elif (made := self.make_class(next(self._numbers), masked, members)) is not None:
                yield made

    def mask(self, resolved: ResolvedVariant, fixed: frozenset[bytes]) -> _Masked | None:
        """Return the masked inputs of a variant, None if its functions may do more than copy its values."""
        trees = tuple(tree for _, tree in variant_trees(resolved))
        has_own = [tree == resolved.local or tree in self.made for tree in trees]
        sources = _Sources(
            tuple(tree for tree, has_value in zip(trees, has_own, strict=True) if not has_value),
            self._pin(resolved.pin),
            resolved.base and self._pin(resolved.base),
        )
        steps = [self._steps_of(tree) for tree in sources.trees]
        spec = resolved.variant.spec
        if not (self._functions_of(spec, steps) <= _SHARED or self.is_idle(spec, steps)):
            return None
        words = OwnValues.of(self._own_values(resolved, sources)).values
        values = OwnValues(tuple(value for value in words if value not in fixed))
        facts = values.mask(_facts(resolved, self.inventory))
        masked: dict[Oid, Mapping[str, bytes]] = {}
        digests: list[bytes] = []
        for tree in dict.fromkeys(tree for tree, has_value in zip(trees, has_own, strict=True) if has_value):
            if (part := self._mask_tree(tree, values)) is None:
                return None
            masked[tree], digest = part
            digests.append(digest)
        roles = tuple(list(masked).index(tree) if tree in masked else -1 for tree in trees)
        return _Masked(values, facts, masked, sources, (sources, facts, roles, *digests))

    def _mask_tree(self, tree: Oid, values: OwnValues) -> tuple[Mapping[str, bytes], bytes] | None:
        files = self.contents[tree]
        if not isinstance(files, FilledFiles):
            return _mask_files(files, values)
        key = files.class_key(values)
        if key not in self._masked:
            self._masked[key] = _mask_files(files, values)
        return self._masked[key]

    def _pin(self, pin: Pin) -> Pin:
        return replace(pin, tree=Oid("")) if pin.tree in self.made else pin

    def _steps_of(self, tree: Oid) -> tuple[Step, ...]:
        if tree not in self._steps:
            self._steps[tree] = _steps(self.contents[tree])
        return self._steps[tree]

    def _functions_of(self, spec: PackageVariantSpec, pipelines: Iterable[Iterable[Step]]) -> frozenset[str]:
        """Return the builtins that a variant and pipelines name, "" for anything else that may run."""
        steps = chain(_steps_of_spec(spec), *pipelines)
        return frozenset(_function(step, self.inventory.policy.functions) for step in steps)

    def is_idle(self, spec: PackageVariantSpec, pipelines: Iterable[Iterable[Step]]) -> bool:
        """Tell whether all pipelines have a function that cannot run in the same place: then none runs."""
        policy, added = self.inventory.policy.functions, tuple(_steps_of_spec(spec))
        places = [
            {step.package for step in chain(added, steps) if _function(step, policy) == _RUNS_NOWHERE}
            for steps in pipelines
        ]
        return bool(places and set.intersection(*places))

    def _own_values(self, resolved: ResolvedVariant, sources: _Sources) -> Iterator[str]:
        """Yield the own values that nothing contains that is shared by the class."""
        if sources not in self._shared:
            files = (item for tree in sources.trees for item in self.contents[tree].items())
            pins = f"{sources.pin}\n{sources.base}\n{self.inventory.policy.instance}".encode()
            parts = (part for path, file in files for part in (path.encode(), file.data))
            self._shared[sources] = b"\n".join((pins, *parts)).replace(b"\0", b"\n")
            self._words[sources] = words_in(self._shared[sources])
        for value in variant_values(resolved):
            if not OwnValues.of([value]).meets(self._words[sources]):
                yield value

    def make_class(
        self, number: int, masked: _Masked, members: list[tuple[ResolvedVariant, OwnValues]]
    ) -> VariantClass | None:
        """Return a class with its sample, None if values may decide about more than themselves."""
        mark = f"own{number}x"
        places = range(len(masked.own_values.values))
        placeholders = OwnValues(tuple(f"{mark}{number}value".encode() for number in places))
        first, _ = members[0]
        originals = (file.data for tree in masked.trees for file in self.contents[tree].values())
        inputs = (self._shared[masked.sources], masked.facts, *originals)
        if any(mark.encode() in data for data in inputs):
            return None
        trees = {tree: self.contents[tree] for tree in masked.sources.trees}
        filled: dict[Oid, Oid] = {}
        for tree, files in masked.trees.items():
            sides = self.contents[tree]
            filled_in = {path: File.of(placeholders.fill(d), sides[path].mode) for path, d in files.items()}
            filled[tree] = tree_id({**sides, **filled_in})
            trees[filled[tree]] = {**sides, **filled_in}
        view, directory, path, key, annotations, text, _ = orjson.loads(placeholders.fill(masked.facts))
        spec = PackageVariantSpec.model_validate_json(text)
        pipelines = [_steps(files) for files in trees.values()]
        functions, is_idle = self._functions_of(spec, pipelines), self.is_idle(spec, pipelines)
        if not (is_idle or functions <= _SHARED):
            return None
        images = [(step.image, step.tag, step.exec) for step in _steps_of_spec(spec)]
        if mark in repr((images, list(_keys(orjson.loads(text))), annotations)):
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
            pin=_with_tree(first.pin, filled),
            base=first.base and _with_tree(first.base, filled),
            local=filled.get(first.local, first.local) if first.local is not None else None,
            draft=None,
            is_unedited=all(resolved.is_unedited for resolved, _ in members),
        )
        views = {own_view.key: own_view}
        inventory = replace(self.inventory, repositories=views)
        return VariantClass(tuple(members), sample, trees, inventory, placeholders, mark, is_idle)


def main_values(variants: Iterable[ResolvedVariant]) -> dict[Oid, tuple[Oid, tuple[str, ...]]]:
    """Return for packages on main the upstream tree and the values that they were made of."""
    return {
        resolved.local: (resolved.base.tree, tuple(variant_values(resolved)))
        for resolved in variants
        if resolved.settled is None and resolved.local is not None and resolved.base is not None
    }


def variant_values(resolved: ResolvedVariant) -> Iterator[str]:
    """Yield the values that may be own values of a variant."""
    variant, spec = resolved.variant, resolved.variant.spec
    context = (spec.package_context.data or {}) if spec.package_context else {}
    names = (resolved.view.name, variant.key.name, variant.key.namespace, resolved.downstream.path)
    # Nothing compares or splits the values of a context: of `edge/web` each part may be an own value.
    short = (text for text in context.values() if len(text) <= _LONGEST)
    words = (part for text in short for part in text.split("/", _MOST_PARTS - 1))
    for value in (*names, *set_values(spec), *words):
        if "/" not in value and len(value) <= _LONGEST and value not in _MEANINGFUL:
            yield value


def _functions_of_spec(spec: PackageVariantSpec) -> Iterator[Function]:
    return chain.from_iterable(functions for _, functions in own_functions(spec))


def _steps_of_spec(spec: PackageVariantSpec) -> Iterator[Step]:
    return (Step.of(function, Stage.MUTATORS, 0) for function in _functions_of_spec(spec))


def set_values(spec: PackageVariantSpec) -> Iterator[str]:
    """Yield the values that functions of a variant have."""
    for function in _functions_of_spec(spec):
        yield from (function.config_map or {}).values()


def _mask_files(files: Files, values: OwnValues) -> tuple[dict[str, bytes], bytes] | None:
    """Return the masked files with values and a digest of all, None where a path or binary data has one."""
    masked: dict[str, bytes] = {}
    digest = hashlib.sha256()
    for path, file in sorted(files.items()):
        binary = b"\0" in file.data
        data = values.mask(file.data.replace(b"\0", b"\n") if binary else file.data)
        if b"\0" in data:
            if binary:
                return None
            masked[path] = data
        content = hashlib.sha256(data).hexdigest() if path in masked else file.oid
        digest.update(f"{path}\0{file.mode}\0{content}\0".encode())
    if any(values.mask_text(path) != path for path in files):
        return None
    return masked, digest.digest()


def _with_tree(pin: Pin, trees: Mapping[Oid, Oid]) -> Pin:
    return replace(pin, tree=trees.get(pin.tree, pin.tree))


def _steps(files: Files) -> tuple[Step, ...]:
    """Return the steps of a package, one without a function where its pipeline is invalid."""
    try:
        return declared_steps(files) if may_have_pipeline(files) else ()
    except InvalidPipelineError:
        return (Step("", Stage.MUTATORS, 0),)


def _function(step: Step, policy: FunctionPolicy) -> str:
    engine = find_engine(step, (), policy)
    if isinstance(engine, StepEngine):
        return engine.builtin
    may_run = engine.claimed or policy.runtime or policy.exec or not (step.image or step.exec)
    return "" if may_run else _RUNS_NOWHERE


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
