"""Which element of a list is which: by its merge keys."""

from collections import Counter
from collections.abc import Iterable

from reconciler.krm.merge.view import Node
from reconciler.krm.schema import Shape

ElementKey = tuple[str, ...]

FUNCTION = "$function"
"""The merge key of a Kptfile's functions: the name, else the executable, else the image without version."""

KPT_FUNCTION = "$kpt-function"
"""The same as kpt has it, where no function has a name: the image ends at its first colon."""

INFERRED_KEYS = ("mountPath", "devicePath", "ip", "type", "topologyKey", "name", "containerPort")
"""What identifies the elements of a list of unknown shape, tried in this order.

Source: kyaml yaml/schema, AssociativeSequenceKeys.
"""


def element_key(element: Node, shape: Shape) -> ElementKey | None:
    """Return the key of an element, None if it has none of its own; a set's scalar is its own key."""
    if not shape.keys:
        return (element.text,) if element.is_scalar else None
    if not element.is_mapping:
        return None
    found = [_key_text(element, key, shape) for key in shape.keys]
    return tuple(found) if found[0] or any(found) else None


def keyed(side: Node | None, shape: Shape) -> dict[ElementKey, Node] | None:
    """Return the elements of a side by key; None if some element has no key or two have the same."""
    elements: dict[ElementKey, Node] = {}
    seen: Counter[ElementKey] = Counter()
    for element in side.items if side is not None else ():
        key = element_key(element, shape)
        if key is None:
            return None
        seen[key] += 1
        if seen[key] > 1:
            if shape.keys != (FUNCTION,):
                return None
            key = (f"{key[0]}#{seen[key]}",)
        elements[key] = element
    return elements


def step_of(key: ElementKey, shape: Shape) -> str:
    """Return the step of a path that leads to the element with this key."""
    if not shape.keys:
        return f"[={key[0]}]"
    pairs = zip((name.removeprefix("$") for name in shape.keys), key, strict=True)
    return "[" + ",".join(f"{name}={value}" for name, value in pairs if value) + "]"


def infer_keys(sides: Iterable[Node | None]) -> tuple[str, ...] | None:
    """Return the keys of a list of unknown shape: the first known one that all elements of all sides have."""
    elements = [element for side in sides if side is not None for element in side.items]
    if not elements or not all(element.is_mapping for element in elements):
        return None
    return next(((key,) for key in INFERRED_KEYS if all(key in e.fields for e in elements)), None)


def repository_of(image: str) -> str:
    """Return an image reference without its tag and digest; a registry may have a port."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _function(element: Node) -> str:
    name, executable, image = (_field_text(element, field) for field in ("name", "exec", "image"))
    return name or executable or repository_of(image)


def _kpt_function(element: Node) -> str:
    return _field_text(element, "exec") or _field_text(element, "image").partition(":")[0]


_COMPUTED = {FUNCTION: _function, KPT_FUNCTION: _kpt_function}


def _field_text(element: Node, name: str) -> str:
    field = element.fields.get(name)
    return field.value.text if field is not None and field.value.is_scalar and not field.value.is_null else ""


def _key_text(element: Node, key: str, shape: Shape) -> str:
    if key in _COMPUTED:
        return _COMPUTED[key](element)
    field = element.fields.get(key)
    if field is None or field.value.is_null or not field.value.is_scalar:
        return shape.defaults.get(key, "")
    return field.value.text
