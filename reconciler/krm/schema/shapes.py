"""The part of a schema that a merge needs: which lists are merged by which keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a value.

    `keys` None is a list that is one value as a whole, `()` a set of scalars, else the fields
    that identify an element; `defaults` are the values of keys that may be left out. `values`
    is the shape of every field that `fields` does not name. At most one field of each of
    `unions` may be set.
    """

    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    values: "Shape | None" = None
    items: "Shape | None" = None
    keys: tuple[str, ...] | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    unions: tuple[frozenset[str], ...] = ()

    def below(self, name: str) -> "Shape | None":
        """Return the shape of one field, None where nothing is known of it."""
        return self.fields.get(name, self.values)
