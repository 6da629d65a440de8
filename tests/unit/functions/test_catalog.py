"""Image names and versions that builtins claim, with their profiles."""

from itertools import pairwise
from typing import NamedTuple

import pytest

from reconciler.functions.builtin import BUILTINS
from reconciler.functions.catalog import (
    CLAIMS,
    REGISTRIES,
    SCHEMA_VALIDATORS,
    UNSTUDIED,
    Image,
    closest_function,
    find_claim,
    parse_image,
)

DIGEST = "sha256:" + "a" * 64


class Case(NamedTuple):
    reason: str
    image: str
    tag: str
    want: str | None


CASES = [
    Case("the newest exact version", "set-namespace:v0.4.5", "", ""),
    Case("an older one has its own profile", "set-namespace:v0.4.1", "", "plain"),
    Case("a floating minor means its newest", "set-namespace:v0.4", "", ""),
    Case("a version before its last change", "set-namespace:v0.4.2", "", "one-origin"),
    Case("a floating minor of long ago", "set-namespace:v0.1", "", "default-subjects"),
    Case("a version between that nobody studied", "set-namespace:v0.3.4", "", None),
    Case("a floating one of them", "set-namespace:v0.3", "", None),
    Case("a range whose newest nobody studied", "set-namespace", ">=0.1 <0.4", None),
    Case("a range that ends before the newest", "set-namespace", "0.4.1 - 0.4.2", "one-origin"),
    Case("the highest of alternatives", "set-labels", "0.1 || 0.2.1", ""),
    Case("a range of a minor before the newest", "starlark", "~0.4", ""),
    Case("a range of one patch", "apply-replacements", ">0.1.0 <0.1.2", "lenient"),
    Case("a range without a released patch", "set-labels", ">0.2.5 <0.3", None),
    Case("a tag replaces a digest", f"set-labels@{DIGEST}", "~0.2", ""),
    Case("a tag and a digest that nobody pinned", f"set-labels:v0.2.0@{DIGEST}", "", None),
    Case("a patch after the newest one", "set-labels:v0.2.6", "", None),
    Case("every registry's spelling", "gcr.io/kpt-fn/apply-replacements:v0.1.1", "", "lenient"),
    Case("the new registry", "ghcr.io/kptdev/krm-functions-catalog/apply-replacements:v0.1.1", "", "lenient"),
    Case("no tag is the newest", "set-labels", "", ""),
    Case("latest is the newest", "set-labels:latest", "", ""),
    Case("below the range is not ours", "set-labels:v0.1.5", "", None),
    Case("above the range is not ours", "set-namespace:v0.5.0", "", None),
    Case("a floating minor above what we know", "set-labels:v0.3", "", None),
    Case("a floating major is more than we know", "set-namespace:v0", "", None),
    Case("another registry's function of the same name", "example.com/acme/set-labels:v0.2", "", None),
    Case("an unknown function", "no-such-function:v1", "", None),
    Case("tag replaces the image's own", "set-namespace:v9", "v0.4.1", "plain"),
    Case("tag may be a constraint", "apply-setters", "~0.1", "required"),
    Case("the highest that fits wins", "apply-setters", ">=0.1", ""),
    Case("a constraint that nothing fits", "apply-setters", ">=3", None),
    Case("a digest that nobody pinned", f"set-labels@{DIGEST}", "", None),
    Case("a tag that is no version", "set-labels:stable", "", None),
    Case("a pseudo image", "builtins/gen-pkg-context", "", ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_claim(case: Case) -> None:
    image = parse_image(case.image, case.tag)
    assert image is not None

    claim = find_claim(image)

    assert (claim.profile if claim else None) == case.want


@pytest.mark.parametrize("name", ["fn", "example.com/fn", "example.com:5000/a/fn"])
@pytest.mark.parametrize("tag", ["", "v1"])
@pytest.mark.parametrize("digest", ["", DIGEST])
def test_image_is_split_into_name_tag_and_digest(name: str, tag: str, digest: str) -> None:
    text = name + (tag and f":{tag}") + (digest and f"@{digest}")

    assert parse_image(text) == Image(name, tag, digest)


@pytest.mark.parametrize(
    ("text", "tagged", "full"),
    [
        ("set-labels", "/set-labels:latest", "/set-labels:latest"),
        ("set-labels:v0.2", "/set-labels:v0.2", "/set-labels:v0.2"),
        (f"set-labels:v0.2@{DIGEST}", "/set-labels:v0.2", f"/set-labels@{DIGEST}"),
    ],
)
def test_short_name_is_of_the_first_registry_and_latest(text: str, tagged: str, full: str) -> None:
    image = parse_image(text)
    assert image is not None

    assert (image.tagged, image.full) == (REGISTRIES[0] + tagged, REGISTRIES[0] + full)


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_of_a_builtin_have_their_newest_version(name: str) -> None:
    claims = CLAIMS[name]

    assert all(claim.low <= claim.newest < claim.high for claim in claims)
    for claim in (each for each in claims if each.profile != UNSTUDIED):
        versions = [claim.low, claim.newest, claim.high]
        found = [find_claim(Image(name, "v{}.{}.{}".format(*version))) for version in versions]
        assert found[:2] == [claim, claim]
        assert found[2] != claim


def test_floating_tags_may_be_left_to_containers() -> None:
    image = parse_image("set-labels:latest")
    assert image is not None

    assert find_claim(image, floating=False) is None


def test_pinned_digest_is_claimed() -> None:
    image = parse_image(f"set-labels:v0.2.0@{DIGEST}")
    assert image is not None

    assert find_claim(image, pinned=DIGEST) is not None
    assert find_claim(image, pinned=DIGEST.replace("a", "b")) is None


@pytest.mark.parametrize("text", ["", "UPPER/../x", "a b", "name:tag:tag", "-x", "x@sha256:short"])
def test_text_that_is_no_image_is_none(text: str) -> None:
    assert parse_image(text) is None


def test_every_claim_has_a_builtin_or_a_runtime() -> None:
    assert set(CLAIMS) - set(BUILTINS) == {"starlark", "render-helm-chart", *SCHEMA_VALIDATORS}
    assert all(first.high == second.low for c in CLAIMS.values() for first, second in pairwise(c))


STUDIED = ", ".join(
    f"v{low} to v{newest}"
    for low, newest in (
        *(("0.1.4", "0.1.4"), ("0.2.0", "0.2.0"), ("0.4.0", "0.4.1"), ("0.4.2", "0.4.2"), ("0.4.3", "0.4.5")),
    )
)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("gcr.io/kpt-fn/set-label:v0.2", "Did you mean gcr.io/kpt-fn/set-labels:v0.2?"),
        ("host/x/set-labels:v0.2", "Did you mean ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2?"),
        ("set-label:v0.2", "Did you mean set-labels:v0.2?"),
        ("gcr.io/kpt-fn/set-label:v9.9", "Did you mean gcr.io/kpt-fn/set-labels:v0.2.5?"),
        ("gcr.io/kpt-fn/set-labels:v9.9", "Versions: v0.2.0 to v0.2.5."),
        ("set-namespace:v9.9.9", f"Versions: {STUDIED}."),
        ("gcr.io/kpt-fn/zzzz:v1", ""),
    ],
)
def test_image_that_nothing_claims_has_the_closest_function_as_a_hint(text: str, hint: str) -> None:
    image = parse_image(text)

    assert image is not None
    assert closest_function(image) == hint
