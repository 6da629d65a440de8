"""Lint version constraints: point out those that parse but can hardly be intended."""

import re
from collections.abc import Iterator

from reconciler.dependencies.versions import carvel
from reconciler.dependencies.versions.constraint import Constraint, Grammar, Operator
from reconciler.dependencies.versions.version import Version, VersionError, parse_strict

_OPERATOR = re.compile(r"[^0-9]*")


_CARVEL = frozenset({Grammar.CARVEL, Grammar.CARVEL_VENDORED, Grammar.CARVEL_HEAD, Grammar.BLANG})


def lint_constraint(constraint: Constraint) -> tuple[str, ...]:
    """Return warnings about a constraint, in sentences without a full stop; mostly none.

    The warning about a range that can never match is exact: no version satisfies that range.
    """
    if constraint.digest:
        return ()
    findings = list(_spelling_doubts(constraint)) if constraint.grammar in _CARVEL else []
    if never_matches(constraint):
        findings.append(f"No version can ever satisfy {constraint.text!r}")
    return tuple(findings)


def _spelling_doubts(constraint: Constraint) -> Iterator[str]:
    words = constraint.text.split(" ")
    if "-" in words:
        yield (
            f"{constraint.text!r} is no range here: the lone '-' is ignored and both versions must be equal; "
            "write '>=LOW <=HIGH'"
        )
    for word in carvel.split_words(constraint.text):
        op = _OPERATOR.match(word)
        wild = carvel.is_wildcard(word, constraint.grammar)
        if wild and op and op[0] in ("!=", "!"):
            yield f"{word!r} means below and above that range at once; write '<LOW || >=HIGH'"
        if wild and word.count(".x") > 1:
            yield f"{word!r} means {word.replace('.x.x', '.0.x')!r} here"


def never_matches(constraint: Constraint) -> bool:
    """Whether no version at all satisfies the constraint.

    Exact: where a comparison changes its answer lies a bound or the next version after one, so it is
    enough to try those.
    """
    if constraint.digest:
        return False
    return not any(constraint.allows(probe) for probe in probe_versions(constraint))


def probe_versions(constraint: Constraint) -> Iterator[Version]:
    """Yield versions at and next to every bound of a constraint: it admits one of them, or none at all."""
    bounds = [part.bound for group in constraint.groups for part in group]
    yield from map(parse_strict, ("0.0.0-0", "0.0.0"))
    for bound in bounds:
        major, minor, patch = bound.core
        pre = f"-{bound.number.prerelease}" if bound.prerelease else ""
        build = f"+{bound.number.build}" if bound.build else ""
        core = f"{major}.{minor}.{patch}"
        texts = [
            f"{core}-0",
            core,
            f"{core}+0",
            f"{core}{pre}{build}",
            f"{core}{pre}+0",
            *([f"{core}{pre}.0", f"{core}{pre}.0+0"] if pre else []),
            *([f"{core}{pre}{build}.0"] if build else []),
        ]
        for following in ((major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)):
            plain = ".".join(map(str, following))
            texts += [plain, f"{plain}-0", f"{plain}+0"]
        for text in texts:
            try:
                yield parse_strict(text)
            except VersionError:  # one above the largest number
                continue


def only_prereleases(constraint: Constraint, versions: list[Version]) -> bool:
    """Whether pre-releases would satisfy this constraint if it admitted any, and nothing else does."""
    if any(constraint.allows(version) for version in versions):
        return False
    return any(
        version.prerelease and constraint.allows(version, include_prerelease=True) for version in versions
    )


def only_with_build(constraint: Constraint, versions: list[Version]) -> tuple[Version, ...]:
    """Return the versions that a bare Carvel version misses only because of their build metadata."""
    exact = [part.bound for group in constraint.groups for part in group if part.op is Operator.EQ]
    if constraint.grammar not in _CARVEL:
        return ()
    return tuple(
        version
        for version in versions
        if version.build and any(version.number == bound.number and not bound.build for bound in exact)
    )
