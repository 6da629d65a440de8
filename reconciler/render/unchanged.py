"""Packages of rollouts that a revision or its values leave as they are, but for bookkeeping (D42)."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.step import Stage
from reconciler.inventory.inventory import Inventory
from reconciler.krm.values import mappings_at
from reconciler.krm.yaml import KPTFILE_LIMITS, YamlError, load_documents
from reconciler.names.ids import ObjectName
from reconciler.names.objects import Files
from reconciler.render.kptfile import FunctionOwners
from reconciler.render.merging import Contents
from reconciler.render.rendered import Package, Rendered
from reconciler.resolve.resolution import Resolution, ResolvedVariant, WaitingVariant
from reconciler.resolve.rollout_model import MemberPhase
from reconciler.resolve.rollout_records import identity

_BOOKKEEPING = (("upstream", "ref"), ("upstreamLock", "ref"), ("upstreamLock", "commit"))


def with_unchanged(
    rendered: Rendered, resolution: Resolution, contents: Contents, inventory: Inventory
) -> Rendered:
    """Return the packages, with that of main where only its Kptfile would change, by what it was made with.

    That is the revision, and the values of the variant's functions, which other packages of its set may use.
    Of rollouts alone, and not where people have a draft in their hands.
    """
    same = {
        resolved.variant.key: replace(rendered.variants[resolved.variant.key], fresh=Package(resolved.local))
        for resolved in _moving(resolution, inventory)
        if resolved.local is not None and not (resolved.draft is not None and resolved.draft.append_only)
        if _is_bookkeeping(resolved, rendered, contents)
    }
    return replace(rendered, variants={**rendered.variants, **same}) if same else rendered


def find_unchanged(rendered: Rendered, resolution: Resolution, inventory: Inventory) -> dict[ObjectName, str]:
    """Return the upstream revisions at which main has all that variants of rollouts ask for."""
    return {
        resolved.variant.key: identity(resolved.pin)
        for resolved in _moving(resolution, inventory)
        if _tree(rendered, resolved.variant.key) == resolved.local is not None
        if inventory.unchanged.get(resolved.variant.key) != identity(resolved.pin)
    }


def without_guesses(resolution: Resolution) -> Resolution:
    """Return the resolution in which variants wait if the values that main was made with are unknown."""
    guesses = {r.variant.key: r for r in resolution.variants if r.held_back and r.held_back.is_guess}
    if not guesses:
        return resolution
    waiting = (
        WaitingVariant(r.variant, r.offers, r.held_back.why, r.held_back.target)
        for r in guesses.values()
        if r.held_back is not None
    )
    return replace(
        resolution,
        variants=tuple(r for r in resolution.variants if r.variant.key not in guesses),
        waiting=tuple(sorted((*resolution.waiting, *waiting), key=lambda w: w.variant.key)),
    )


def _moving(resolution: Resolution, inventory: Inventory) -> Iterator[ResolvedVariant]:
    """Yield the variants that are rendered as their set asks for, and that main lacks by the records."""
    missing = {*inventory.unchanged} | {
        member.key
        for rollout in resolution.rollouts
        for wave in rollout.waves
        for member in wave.members
        if member.phase is not MemberPhase.PUBLISHED
    }
    for resolved in resolution.variants if missing else ():
        held = resolved.held_back
        is_asked = held is None or held.is_guess
        # A tag that moved waits for consent, whatever it brings.
        if resolved.variant.key in missing and is_asked and not resolved.moved:
            yield resolved


def _tree(rendered: Rendered, key: ObjectName) -> str | None:
    fresh = rendered.variants[key].fresh
    return fresh.tree if isinstance(fresh, Package) else None


def _is_bookkeeping(resolved: ResolvedVariant, rendered: Rendered, contents: Contents) -> bool:
    """Tell whether a package differs from main only by its origin, as the Kptfile has it."""
    fresh = rendered.variants[resolved.variant.key].fresh
    main = contents.get(resolved.local) if resolved.local else None
    if main is None or not isinstance(fresh, Package) or fresh.tree == resolved.local:
        return False
    if not fresh.ready or fresh.files.keys() != main.keys() or KPTFILE not in main:
        return False
    others = (path for path in main if path != KPTFILE)
    if any(
        (main[path].oid, main[path].mode) != (fresh.files[path].oid, fresh.files[path].mode)
        for path in others
    ):
        return False
    here, there = (_kptfile(files, resolved.variant.key) for files in (main, fresh.files))
    return here is not None and here == there


def _kptfile(files: Files, variant: ObjectName) -> Mapping[str, Any] | None:
    """Return a Kptfile without the revision that it names, and without values of the variant's functions."""
    try:
        value: dict[str, Any]
        (value,) = [document.value for document in load_documents(files[KPTFILE].data, KPTFILE_LIMITS)]
    except (YamlError, ValueError):
        return None
    for field, name in _BOOKKEEPING:
        git = value.get(field, {}).get("git") if isinstance(value.get(field), dict) else None
        if isinstance(git, dict):
            git.pop(name, None)
    owners = FunctionOwners(variant)
    for stage in Stage:
        for function in mappings_at(value, "pipeline", stage.value):
            if owners.has(function):
                function.pop("configMap", None)
    return value
