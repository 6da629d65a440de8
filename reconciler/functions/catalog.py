"""The catalog of builtin functions: image names, and the versions that each builtin claims.

A builtin claims a range of versions, with a profile where versions of one function behave differently. A
version outside of the range needs a container: another version would silently give another result.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from reconciler.base.lazy import regex
from reconciler.base.suggestions import close_names
from reconciler.dependencies.versions import Grammar, VersionError, parse_constraint, parse_strict

REGISTRIES: Final = (
    "ghcr.io/kptdev/krm-functions-catalog",
    "ghcr.io/kptdev/kpt-fn",
    "ghcr.io/kptdev/krm-functions-catalog/krm-fn-contrib",
    "gcr.io/kpt-fn",
    "gcr.io/kpt-fn-contrib",
    "us-docker.pkg.dev/kpt-fn/functions",
)
APPLY_REPLACEMENTS: Final = "apply-replacements"
APPLY_SETTERS: Final = "apply-setters"
STARLARK: Final = "starlark"
SCHEMA_VALIDATORS: Final = frozenset(("kubeconform", "kubeval"))
_FLOATING: Final = frozenset(("", "latest", "unstable"))
_VERSION: Final = regex(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_REFERENCE: Final = regex(
    r"(?P<name>[a-zA-Z0-9][a-zA-Z0-9._-]*(?::[0-9]+)?(?:/[a-zA-Z0-9][a-zA-Z0-9._-]*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{32,}))?"
)

_PATCHES: Final = 20

Triple = tuple[int, int, int]


class Image(NamedTuple):
    """An image reference; `name` includes the registry."""

    name: str
    tag: str = ""
    digest: str = ""

    @property
    def short(self) -> str:
        """The catalog's name of the function, or "" for an image of another registry."""
        registry, slash, last = self.name.rpartition("/")
        return last if not slash or registry in REGISTRIES else ""

    @property
    def qualified(self) -> str:
        """The name with its registry."""
        return self.name if "/" in self.name else f"{REGISTRIES[0]}/{self.name}"

    @property
    def tagged(self) -> str:
        """The name with its registry and tag, by default `latest`, as a lock pins it."""
        return f"{self.qualified}:{self.tag or 'latest'}"

    @property
    def full(self) -> str:
        """The reference for a container engine: by digest if there is one, else by tag."""
        return f"{self.qualified}@{self.digest}" if self.digest else self.tagged


UNSTUDIED: Final = "unstudied"
"""The profile of released versions that no builtin implements, between others that one does."""


class VersionClaim(NamedTuple):
    """The versions from `low` to below `high` that a profile of a builtin implements."""

    low: Triple
    high: Triple
    newest: Triple
    profile: str = ""


def _claims(low: Triple, high: Triple, newest: Triple) -> tuple[VersionClaim, ...]:
    return (VersionClaim(low, high, newest),)


CLAIMS: Final[dict[str, tuple[VersionClaim, ...]]] = {
    APPLY_REPLACEMENTS: (
        VersionClaim((0, 1, 0), (0, 1, 2), (0, 1, 1), "lenient"),
        VersionClaim((0, 1, 2), (0, 2, 0), (0, 1, 5)),
    ),
    APPLY_SETTERS: (
        VersionClaim((0, 1, 0), (0, 2, 0), (0, 1, 1), "required"),
        VersionClaim((0, 2, 0), (0, 3, 0), (0, 2, 2)),
    ),
    "create-setters": _claims((0, 1, 0), (0, 2, 0), (0, 1, 0)),
    "delete-annotations": _claims((0, 1, 0), (0, 2, 0), (0, 1, 0)),
    "enable-gcp-services": _claims((0, 1, 0), (0, 2, 0), (0, 1, 0)),
    "ensure-name-substring": _claims((0, 1, 0), (0, 3, 0), (0, 2, 0)),
    "generate-folders": _claims((0, 1, 0), (0, 2, 0), (0, 1, 1)),
    "kubeconform": _claims((0, 1, 0), (0, 2, 0), (0, 1, 1)),
    "kubeval": _claims((0, 1, 0), (0, 4, 0), (0, 3, 0)),
    "list-setters": _claims((0, 1, 0), (0, 2, 0), (0, 1, 0)),
    "remove-local-config-resources": _claims((0, 1, 0), (0, 2, 0), (0, 1, 0)),
    "render-helm-chart": _claims((0, 1, 0), (0, 4, 0), (0, 3, 0)),
    "search-replace": _claims((0, 1, 0), (0, 3, 0), (0, 2, 1)),
    "set-annotations": _claims((0, 1, 0), (0, 2, 0), (0, 1, 5)),
    "set-image": _claims((0, 1, 0), (0, 2, 0), (0, 1, 2)),
    "set-labels": _claims((0, 2, 0), (0, 3, 0), (0, 2, 5)),
    "set-namespace": (
        VersionClaim((0, 1, 0), (0, 1, 4), (0, 1, 3), UNSTUDIED),
        VersionClaim((0, 1, 4), (0, 2, 0), (0, 1, 4), "default-subjects"),
        VersionClaim((0, 2, 0), (0, 3, 0), (0, 2, 0), "account-subjects"),
        VersionClaim((0, 3, 0), (0, 4, 0), (0, 3, 4), UNSTUDIED),
        VersionClaim((0, 4, 0), (0, 4, 2), (0, 4, 1), "plain"),
        VersionClaim((0, 4, 2), (0, 4, 3), (0, 4, 2), "one-origin"),
        VersionClaim((0, 4, 3), (0, 5, 0), (0, 4, 5)),
    ),
    "set-project-id": _claims((0, 1, 0), (0, 3, 0), (0, 2, 1)),
    STARLARK: _claims((0, 3, 0), (0, 6, 0), (0, 5, 5)),
    "upsert-resource": _claims((0, 1, 0), (0, 3, 0), (0, 2, 1)),
}
COPYING: Final = frozenset(
    ("delete-annotations", "remove-local-config-resources", "set-annotations", "set-labels", "set-namespace")
)
"""Builtins that copy the texts of their configuration, and compare them with nothing but equal ones."""
PSEUDO: Final = frozenset(("builtins/gen-pkg-context",))


