"""Read the examples of the proposals that the project implements, from the folder beside the vectors.

Their texts are not copied. Where a text has lost its line breaks, a layout restores those of an example:
`indent:words` of each line.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.conformance import VARIABLE, named_folder, skip_absent

CARVEL, PORTER, CROSSPLANE = "002", "003", "004"


def proposal(number: str) -> str:
    """Return the text of one proposal; skip the test if it is absent, or fail it in CI."""
    folder = named_folder().parent / "seeds"
    files = sorted(folder.glob(f"{number}_*.txt"))
    if not files:
        skip_absent(f"needs the proposals beside the vectors that {VARIABLE} names ({number}, in {folder})")
    return files[0].read_text(encoding="utf-8")


def example(number: str, heading: str, place: int = 0) -> str:
    """Return one of the code blocks behind a heading, the first unless `place` says otherwise."""
    text = proposal(number)
    behind = text[text.index(heading) + len(heading) :]
    return re.findall(r"```[\w=]*\s(.*?)```", behind, re.DOTALL)[place].strip()


def documents(number: str, heading: str, place: int = 0, layout: str = "") -> list[dict[str, Any]]:
    """Return the YAML documents of an example, with the line breaks of its layout if it has one."""
    text = example(number, heading, place)
    return list(yaml.safe_load_all("\n".join(_lines(text, layout)) if layout else text))


def _lines(text: str, layout: str) -> Iterator[str]:
    words = iter(text.split())
    for line in layout.split():
        indent, count = map(int, line.split(":"))
        yield " " * indent + " ".join(next(words) for _ in range(count))
    assert next(words, None) is None, "the layout is of another text"


def commands(heading: str, place: int = 0) -> list[list[str]]:
    """Return the words of each command of an example of Porter's, without `$ porter`."""
    lines = example(PORTER, heading, place).splitlines()
    return [line.split()[2:] for line in lines if line.startswith("$ porter ")]


def struct_fields(name: str, place: int = 0) -> list[str]:
    """Return the names on disk of the fields of a Go struct in Crossplane's proposal."""
    text = proposal(CROSSPLANE)
    found = re.findall(rf"type {name} struct {{(.*?)\n}}", text, re.DOTALL)[place]
    return [field for field in re.findall(r'json:"([^",]*)', found) if field]


def schema_fields(heading: str) -> set[str]:
    """Return the names of the fields in a schema of Carvel's proposal."""
    words = set(re.findall(r"([a-zA-Z0-9]+):", example(CARVEL, heading)))
    return words - set(_SCHEMA_WORDS.split())


_SCHEMA_WORDS = """
apiVersion description default enum items kind metadata name names properties required schema spec status
type versions group listKind plural singular scope shortNames categories openAPIV3Schema
"""
