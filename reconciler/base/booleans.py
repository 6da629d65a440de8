"""Booleans that people write as words: in inputs, variables, settings, annotations and configurations."""

from collections.abc import Mapping
from typing import Final

from reconciler.base.suggestions import suggest

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""Of the core schema of YAML 1.2, as GitHub's own actions read them.

Source: actions/toolkit, packages/core/src/core.ts, getBooleanInput.
"""


def parse_boolean(value: object) -> bool | None:
    """Return the boolean that a value is or spells, None for any other value: never take it as false."""
    return value if isinstance(value, bool) else _WORDS.get(value) if isinstance(value, str) else None


def boolean_hint(value: object) -> str:
    """Return the next step for a value that is no boolean."""
    return suggest(str(value), ("true", "false"), otherwise="Write true or false.")
