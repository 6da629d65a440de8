"""Field paths of functions that write the same thing into many kinds: `spec/template/metadata/labels`."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from reconciler.functions.builtin.call import FunctionFailedError
from reconciler.functions.resource import Resource


class FieldSpec(NamedTuple):
    """A field of some kinds. Empty group, version and kind fit everything; `a[]` is every item of `a`."""

    path: str
    group: str = ""
    version: str = ""
    kind: str = ""
    create: bool = False

    def fits(self, resource: Resource) -> bool:
        """Tell whether the field is one of this resource's."""
        return (
            self.kind in ("", resource.kind)
            and self.group in ("", resource.group)
            and self.version in ("", resource.api_version.rpartition("/")[2])
        )


class Slot(NamedTuple):
    """A place in a mapping: `holder[key]`, present or not."""

    holder: dict[str, Any]
    key: str


def find_slots(value: Any, path: Sequence[str], *, create: bool) -> Iterator[Slot]:
    """Yield the places that a path leads to; mappings on the way are made if `create`.

    Raises:
        FunctionFailedError: Something on the way is neither absent nor what the path says.
    """
    if value is None:
        return
    step, rest = path[0], path[1:]
    if not isinstance(value, dict):
        raise FunctionFailedError(f"The field above {step} is no mapping")
    key, is_list = (step[:-2], True) if step.endswith("[]") else (step, False)
    if not rest and not is_list:
        if create or key in value:
            yield Slot(value, key)
        return
    if value.get(key) is None:
        if not create or is_list:
            return
        value[key] = {}
    if not is_list:
        yield from find_slots(value[key], rest, create=create)
        return
    for item in value[key] if isinstance(value[key], list) else ():
        yield from find_slots(item, rest, create=create)


def read_specs(given: Any, where: str) -> list[FieldSpec]:
    """Return the field specs of a configuration.

    Raises:
        FunctionFailedError: They are not what they should be.
    """
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(item, dict) and item.get("path") for item in given):
        raise FunctionFailedError(f"{where} is no list of fields with a path")
    return [
        FieldSpec(
            str(item["path"]),
            str(item.get("group") or ""),
            str(item.get("version") or ""),
            str(item.get("kind") or ""),
            create=item.get("create") is True,
        )
        for item in given
    ]
