"""Worlds of two other resolvers: the same verdict, a verified answer, the pins that highest-first decides."""

import functools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from reconciler.dependencies.model.cluster import ClusterInputs, ResolverSettings, build_catalogue
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.solve.verify import verify
from reconciler.dependencies.versions import parse_strict
from tests.support.conformance import file_parameters
from tests.support.dependency_worlds import pin

Index = dict[str, list[tuple[str, dict[str, Any]]]]
"""Per package its versions, lowest first, each with what it needs."""

OURS: dict[str, str] = {}
"""Where our canonical order chooses other pins, and why: in none of the known worlds."""


class Translated:
    """A foreign index in our words: versions become their rank, so that foreign orders need no grammar."""

    def __init__(self, index: Index, allows: Callable[[str, Any], bool]) -> None:
        self.index = index
        self.allows = allows
        self.texts: dict[tuple[str, str], str] = {}
        self.known = build_catalogue(self.candidates())

    def need(self, name: str, constraint: Any) -> PackageNeed:
        key = (name, json.dumps(constraint))
        if key not in self.texts:
            fitting = [
                r for r, (v, _) in enumerate(self.index.get(name, []), 1) if self.allows(v, constraint)
            ]
            self.texts[key] = " || ".join(f">={a}.0.0, <={b}.0.0" for a, b in _runs(fitting)) or "<0.0.0"
        return PackageNeed(
            PackageId(Ecosystem.XPKG, name), version_range(Dialect.CROSSPLANE, self.texts[key])
        )

    def candidates(self) -> Iterable[Candidate]:
        for name, versions in self.index.items():
            for rank, (_, needs) in enumerate(versions, 1):
                wants = tuple(Requirement((self.need(other, text),)) for other, text in needs.items())
                yield Candidate(PackageId(Ecosystem.XPKG, name), parse_strict(f"{rank}.0.0"), requires=wants)

    def pins(
        self, wanted: dict[str, Any], locked: dict[str, str], *, circles: bool = True
    ) -> dict[str, str] | None:
        known = self.known
        installs = [
            Install("", name, Dialect.CROSSPLANE, self.need(name, text), kind="Wish")
            for name, text in wanted.items()
        ]
        ranks = {
            n: [v for v, _ in versions].index(locked[n]) for n, versions in self.index.items() if n in locked
        }
        held = tuple(
            pin(Instance(*PackageId(Ecosystem.XPKG, n), Slot(SlotKind.CLUSTER)), c)
            for n, rank in ranks.items()
            for c in [known.candidates(PackageId(Ecosystem.XPKG, n))[rank]]
        )
        forbidden = frozenset() if circles else frozenset({Ecosystem.XPKG})
        choices = ResolverSettings(allow_downgrade=True, forbid_cycles=forbidden)
        world = ClusterInputs(tuple(installs), known, pins=held, choices=choices)
        solution = resolve_cluster(world)
        assert verify(world, solution) == ()
        if solution.explanations:
            assert all(explanation.sentences for explanation in solution.explanations)
            return None
        return {
            i.package.name: self.index[i.package.name][one.candidate.version.number.major - 1][0]
            for i, one in solution.resolved.items()
        }


def _runs(ranks: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return runs


@functools.cache
def gem(version: str) -> list[tuple[int, str]]:
    """Sort key of RubyGems: words sort below numbers, trailing zeros do not count."""
    parts = re.findall(r"[0-9]+|[a-zA-Z]+", version.replace("-", ".pre."))
    key = [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
    while key and key[-1] == (0, ""):
        key.pop()
    return [*key, (0, "")]


@functools.cache
def gem_allows(version: str, constraint: str) -> bool:
    terms = [term.strip() for term in constraint.split(",") if term.strip()]
    asked = any(re.search("[a-zA-Z]", term) for term in terms)
    return (asked or not re.search("[a-zA-Z]", version)) and all(_gem_term(version, term) for term in terms)


def _gem_term(version: str, term: str) -> bool:
    op, bound = re.fullmatch(r"(~>|[=!<>]*)\s*(\S+)", term).groups()
    one, other = gem(version), gem(bound)
    if op == "~>":
        numbers = re.match(r"[0-9.]*[0-9]", bound)[0].split(".")
        head = [int(n) for n in numbers[: max(1, len(numbers) - 1)]]
        above = ".".join(map(str, [*head[:-1], head[-1] + 1]))
        return other <= one < gem(above)
    return {
        "": one == other,
        "=": one == other,
        "!=": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
    }[op]


def read(path: Path) -> Any:
    return json.loads(re.sub(r"(^|\s)//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))


def flat(tree: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree:
        found |= {node["name"]: node["version"], **flat(node["dependencies"])}
    return found


def wishes(requested: dict[str, str]) -> dict[str, str]:
    """Join constraints on one package: a control character after a name makes it a second key."""
    merge_results: dict[str, str] = {}
    for name, text in requested.items():
        plain = name.rstrip("\x01")
        merge_results[plain] = ", ".join(filter(None, (merge_results.get(plain, ""), text)))
    return merge_results


@functools.cache
def gems(file: Path) -> Translated:
    index = {
        name: sorted(((e["version"], e["dependencies"] or {}) for e in several), key=lambda e: gem(e[0]))
        for name, several in read(file).items()
    }
    return Translated(index, gem_allows)


@pytest.mark.parametrize("file", file_parameters("resolver/cocoapods/case/*.json"))
def test_gems(file: Path) -> None:
    case = read(file)
    world = gems(file.parents[1] / "index" / f"{case.get('index', 'awesome')}.json")

    found = world.pins(wishes(case["requested"]), flat(case["base"]), circles="circular" not in file.stem)

    assert (found is None) is bool(case["conflicts"])
    if found is not None and file.stem not in OURS:
        assert {n: gem(v) for n, v in found.items()} == {n: gem(v) for n, v in flat(case["resolved"]).items()}


@pytest.mark.parametrize("file", file_parameters("resolver/swift/*.json"))
def test_swift(file: Path) -> None:
    case = read(file)

    def within(version: str, half_open: list[str]) -> bool:
        low, high = half_open
        return parse_strict(low).number <= parse_strict(version).number < parse_strict(high).number

    def bounds(constraints: list[dict[str, Any]]) -> dict[str, Any]:
        return {c["identifier"]: c["requirement"] for c in constraints}

    index = {
        c["identifier"]: sorted(
            ((v, bounds(needs)) for v, needs in c["versions"].items()),
            key=lambda e: parse_strict(e[0]).height,
        )
        for c in case["containers"]
    }

    found = Translated(index, within).pins(bounds(case["constraints"]), {})

    assert found is not None
    if file.stem not in OURS:
        assert found == case["result"]
