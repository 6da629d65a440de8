"""The schemas of what users write, as files for editors: docs/schemas/KIND.schema.json (`make docs`)."""

from functools import cache
from pathlib import Path

from reconciler.base.redact import Redactor
from reconciler.cli.schema import NAMES, manifest_schema
from reconciler.report.machine import dump

DIRECTORY = Path(__file__).resolve().parents[2] / "docs/schemas"


@cache
def manifest_schemas() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        DIRECTORY / f"{name.lower()}.schema.json": dump(manifest_schema(name), Redactor()) for name in NAMES
    }


if __name__ == "__main__":
    for path, text in manifest_schemas().items():
        path.write_text(text, encoding="utf-8")
