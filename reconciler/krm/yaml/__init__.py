"""The one door to YAML: exact reading, splice editing, and a checked fallback (design D6)."""

from reconciler.krm.yaml.document import Document
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.json import load_json, load_json_lines
from reconciler.krm.yaml.limits import MANIFEST_LIMITS, PACKAGE_LIMITS, SNAPSHOT_LIMITS, Aliases, YamlLimits
from reconciler.krm.yaml.load import iterate_documents, load_documents
from reconciler.krm.yaml.marks import Path

__all__ = [
    "MANIFEST_LIMITS",
    "PACKAGE_LIMITS",
    "SNAPSHOT_LIMITS",
    "Aliases",
    "Document",
    "Path",
    "YamlError",
    "YamlLimits",
    "iterate_documents",
    "load_documents",
    "load_json",
    "load_json_lines",
]
