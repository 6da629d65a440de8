"""Constraints that parse but are hardly meant, digests, and what each dialect picks."""

from typing import NamedTuple

import pytest

from reconciler.dependencies.versions import (
    CarvelSelection,
    Grammar,
    VersionError,
    VersionPolicy,
    choose,
    lint_constraint,
    parse_constraint,
    parse_digest_or_constraint,
    parse_loose,
    parse_relaxed,
    parse_strict,
    rank,
)
from reconciler.dependencies.versions.lint import only_prereleases, only_with_build
from tests.support.version_selection import select_crossplane, select_porter


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
    pin = parse_digest_or_constraint("sha256:aa")

    assert pin.allows(parse_loose("v1.0.0"), digest="sha256:aa")
    assert not pin.allows(parse_loose("v1.0.0"), digest="sha256:bb")
    assert lint_constraint(pin) == ()


@pytest.mark.parametrize("text", ["", "not a range", ">>1.0.0", "1.0.0 ||", "|| 1.0.0"])
def test_what_is_no_constraint_is_refused_by_both_grammars(text: str) -> None:
    for grammar in (Grammar.MASTERMINDS, Grammar.CARVEL):
        with pytest.raises(VersionError):
            parse_constraint(text, grammar)


def test_an_x_in_a_prerelease_is_no_wildcard() -> None:
    fixed = parse_constraint("1.2.3-experimental", Grammar.CARVEL)

    assert fixed.allows(parse_strict("1.2.3-experimental"))
    with pytest.raises(VersionError):
        parse_constraint("1.2.3-experimental", Grammar.CARVEL_VENDORED)


def test_moving_tags_are_partial() -> None:
    assert [parse_loose(tag).is_partial for tag in ("v1", "v1.2", "v1.2.3", "1.2.3-rc.1", "01.2.3")] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_exactly_one_prerelease_needs_no_permission() -> None:
    candidate = parse_relaxed("v3.0.0-rc.1")

    assert CarvelSelection("3.0.0-rc.1").keeps(candidate)
    assert not CarvelSelection(">=3.0.0-rc.1").keeps(candidate)
    assert CarvelSelection(">=3.0.0-rc.1", ()).keeps(candidate)
    assert not CarvelSelection(">=3.0.0-rc.1", ("beta",)).keeps(candidate)


def test_only_prereleases_match() -> None:
    constraint = parse_constraint(">=0.14.36", Grammar.MASTERMINDS)

    assert only_prereleases(constraint, [parse_loose("v1.0.0-rc.1")])
    assert not only_prereleases(constraint, [parse_loose("v1.0.0-rc.1"), parse_loose("v1.0.0")])


def test_a_bare_carvel_version_misses_builds() -> None:
    missed = only_with_build(parse_constraint("1.0.0", Grammar.CARVEL), [parse_strict("1.0.0+vmware.1")])

    assert [version.text for version in missed] == ["1.0.0+vmware.1"]


def test_nearest_goes_up_before_it_goes_down() -> None:
    versions = [parse_loose(text) for text in ("v1.0.0", "v1.1.0", "v1.2.0", "v2.0.0")]
    origin = parse_loose("v1.1.5")

    order = [v.text for v in rank(versions, VersionPolicy.NEAREST, origin=origin)]
    assert order == ["v1.2.0", "v2.0.0", "v1.1.0", "v1.0.0"]
    assert choose(versions[:2], VersionPolicy.NEAREST, origin=origin, allow_downgrade=False) is None


def test_crossplane_intersects_all_parents_on_install() -> None:
    assert select_crossplane(["v1.0.0", "v1.5.0", "v2.0.0"], [">=v1.0.0", "<v2.0.0"]) == "v1.5.0"


def test_porter_never_picks_a_prerelease() -> None:
    tags = ["v1.2.4-rc.1", "v1.2.3"]

    assert select_porter(tags, ">=1.0.0-0", "max-patch", default_tag="v1.2.3") == "v1.2.3"
