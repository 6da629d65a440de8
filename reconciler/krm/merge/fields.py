"""The merge of one resource that loses nothing: what both sides changed differently is a clash."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reconciler.krm.merge.nodes import Field, Node, declared, is_same
from reconciler.krm.merge.result import (
    KEEP,
    Comment,
    ConflictResolver,
    FieldConflict,
    Made,
    Merged,
    Part,
    Steps,
    Taken,
    Winner,
)
from reconciler.krm.schema import Shape
from reconciler.krm.yaml.comments import NO_COMMENTS

ElementKey = tuple[str, ...]
FUNCTION = "$function"
"""The merge key of a Kptfile's functions: the name, else the executable, else the image without version."""
KPT_FUNCTION = "$kpt-function"
"""The same as kpt has it, where no function has a name: the image ends at its first colon."""
INFERRED_KEYS = ("mountPath", "devicePath", "ip", "type", "topologyKey", "name", "containerPort")
"""What identifies the elements of a list of unknown shape, tried in this order.

Source: kyaml yaml/schema, AssociativeSequenceKeys.
"""
Slot = Field | Node
"""What has comments of its own: a field, or an element of a list."""


@dataclass(slots=True)
class FieldMerge:
    """Merges nodes leaf by leaf; elements of keyed lists come and go whole.

    Laws: what upstream did not change stays as local has it; what local did not change
    becomes upstream's text.
    """

    judge: ConflictResolver
    schemas_in_comments: bool = False
    clashes: list[FieldConflict] = field(default_factory=list)

    def merge(
        self, base: Node | None, upstream: Node | None, local: Node | None, shape: Shape | None, path: Steps
    ) -> Merged | None:
        """Return the merged value, None where it is to be gone."""
        if _is_untouched(base, upstream):
            return local
        if _is_untouched(base, local):
            return None if upstream is None else _follow(upstream, local)
        given = [node for node in (base, upstream, local) if node is not None]
        if all(node.is_mapping for node in given):
            return self._mapping(base, upstream, local, shape, path)
        if shape is not None and shape.keys is not None and all(node.is_sequence for node in given):
            sides = [keyed(side, shape) for side in (base, upstream, local)]
            if None not in sides:
                return self._keyed_list(local, [side or {} for side in sides], shape, path)
        return self._whole(base, upstream, local, path)

    def _whole(
        self, base: Node | None, upstream: Node | None, local: Node | None, path: Steps
    ) -> Merged | None:
        """Merge a value that only changes as a whole."""
        is_equal = is_same(base, upstream) and is_same(upstream, local)
        if is_equal and (made := _aligned(base, upstream, local)) is not None:
            return made
        if is_same(base, upstream) or is_same(upstream, local):
            return local
        if is_same(base, local):
            return None if upstream is None else Taken(upstream, exact=False)
        reason = (
            "DeletedLocally" if local is None else "DeletedUpstream" if upstream is None else "BothChanged"
        )
        if self._judged(path, base, upstream, local, reason) is Winner.UPSTREAM:
            return None if upstream is None else Taken(upstream, exact=False)
        return local

    def _mapping(
        self, base: Node | None, upstream: Node | None, local: Node | None, shape: Shape | None, path: Steps
    ) -> Merged | None:
        of_base, of_upstream, of_local = (n.fields if n is not None else {} for n in (base, upstream, local))
        decided = self._unions(of_base, of_upstream, of_local, shape, path)
        made = Made(local)
        for name in (*of_local, *(name for name in of_upstream if name not in of_local)):
            ours, theirs, old = of_local.get(name), of_upstream.get(name), of_base.get(name)
            if name in decided:
                old = ours if decided[name] is Winner.UPSTREAM else theirs
            below = declared(ours, old, theirs) if self.schemas_in_comments else None
            if below is None and shape is not None:
                below = shape.below(name)
            value = self.merge(_value(old), _value(theirs), _value(ours), below, (*path, name))
            if value is not None:
                made.fields[name] = with_comments(value, old, theirs, ours)
        if made.fields or (upstream is not None and local is not None):
            return made
        return None

    def _unions(
        self,
        base: dict[str, Field],
        upstream: dict[str, Field],
        local: dict[str, Field],
        shape: Shape | None,
        path: Steps,
    ) -> dict[str, Winner]:
        """Decide about fields of which only one may be set, where one side changed which."""
        decided: dict[str, Winner] = {}
        for union in shape.unions if shape is not None else ():
            members = [
                {name: f.value for name, f in side.items() if name in union}
                for side in (base, upstream, local)
            ]
            old, theirs, ours = members
            switched = theirs.keys() != old.keys() or ours.keys() != old.keys()
            if (
                not switched
                or _same_members(theirs, old)
                or _same_members(ours, old)
                or _same_members(theirs, ours)
            ):
                continue
            names = [
                n for n in sorted(theirs.keys() | ours.keys()) if not is_same(theirs.get(n), ours.get(n))
            ]
            judged = (*path, names[0])
            verdict = self.judge(judged)
            for name in names:
                sides = (old.get(name), theirs.get(name), ours.get(name))
                self.clashes.append(
                    FieldConflict((*path, name), *sides, "BothChanged", verdict, judged=judged)
                )
            decided |= dict.fromkeys(union, verdict)
        return decided

    def _keyed_list(
        self, local: Node | None, sides: list[dict[ElementKey, Node]], shape: Shape, path: Steps
    ) -> Merged | None:
        base, upstream, ours = sides
        made = Made(local, items=[])
        items: list[Part] = []
        for key in (*ours, *(key for key in upstream if key not in ours)):
            at = (*path, step_of(key, shape))
            value = self._element(base.get(key), upstream.get(key), ours.get(key), shape.items, at)
            if value is not None:
                part = with_comments(value, base.get(key), upstream.get(key), ours.get(key))
                items.append(replace(part, over=ours.get(key)))
        made.items = items
        return made if items or (local is not None and upstream) else None

    def _element(
        self, base: Node | None, upstream: Node | None, local: Node | None, shape: Shape | None, path: Steps
    ) -> Merged | None:
        if base is not None and (upstream is None or local is None):
            return self._whole(base, upstream, local, path)
        return self.merge(base, upstream, local, shape, path)

    def _judged(
        self, path: Steps, base: Node | None, upstream: Node | None, local: Node | None, reason: str
    ) -> Winner:
        verdict = self.judge(path)
        self.clashes.append(FieldConflict(path, base, upstream, local, reason, verdict))
        return verdict


