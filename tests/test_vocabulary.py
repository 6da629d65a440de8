"""The words of the code: names and docstrings that a maintainer from outside understands."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "reconciler"
FOLDERS = sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")})

VAGUE_NAMES = frozenset(
    {"one", "found", "known", "wanted", "asked", "said", "told", "several", "wish", "wishes"}
)
"""Pronouns, participles and metaphors: as names of variables they hide what a value is."""

ENDED_NAMES = frozenset(
    {"each", "given", "kept", "left", "near", "own", "seats", "carriers", "shown", "spare"}
)
"""More of them, in any case and private; the two sides of a comparison are `left` and `right`."""

RIDDLES = re.compile(
    r"^(What|Who|Whom|Whose)\b|\b(nobody|somebody|anybody|whose|whoever|says?|said|told|stands?)\b"
)
"""Words on which docstrings must not be built: name the thing and the verb instead."""

SHARED_NAMES = frozenset(
    {
        "Resolution",
        "Target",
    }
)
"""Class names that still have several meanings."""


def violations(source: str, ended: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the forbidden words of a module, in names of variables and in docstrings, each with its line."""
    compared = {"left"} if re.search(r"\bright\b", source) else set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                word = name.strip("_").lower()
                if name in VAGUE_NAMES or (word in ended and word not in compared):
                    yield f"{node.lineno}: variable {name}"
            case ast.Expr(value=ast.Constant(value=str(text))) if RIDDLES.search(text):
                yield f"{node.lineno}: {text.strip()[:60]!r}"


def shared_class_names(sources: Iterable[tuple[str, str]]) -> set[str]:
    """Return the public class names that several modules define."""
    modules: dict[str, set[str]] = defaultdict(set)
    for module, source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(module)
    return {name for name, where in modules.items() if len(where) > 1}


def folder_violations(folder: str) -> list[str]:
    path = PACKAGE / folder
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [
        f"{file.relative_to(PACKAGE)}:{text}"
        for file in files
        for text in violations(file.read_text(), ENDED_NAMES)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_names_and_docstrings_have_no_private_words(folder: str) -> None:
    assert folder_violations(folder) == []


def test_public_class_names_have_one_meaning() -> None:
    sources = [(str(path), path.read_text()) for path in PACKAGE.rglob("*.py")]

    assert shared_class_names(sources) == SHARED_NAMES


@pytest.mark.parametrize(
    "planted",
    [
        "found = 1",
        "def f(one: int) -> None: ...",
        "[several for several in ()]",
        '"""What becomes of a package."""',
        'def f() -> None:\n    """Return whose everything is."""',
        'LIMIT = 3\n"""As somebody said."""',
    ],
)
def test_planted_private_words_are_found(planted: str) -> None:
    assert list(violations(planted))


@pytest.mark.parametrize("planted", ["own = 1", "def f(_kept: int) -> None: ...", "left = 1", "_SHOWN = 5"])
def test_planted_ended_words_are_found(planted: str) -> None:
    assert list(violations(planted, ENDED_NAMES))
    assert list(violations("def same(left: int, right: int) -> bool: ...", ENDED_NAMES)) == []


def test_planted_second_meaning_is_found() -> None:
    assert shared_class_names([("a", "class Plan: ..."), ("b", "class Plan: ...")]) == {"Plan"}
