"""The data of the HTML report as compact JSON: every text once, what packages share once. Pure.

Packages differ in their own names and little else. A text is stored with placeholders for the names of
its package, so that the texts of 10,000 packages are few; the page puts the names back.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from reconciler.base.escape import terminal
from reconciler.base.redact import Redactor
from reconciler.report.html.model import FileDiff, HtmlReport, PackageDiff, PackageRow

_PLACEHOLDERS: Final = ("\x01", "\x02", "\x03", "\x04")
"""Of repository, package, cluster and variant. `terminal` leaves no control character in a text."""
_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script_json(value: Any) -> str:
    """Return JSON that no text in it can end as a script element of HTML, or start a comment in."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def safe_link(url: str) -> str:
    """Return an address that a page may link to: of the web, or none."""
    return url if url.startswith(("https://", "http://")) else ""


def shown_lines(text: str) -> str:
    """Return text of several lines with what is invisible spelled out; tabs and newlines stay."""
    return "\n".join("\t".join(map(terminal, line.split("\t"))) for line in text.split("\n"))


def data_value(report: HtmlReport, redactor: Redactor) -> dict[str, Any]:
    """Return the data of a report as a JSON value: texts, lists of numbers, and what refers to them."""
    encoder = _Encoder(redactor)
    packages = [encoder.package(package) for package in report.packages]
    diffs = [encoder.diff(diff) for diff in report.diffs]
    return {
        "kind": str(report.kind).lower(),
        "packages": packages,
        "diffs": diffs,
        "lists": encoder.lists,
        "texts": encoder.texts,
    }


class _Encoder:
    """Texts and lists by number, each once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.texts: list[str] = [""]
        self.lists: list[list[Any]] = [[]]
        self._shown: dict[str, str] = {}
        self._text_numbers: dict[str, int] = {"": 0}
        self._list_numbers: dict[tuple[Any, ...], int] = {(): 0}

    def package(self, row: PackageRow) -> list[Any]:
        """Return a package as a row; page.js has the same order of columns."""
        names = list(map(self._clean, (row.repository, row.name, row.cluster)))
        variant = _masked(self._clean(row.variant), _by_length(names))
        own = _by_length([*names, self._clean(row.variant)])

        def text(value: str) -> int:
            return self._number(_masked(self._clean(value), own)) if value else 0

        def rows(values: Iterable[Sequence[str]]) -> int:
            return self._list([self._list(list(map(text, value))) for value in values])

        origins = [(o.file, o.field, o.value, o.source, str(o.location or "")) for o in row.origins]
        return [
            *map(self._number, (*names, variant)),
            *map(text, (row.set_name, row.main, row.review, row.phase, row.since, row.op, row.reason)),
            *map(text, (row.detail, row.waiting_for, row.manifest, row.pull, safe_link(row.pull_url))),
            *(self._list(list(map(text, v))) for v in (row.risks, row.categories)),
            *(self._list(list(map(text, v))) for v in (row.warnings, row.conflicts)),
            rows(row.conditions),
            rows(origins),
            [[*map(text, (r.name, r.date, r.author, r.subject)), self._clean(r.commit)] for r in row.history],
            row.revisions,
            row.diff,
            row.cause,
        ]

    def diff(self, diff: PackageDiff) -> list[Any]:
        """Return a difference; equal differences of files are stored once."""
        files = [self._list(self._file(file)) for file in diff.files]
        return [self._clean(diff.name), diff.packages, files, self._clean(diff.note)]

    def _file(self, file: FileDiff) -> list[int]:
        hunks = shown_lines(self._redactor.text(file.hunks))
        texts = map(self._clean, (file.path, file.action, file.note))
        return [*map(self._number, texts), file.added, file.removed, self._number(hunks)]

    def _clean(self, text: str) -> str:
        shown = self._shown.get(text)
        if shown is None:
            shown = self._shown[text] = terminal(self._redactor.text(text))
        return shown

    def _number(self, text: str) -> int:
        number = self._text_numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def _list(self, values: list[int]) -> int:
        number = self._list_numbers.setdefault(tuple(values), len(self.lists))
        if number == len(self.lists):
            self.lists.append(values)
        return number


def _by_length(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return names with their placeholders, the longest first."""
    pairs = zip(names, _PLACEHOLDERS, strict=False)
    return sorted((pair for pair in pairs if pair[0]), key=lambda pair: -len(pair[0]))


def _masked(text: str, names: Iterable[tuple[str, str]]) -> str:
    """Return a text with a placeholder for each name in it; putting the names back gives the text."""
    for name, placeholder in names:
        if name in text:
            text = text.replace(name, placeholder)
    return text
