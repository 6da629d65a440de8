"""Counted nouns: one thing is not `1 things`, and no text writes a plural by hand."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.base.text import plural, verb

ROOT = Path(__file__).parents[2]
NO_COUNTS = {
    "{self.kind} and its objects (",
    "{listed.name} takes objects with it: ",
    "{alias} has versions of its own in the index, so it is no alias of ",
    "{desired.base} has all commits of ",
    "{branch} also changes ",
    "{method} pull requests",
    "{step} returned no resources at all",
    "{step} changes ",
    "{step} changes its own output: ",
    "{last.number} with these pins was closed",
    "{last.number} with these versions was closed: open it again, or delete ",
    "{mirror.remote} are two repositories with one identity",
    "{whole.ref} name different commits",
}
"""Names before a verb or a noun, not numbers."""

BUILTIN = ROOT / "reconciler/functions/builtin"
"""Built-in functions print what their models print, word by word."""

_PLURAL = re.compile(
    r" (?:[a-z]+ ){0,2}(?:bytes|changes|characters|clusters|commits|conflicts|deletions|directories|documents"
    r"|drafts|effects|errors|facts|files|images|labels|levels|lines|manifests|nodes|objects|packages"
    r"|PackageVariants|pins|places|problems|refusals|repositories|requests|requirements|resources|revisions"
    r"|seconds|steps|targets|values|variants|versions|warnings)\b"
)
_ENDING = re.compile(r"^(s|es|ies|y)$")


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "pin", "0 pins"), (1, "pin", "1 pin"), (2, "pin", "2 pins"), (1, "repository", "1 repository"),
        (2, "repository", "2 repositories"),
        (2, "pull request", "2 pull requests"),
        (2, "key", "2 keys"),
    ],
)  # fmt: skip
def test_noun_is_in_the_plural_unless_there_is_one(number: int, noun: str, text: str) -> None:
    assert plural(number, noun) == text


def test_verb_follows_the_number() -> None:
    assert [verb(number, "is", "are") for number in (0, 1, 2)] == ["are", "is", "are"]


def plurals_by_hand(source: str) -> Iterator[str]:
    """Yield the pieces of a module that write a number before a fixed plural, or choose an ending."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    is_count = bool(_PLURAL.match(str(after.value))) and not isinstance(
                        value.value, ast.IfExp
                    )
                    piece = f"{{{ast.unparse(value.value)}}}{after.value}"
                    if is_count and not _is_text(value.value) and piece.rstrip("'") not in NO_COUNTS:
                        yield piece
        if isinstance(node, ast.IfExp):
            endings = [side.value for side in (node.body, node.orelse) if isinstance(side, ast.Constant)]
            if any(isinstance(ending, str) and _ENDING.match(ending) for ending in endings):
                yield ast.unparse(node)


def _is_text(value: ast.expr) -> bool:
    """Tell whether a value is a text, as in `{', '.join(names)} packages`, or a constant that is large."""
    if isinstance(value, ast.Name) and value.id.isupper():
        return True
    return isinstance(value, ast.Call) and not (isinstance(value.func, ast.Name) and value.func.id == "len")


@pytest.mark.parametrize(
    "source", ['f"{n} pins"', 'f"{len(a)} more files"', "f\"pin{'s' if n > 1 else ''}\""]
)
def test_plural_by_hand_is_recognised(source: str) -> None:
    assert list(plurals_by_hand(source))


@pytest.mark.slow
def test_no_text_counts_by_hand() -> None:
    files = [file for file in ROOT.glob("reconciler/**/*.py") if BUILTIN not in file.parents]
    found = {
        f"{file.relative_to(ROOT)}: {piece}"
        for file in files
        for piece in plurals_by_hand(file.read_text())
        if file.name != "wording.py"
    }

    assert found == set()


def test_no_template_counts_by_hand() -> None:
    by_hand = re.compile(r"\"s\"|'s'|\}\} [a-z]+s\b(?! is)")
    # A script counts in the browser, by a function of its own.
    files = [file for file in (ROOT / "templates").glob("*.*") if file.suffix != ".js"]

    assert len(files) > 5
    assert {file.name for file in files if by_hand.search(file.read_text())} == set()
