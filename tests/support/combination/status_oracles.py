"""What `status` and the recorded conditions must say: all of ours, as refs and pull requests show it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.combination import trees
from tests.support.combination.fleet import STATE, Fleet
from tests.support.combination.oracles import Observation, check_shown, result_text

IN_REVIEW = "in review"
PUBLISHED = "published"
USAGE = 2


def recorded(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the owners as the status branch of the control repository records them."""
    control = fleet.repos["control"]
    if not control.find(STATE[1]):
        return []
    listed = trees.files(control, trees.root(control, STATE[1]), "conditions")
    values = (json.loads(data) for data in listed.values())
    return [value for value in values if "conditions" in value]


def check_recorded(fleet: Fleet) -> Iterator[str]:
    """The recorded conditions of each variant are what refs and pull requests show."""
    shown = Observation({}, {"items": recorded(fleet)})
    for violation in check_shown(fleet, shown):
        yield f"recorded: {violation}"


def check_complete(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """Each package of ours and each owner is in the status, also one that a refusal keeps."""
    items = observation.status.get("items", ())
    listed = {(item["kind"], item["name"]) for item in items}
    if not observation.status:
        return
    for change in observation.plan.get("changes", ()):
        variant = change["variant"]
        if variant and ("PackageVariant", variant["name"]) not in listed:
            yield f"the status lacks {variant['name']}, of which {change['name']} is left"
    for variant_spec in fleet.spec.variants:
        kind = "PackageVariantSet" if variant_spec.is_set else "PackageVariant"
        if (kind, variant_spec.name) not in listed:
            yield f"the status lacks {kind} {variant_spec.name}"


def check_phases(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """A package in review has an open pull request; a published one is on main, with its revision tagged."""
    for item in observation.status.get("items", ()):
        package = item.get("package") or {}
        repository = package.get("repository", "")
        if repository not in fleet.spec.repositories() or not package.get("name"):
            continue
        path = fleet.full(repository, package["name"])
        open_pulls = [pull for pull in fleet.pulls(repository) if pull.package == path]
        if package["phase"] == IN_REVIEW and not open_pulls:
            yield f"{item['name']} is in review, and {path} has no open pull request"
        if package["phase"] == PUBLISHED and path not in fleet.packages(repository):
            yield f"{item['name']} is published, and {path} is not on main"
        if package["phase"] == PUBLISHED and [p for p in open_pulls if not p.is_deletion]:
            yield f"{item['name']} is published, and {open_pulls[0].head} waits"
        yield from _targets(fleet, item, repository, path)


def _targets(fleet: Fleet, item: Mapping[str, Any], repository: str, path: str) -> Iterator[str]:
    refs = fleet.repo(repository).refs()
    is_tagged = any(ref.startswith(f"refs/tags/{path}/v") for ref in refs)
    if item["package"]["phase"] == PUBLISHED and is_tagged and not item.get("downstreamTargets"):
        yield f"{item['name']} is published and has no downstream target"


def check_injection(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """An injected value is that of its own cluster, if no person changed the package."""
    for variant in fleet.spec.variants:
        zone = fleet.zone("north", variant.repository).encode()
        if not (variant.injection and zone and variant.package == "site") or fleet.spec.snapshot == "none":
            continue
        for name in variant.paths:
            path = fleet.full(variant.repository, name)
            change = observation.change(variant.repository, path) or {}
            is_ours = (
                variant.repository,
                path,
            ) not in fleet.ledger.touched and variant.adoption == "adoptNone"
            if change.get("reason") not in ("UpToDate", "InReview") or not is_ours:
                continue
            text = result_text(fleet, variant.repository, path)
            if text and b"kpt.dev/config-injection" in text and b"zone: " + zone not in text:
                yield f"{variant.repository}:{path} has no zone {zone.decode()} of its cluster"


def check_everything(fleet: Fleet, observation: Observation) -> list[str]:
    """Return every violation that the status of a settled fleet shows."""
    return [
        *check_recorded(fleet),
        *check_complete(fleet, observation),
        *check_phases(fleet, observation),
        *check_injection(fleet, observation),
    ]


def check_unknown_name(fleet: Fleet) -> Iterator[str]:
    """A name that nobody has is an error of usage, not an empty answer."""
    result = fleet.run("status", "default/nobody")
    if result.code != USAGE or "default/nobody" not in result.err:
        yield f"status of an unknown name: exit {result.code}, {result.out[-300:]}{result.err[-300:]}"
