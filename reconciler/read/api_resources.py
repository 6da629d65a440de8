"""The output of `kubectl api-resources`, as a table or as names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from reconciler.ids import GroupKind, group_of

_NAMESPACED = frozenset({"true", "false"})


class ApiResources(NamedTuple):
    """What a cluster serves: (apiVersion, kind) where the table says it, else only names.

    `plurals` are the kinds of the table by name, and `names` those without a kind: `plural.group`.
    """

    served: frozenset[tuple[str, str]] = frozenset()
    plurals: Mapping[str, GroupKind] = MappingProxyType({})
    names: frozenset[str] = frozenset()


NO_RESOURCES = ApiResources()


def parse_api_resources(text: str) -> ApiResources:
    """Return what `kubectl api-resources` printed, with or without `-o wide`, `-o name` or headers. Total.

    In a table the column NAMESPACED is the only one that says true or false; the apiVersion stands
    before it and the kind after it, whether a resource has short names or not.
    """
    served: set[tuple[str, str]] = set()
    plurals: dict[str, GroupKind] = {}
    names: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        where = next((i for i, word in enumerate(words) if i and word in _NAMESPACED), 0)
        if where and where + 1 < len(words):
            api_version, kind = words[where - 1], GroupKind(group_of(words[where - 1]), words[where + 1])
            served.add((api_version, kind.kind))
            plurals[_qualified(words[0], kind.group)] = kind
        elif len(words) == 1:
            names.add(words[0])
    return ApiResources(frozenset(served), plurals, frozenset() if served else frozenset(names))


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def guess_plural(kind: GroupKind) -> str:
    """Return the resource name that a kind usually has, with its group.

    Source: apimachinery pkg/api/meta restmapper.go, UnsafeGuessKindToResource.
    """
    word = kind.kind.lower()
    if word.endswith("s"):
        plural = f"{word}es"
    elif word.endswith("y"):
        plural = f"{word[:-1]}ies"
    else:
        plural = f"{word}s"
    return _qualified(plural, kind.group)
