"""Editing a document: splice where that can be done, else ruamel.yaml; checked by parsing either way."""

from collections.abc import Iterable

from reconciler.krm.yaml.edits import Edit, EditResult
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlLimits


def apply_edits(text: str, edits: Iterable[Edit], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Return the text of one document with the edits made, in order, and every other byte as it was.

    Deterministic and total: the result parses to the edited data, or there is none.

    Raises:
        YamlError: The text is not YAML, an edit names a place that there is not, or the edited data
            cannot be written.
    """
    raise NotImplementedError
