"""Which vectors of Porch's PackageVariants have another answer here: by rule, never by name.

`docs/contributing/divergences.md` lists the cases that the rules find, one by one; a test compares both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from tests.support.conformance import PROJECT, Case, cases_of

PART = "porch"
DOCUMENT = PROJECT / "docs/contributing/divergences.md"
_ROW = re.compile(r"\| `(?P<file>pv-[\w-]+)` \| `(?P<test>\w+)` \| (?P<name>.+?) \| (?P<rule>\w+) \|")


class Listed(NamedTuple):
    """One case with another answer, and the rule that gives it."""

    file: str
    test: str
    name: str
    rule: str


def rule_of(case: Case) -> str:
    """Return the rule that answers a case otherwise, empty if the answer is Porch's."""
    rule = _RULES.get(case.kind)
    return rule(case) if rule else ""


def divergent_cases() -> list[Listed]:
    """Return the cases of the vectors that the rules find, sorted."""
    found = cases_of(PART, *_RULES)
    return sorted(Listed(c.file.stem, c["source"]["test"], c.name, d) for c in found if (d := rule_of(c)))


def listed_cases() -> list[Listed]:
    """Return the cases that the document lists, sorted."""
    return sorted(Listed(**match.groupdict()) for match in _ROW.finditer(DOCUMENT.read_text()))


def is_owned(item: Mapping[str, Any]) -> bool:
    """Whether a package revision of a vector is the variant's."""
    owners = item["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == "pv-uid" for owner in owners)


def _upstream(case: Case) -> str:
    """D9: a variant that names a package and nothing else means the latest published revision."""
    upstream = case["upstream"]
    bare = upstream.get("repo") and not upstream.get("workspaceName") and "revision" not in upstream
    return "upstream" if bare else ""


def _published(case: Case) -> str:
    """D9: a revision and a workspace name one revision; Porch ignores the workspace."""
    upstream, index = case["upstream"], case["expectedFound"]
    if index is None or not upstream.get("workspaceName"):
        return ""
    return (
        "upstream"
        if case["packageRevisions"][index]["spec"]["workspaceName"] != upstream["workspaceName"]
        else ""
    )


def _revision(case: Case) -> str:
    """D9: a revision that is given means what it says; Porch writes -1 over it."""
    given = (case["upstream"] or {}).get("revision")
    return "upstream" if given is not None and given != case["expectedRevisionAfter"] else ""


def _downstream(case: Case) -> str:
    """D4, D5: one draft per variant, one owner per package, and nobody's draft is taken over."""
    spec = yaml.safe_load(case["packageVariant"])["spec"]
    here = [*_items_at(case, spec["downstream"]["package"])]
    drafts = [item for item in here if item["spec"]["lifecycle"] == "Draft"]
    if spec.get("adoptionPolicy") == "adoptExisting" and any(not is_owned(item) for item in drafts):
        return "owner"
    if sum(map(is_owned, drafts)) > 1:
        return "drafts"
    latest = max(here, key=lambda item: item["spec"].get("revision", 0), default=None)
    return "owner" if latest and any(map(is_owned, here)) and not drafts and not is_owned(latest) else ""


def _items_at(case: Case, path: str) -> Iterator[Mapping[str, Any]]:
    items = yaml.safe_load(case["packageRevisionList"]).get("items") or []
    return (item for item in items if item["spec"]["packageName"] == path)


def _points(case: Case) -> str:
    """D6: a file that is not YAML is opaque, and the others count."""
    return "YAML" if case["expectedError"] else ""


def _injection(case: Case) -> str:
    """D18: the seed's annotation is written beside Porch's."""
    return "injection" if "kpt.dev/injected-resource:" in case["expectedPackageRevisionResources"] else ""


_RULES: Mapping[str, Callable[[Case], str]] = {
    "PackageVariantUpstreamValidation": _revision,
    "PvUpstreamSelection": _upstream,
    "PvPublishedUpstream": _published,
    "DownstreamSelection": _downstream,
    "InjectionPointDiscovery": _points,
    "ConfigInjection": _injection,
}