def with_comments(value: Merged, base: Slot | None, upstream: Slot | None, local: Slot | None) -> Part:
    """Take the comments that upstream changed and local did not."""
    part = Part(value)
    if upstream is None or local is None:
        return part
    ours, theirs = local.comments, upstream.comments
    old = base.comments if base is not None else NO_COMMENTS
    part.line = _comment(old.line, theirs.line, ours.line)
    part.head = _comment(old.head, theirs.head, ours.head)
    return part


def _comment(base: str, upstream: str, local: str) -> Comment:
    return upstream if local == base and upstream != base else KEEP


def _same_members(one: dict[str, Node], other: dict[str, Node]) -> bool:
    return one.keys() == other.keys() and all(is_same(node, other[name]) for name, node in one.items())


def _value(found: Field | None) -> Node | None:
    return found.value if found is not None else None


def _aligned(base: Node | None, upstream: Node | None, local: Node | None) -> Merged | None:
    """Merge the comments inside three values of the same data, item by item; None where it cannot be done."""
    if base is None or upstream is None or local is None:
        return None
    if not all(node.is_block and not node.has_alias() for node in (base, upstream, local)):
        return None
    if local.is_mapping:
        fields = {name: (base.fields[name], upstream.fields[name], f) for name, f in local.fields.items()}
        return Made(local, {name: _aligned_part(*sides) for name, sides in fields.items()})
    triples = zip(base.items, upstream.items, local.items, strict=True)
    parts = [replace(_aligned_part(*sides), over=sides[2]) for sides in triples]
    return Made(local, items=parts)


def _aligned_part(base: Slot, upstream: Slot, local: Slot) -> Part:
    values = [each.value if isinstance(each, Field) else each for each in (base, upstream, local)]
    return with_comments(_aligned(*values) or values[2], base, upstream, local)


def _is_untouched(base: Node | None, side: Node | None) -> bool:
    """Tell whether a side has the very text of the base, comments included."""
    if base is None or side is None:
        return base is side
    return base.source == side.source


def _follow(upstream: Node, local: Node | None) -> Merged:
    """Become upstream where local touched nothing: field by field as long as the fields are the same."""
    if local is None or upstream.kind is not local.kind or not upstream.is_block or not local.is_block:
        return Taken(upstream)
    if upstream.source == local.source:
        return local
    if upstream.is_mapping and [*upstream.fields] == [*local.fields]:
        pairs = ((name, f.value, local.fields[name].value) for name, f in upstream.fields.items())
        return Made(local, {name: _followed(theirs, ours) for name, theirs, ours in pairs})
    if upstream.is_sequence and len(upstream.items) == len(local.items):
        return Made(local, items=list(map(_followed, upstream.items, local.items)))
    return Taken(upstream)


def _followed(upstream: Node, local: Node) -> Part:
    value = local if upstream.source == local.source else _follow(upstream, local)
    notes = upstream.comments
    return Part(value, local, line=notes.line, head=notes.head)


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
