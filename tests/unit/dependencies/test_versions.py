"""Constraints that parse but are hardly meant, digests, and what each dialect picks."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from reconciler.dependencies.model.packages import Dialect, version_range
from reconciler.dependencies.versions import (
    Grammar,
    VersionError,
    lint_constraint,
    only_prereleases,
    only_with_build,
    parse_carvel,
    parse_constraint,
    parse_loose,
    parse_masterminds,
    parse_strict,
)


class Doubt(NamedTuple):
    reason: str
    grammar: Grammar
    text: str
    never: bool
    words: str = ""


DOUBTS = [
    Doubt("an ordinary range is fine", Grammar.CARVEL, ">=1.0.0 <2.0.0", never=False),
    Doubt("a crossed range matches nothing", Grammar.CARVEL, ">2.0.0 <1.0.0", never=True),
    Doubt("an excluded wildcard matches nothing", Grammar.CARVEL, "!=1.x", never=True, words="at once"),
    Doubt("a hyphen is no range", Grammar.CARVEL, "1.0.0 - 2.0.0", never=True, words="lone '-'"),
    Doubt("two open parts mean one", Grammar.CARVEL, "1.x.x", never=False, words="'1.0.x'"),
    Doubt("a hyphen is a range for Masterminds", Grammar.MASTERMINDS, "1.0.0 - 2.0.0", never=False),
    Doubt("no release fits between neighbours", Grammar.MASTERMINDS, ">1.2.3 <1.2.4", never=True),
    Doubt("a pre-release fits between neighbours", Grammar.CARVEL, ">1.2.3 <1.2.4", never=False),
    Doubt("neighbouring pre-releases have one between", Grammar.CARVEL, ">1.0.0-a <1.0.0-a.1", never=False),
    Doubt("a build fits above its release", Grammar.CARVEL, ">1.0.0 <1.0.0+1", never=False),
    Doubt("nothing is below the lowest", Grammar.CARVEL, "<0.0.0-0", never=True),
    Doubt("other alternatives save a range", Grammar.CARVEL, ">2.0.0 <1.0.0 || 1.0.0", never=False),
]


@pytest.mark.parametrize("case", DOUBTS, ids=lambda case: case.reason)
def test_doubts(case: Doubt) -> None:
    found = lint_constraint(parse_constraint(case.text, case.grammar))

    assert any(doubt.startswith("No version can ever") for doubt in found) is case.never
    assert bool(found) is (case.never or bool(case.words))
    assert bool(case.words) is any(case.words in doubt for doubt in found if case.words)


def test_a_digest_is_satisfied_by_that_content_alone() -> None:
    pin = version_range(Dialect.CROSSPLANE, "sha256:aa").constraint

    assert pin.allows(parse_loose("v1.0.0"), digest="sha256:aa")
    assert not pin.allows(parse_loose("v1.0.0"), digest="sha256:bb")
    assert lint_constraint(pin) == ()


@pytest.mark.parametrize(
    "text", ["", "not a range", ">>1.0.0", "1.0.0 ||", "|| 1.0.0", "1.0.0 || 1.x || a.b"]
)
def test_what_is_no_constraint_is_refused_by_both_grammars(text: str) -> None:
    with pytest.raises(VersionError) as caught:
        parse_constraint(text, Grammar.MASTERMINDS)
    assert str(caught.value) == f"{text!r} is not a version constraint"
    with pytest.raises(VersionError):
        parse_constraint(text, Grammar.CARVEL)


def test_an_x_in_a_prerelease_is_no_wildcard() -> None:
    fixed = parse_constraint("1.2.3-experimental", Grammar.CARVEL)

    assert fixed.allows(parse_strict("1.2.3-experimental"))
    assert not fixed.allows(parse_strict("1.2.3"))


def test_only_prereleases_match() -> None:
    constraint = parse_constraint(">=0.14.36", Grammar.MASTERMINDS)

    assert only_prereleases(constraint, [parse_loose("v1.0.0-rc.1")])
    assert not only_prereleases(constraint, [parse_loose("v1.0.0-rc.1"), parse_loose("v1.0.0")])


def test_a_bare_carvel_version_misses_builds() -> None:
    missed = only_with_build(parse_constraint("1.0.0", Grammar.CARVEL), [parse_strict("1.0.0+vmware.1")])

    assert [version.text for version in missed] == ["1.0.0+vmware.1"]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("1.2.x", [">=1.2.0 <1.3.0"]),
        ("=1.2.x", [">=1.2.0 <1.3.0"]),
        ("==1.2.x", [">=1.2.0 <1.3.0"]),
        (">1.2.x", [">=1.3.0"]),
        (">=1.2.x", [">=1.2.0"]),
        ("<1.2.x", ["<1.2.0"]),
        ("<=1.2.x", ["<1.3.0"]),
        ("!=1.2.x", ["<1.2.0 >=1.3.0"]),
        ("!1.2.x", ["<1.2.0 >=1.3.0"]),
        ("1.x", [">=1.0.0 <2.0.0"]),
        ("1.x.x", [">=1.0.0 <1.1.0"]),
        (">=1.2.0 <1.3.0", [">=1.2.0 <1.3.0"]),
        ("> 1.2.0", [">1.2.0"]),
        ("1.2.0 || >1.4.0 <2.0.0", ["=1.2.0", ">1.4.0 <2.0.0"]),
    ],
)
def test_range_of_carvel_is_comparisons_with_its_wildcards_filled_in(text: str, groups: list[str]) -> None:
    parsed = parse_constraint(text, Grammar.CARVEL)

    assert [" ".join(f"{part.op}{part.bound.text}" for part in group) for group in parsed.groups] == groups


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("=>1.2.0", "'=>1.2.0': '=>' is no operator here"),
        ("1.x.0", "'1.x.0': '1.x.0' is open in a place that cannot be"),
        ("a.x", "'a.x': 'a.x' has no version"),
        ("|| 1.2.0", "'|| 1.2.0' has nothing before '||'"),
        ("1.2.0 ||", "'1.2.0 ||' has no version, or nothing after '||'"),
        ("01.2.0", "'01.2.0': '01.2.0' is not a semantic version"),
    ],
)
def test_range_that_carvel_refuses_is_named_with_the_word_that_is_wrong(text: str, why: str) -> None:
    with pytest.raises(VersionError) as caught:
        parse_constraint(text, Grammar.CARVEL)

    assert str(caught.value) == why


@pytest.mark.parametrize("read", [parse_loose, parse_strict, parse_masterminds, parse_carvel])
@pytest.mark.parametrize("text", ["9" * 5000, f"1.{'0' * 5000}.0", f"1.0.0+{'9' * 5000}", f"{'9' * 5000}.x"])
def test_text_of_any_length_is_a_version_or_a_version_error(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(VersionError):
        read(text)