def parse_image(text: str, tag: str = "") -> Image | None:
    """Return an image reference, None if the text is none; `tag` replaces tag and digest.

    Source: kpt pkg/lib/kptfile/v1 and thirdparty OCI reference grammar.
    """
    match = _REFERENCE.fullmatch(text.strip())
    if match is None:
        return None
    if tag:
        return Image(match["name"], tag)
    return Image(match["name"], match["tag"] or "", match["digest"] or "")


def find_claim(image: Image, *, floating: bool = True, pinned: str = "") -> VersionClaim | None:
    """Return the claim of a builtin for an image, None if no builtin claims it.

    A range (`v0.4`, `~0.4`) is claimed if the builtin implements all of it, in the newest profile;
    `latest`, `unstable` and no tag if `floating` is set; a digest only if it is `pinned` for the tag.
    """
    claims = CLAIMS.get(image.short, ())
    # Functions inside of kpt itself have no versions.
    if image.name in PSEUDO:
        return VersionClaim((0, 0, 0), (0, 0, 0), (0, 0, 0))
    # A digest may be any version, unless it is the one that the lock pinned for the tag.
    if not claims or (image.digest and image.digest != pinned):
        return None
    if image.tag in _FLOATING:
        return claims[-1] if floating else None
    version = _VERSION.fullmatch(image.tag)
    claim = _by_constraint(image.tag, claims) if version is None else _by_version(version, claims)
    return None if claim is None or claim.profile == UNSTUDIED else claim


@cache
def closest_function(image: Image) -> str:
    """Return a hint with the function of the catalog that an image probably means, "" if it means none.

    A function of the catalog in a version that no builtin claims has its versions as the hint.
    """
    registry, _, name = image.name.rpartition("/")
    if image.short in CLAIMS:
        claims = (claim for claim in CLAIMS[image.short] if claim.profile != UNSTUDIED)
        return f"Versions: {', '.join(f'v{_dotted(c.low)} to v{_dotted(c.newest)}' for c in claims)}."
    for closest in (name,) if name in CLAIMS else close_names(name, CLAIMS, most=1):
        prefix = f"{registry if registry in REGISTRIES else REGISTRIES[0]}/" if registry else ""
        claim = find_claim(Image(prefix + closest, image.tag), floating=False)
        tag = image.tag if claim else f"v{_dotted(CLAIMS[closest][-1].newest)}"
        return f"Did you mean {prefix}{closest}:{tag}?"
    return ""


def _by_version(version: re.Match[str], claims: tuple[VersionClaim, ...]) -> VersionClaim | None:
    major, minor, patch = (int(part) if part else None for part in version.groups())
    low = (major or 0, minor or 0, patch or 0)
    if patch is not None:
        # A later patch may behave otherwise: it was not studied.
        return next((claim for claim in claims if claim.low <= low <= claim.newest), None)
    high = (low[0], low[1] + 1, 0) if minor is not None else (low[0] + 1, 0, 0)
    if low < claims[0].low or high > claims[-1].high:
        return None
    return next(claim for claim in reversed(claims) if claim.low < high)


def _by_constraint(text: str, claims: tuple[VersionClaim, ...]) -> VersionClaim | None:
    """Return the claim of the highest version that a constraint allows, as kpt takes the highest tag.

    Source: kpt pkg/fn/runtime/tag_resolution.go, ResolveFunctionImage.
    """
    try:
        constraint = parse_constraint(text, Grammar.MASTERMINDS)
        fitting = [
            claim
            for claim in claims
            if any(constraint.allows(parse_strict(_dotted(version))) for version in _versions(claim))
        ]
    except VersionError:
        return None
    return fitting[-1] if fitting else None


def _versions(claim: VersionClaim) -> Iterator[Triple]:
    """Yield versions that may have been released, up to the newest; of minors before it, enough patches."""
    for minor in range(claim.low[1], claim.newest[1] + 1):
        last = claim.newest[2] if minor == claim.newest[1] else _PATCHES
        for patch in range(last + 1):
            if claim.low <= (claim.low[0], minor, patch) <= claim.newest:
                yield claim.low[0], minor, patch


def _dotted(version: Triple) -> str:
    return ".".join(map(str, version))
