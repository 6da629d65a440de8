"""Laws of versions and constraints, for texts that nobody thought of."""

from operator import attrgetter
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from reconciler.dependencies.versions import (
    Constraint,
    Grammar,
    Version,
    VersionError,
    VersionPolicy,
    lint_constraint,
    parse_constraint,
    parse_loose,
    parse_strict,
    precedence,
    rank,
)

numbers = st.integers(0, 3).map(str)
words = st.sampled_from(["0", "1", "10", "alpha", "rc", "x", "beta-1"])
dotted = st.lists(words, min_size=1, max_size=2).map(".".join)
suffixes = st.tuples(
    st.one_of(st.just(""), dotted.map("-{}".format)), st.one_of(st.just(""), dotted.map("+{}".format))
)
versions = st.builds(
    lambda core, suffix: parse_strict(".".join(core) + "".join(suffix)),
    st.tuples(numbers, numbers, numbers),
    suffixes,
)
bounds = st.one_of(
    versions.map(str), st.tuples(numbers, numbers).map(".".join), numbers, st.sampled_from(["1.x", "1.2.x"])
)
operators = st.sampled_from(["", "=", "!=", "<", "<=", ">", ">=", "~", "^"])
terms = st.builds("{}{}".format, operators, bounds)
texts = st.lists(st.lists(terms, min_size=1, max_size=2).map(" ".join), min_size=1, max_size=2).map(
    " || ".join
)
grammars = st.sampled_from(list(Grammar))


def parsed(text: str, grammar: Grammar) -> Constraint:
    try:
        return parse_constraint(text, grammar)
    except VersionError:
        assume(False)
        raise


@given(versions, versions, versions)
def test_precedence_is_a_total_order(one: Version, two: Version, three: Version) -> None:
    for key in (precedence, attrgetter("height")):
        low, middle, high = sorted((one, two, three), key=key)
        assert key(low) <= key(middle) <= key(high)
        assert key(low) <= key(high)


@given(versions)
def test_a_build_is_above_its_release_for_carvel_and_equal_for_semver(version: Version) -> None:
    plain = parse_strict(version.text.partition("+")[0])

    assert precedence(version) == precedence(plain)
    assert (version.height > plain.height) is bool(version.build)


@given(texts, texts, versions, grammars)
def test_or_is_union_and_a_space_is_intersection(
    one: str, other: str, version: Version, grammar: Grammar
) -> None:
    left, right = parsed(one, grammar), parsed(other, grammar)

    both = parsed(f"{one} || {other}", grammar)
    assert both.allows(version) is (left.allows(version) or right.allows(version))
    if not version.prerelease and "||" not in one + other:
        assert parsed(f"{one} {other}", grammar).allows(version) is (
            left.allows(version) and right.allows(version)
        )


@given(versions, versions)
def test_each_comparison_excludes_its_opposite(bound: Version, version: Version) -> None:
    def allows(op: str) -> bool:
        return parsed(f"{op}{bound}", Grammar.CARVEL).allows(version)

    assert allows("=") is not allows("!=")
    assert allows("<") is not allows(">=")
    assert allows(">") is not allows("<=")
    assert allows("=") is (allows("<=") and allows(">="))


@given(st.tuples(numbers, numbers, numbers).map(".".join), numbers, dotted)
def test_masterminds_never_admits_a_prerelease_unasked(bound: str, major: str, stage: str) -> None:
    version = parse_strict(f"{major}.0.0-{stage}")

    assert not any(
        parse_constraint(f"{op}{bound}", Grammar.MASTERMINDS).allows(version)
        for op in ("", "!=", ">=", "<", "~")
    )


@given(texts, versions, grammars)
def test_a_range_said_to_match_nothing_matches_nothing(text: str, version: Version, grammar: Grammar) -> None:
    constraint = parsed(text, grammar)

    if any(doubt.startswith("No version can ever") for doubt in lint_constraint(constraint)):
        assert not constraint.allows(version)


@given(
    st.lists(versions, max_size=6), st.sampled_from(list(VersionPolicy)), st.randoms(), st.none() | versions
)
def test_preference_ignores_the_order_of_candidates(
    several: list[Version], policy: VersionPolicy, random: Random, origin: Version | None
) -> None:
    shuffled = list(several)
    random.shuffle(shuffled)

    assert rank(several, policy, origin=origin) == rank(shuffled, policy, origin=origin)
    assert rank(several)[:1] == tuple(sorted(several, key=lambda v: (v.height, v.text)))[-1:]


@given(versions)
def test_reading_loosely_agrees_with_reading_strictly(version: Version) -> None:
    assert parse_loose(f"v{version}").number.to_tuple() == version.number.to_tuple()
