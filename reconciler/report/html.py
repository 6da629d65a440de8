"""One self-contained HTML page about a run, from a template; it loads nothing and needs no network. Pure.

Its data is compact JSON: every text once, what packages share once. Packages differ in their own names and
little else: a text is stored with placeholders for the names of its package, so that the texts of 10,000
packages are few; the page puts the names back.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct, field

from reconciler.base.lazy import regex
from reconciler.base.reasons import Phase
from reconciler.base.redact import Redactor
from reconciler.base.text import Text, join_texts, plural, terminal
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Op
from reconciler.plan.impact import Impact
from reconciler.report.build import (
    change_risks,
    group_problems,
    impact_text,
    judgement_texts,
    loss_texts,
    move_text,
    moving_rollouts,
    risk_texts,
)
from reconciler.report.comparison import compared_summary
from reconciler.report.markdown import load_template
from reconciler.report.report import ChangeCause, CheckReport, PackageOverview, ProblemGroup, Report
from reconciler.report.text import failures, outcome_lines, pin_line, proposal_lines


class ReportKind(StrEnum):
    """The command that a report is of; its value is the title."""

    PLAN = "Plan"
    APPLY = "Apply"
    CHECK = "Check"
    STATUS = "Status"


class FileDiff(NamedTuple):
    """The difference of one file: the hunks of its patch, or a note where they are not shown."""

    path: str
    action: str
    added: int
    removed: int
    hunks: str = ""
    note: str = ""


class PackageDiff(NamedTuple):
    """One difference of several packages; the files are those of the first of them, `name`."""

    name: str
    packages: int
    files: tuple[FileDiff, ...]
    note: str = ""


class PageRow(PackageOverview, frozen=True, kw_only=True):
    """One package with everything that its page shows; each field is a column of the data of the page.

    `name` is that of the package in its repository; `diff` and `cause` are places in the lists of the report,
    -1 for none; `web_url` is its directory on the forge. A conflict is its place, the values before, of
    upstream and here, and what set this one or answered it; a condition of the owner its type, status,
    reason and message.
    """

    repository: str
    name: str
    variant: str = ""
    phase: str = ""
    since: str = ""
    op: str = ""
    reason: str = ""
    detail: str = ""
    manifest: str = ""
    pull: str = ""
    pull_url: str = ""
    web_url: str = ""
    risks: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    warnings: tuple[Text, ...] = ()
    subpackages: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, ...], ...] = ()
    conditions: tuple[tuple[str, ...], ...] = ()
    diff: int = -1
    cause: int = -1

    @property
    def full_name(self) -> str:
        """`REPOSITORY/PACKAGE`, what commands take."""
        return f"{self.repository}/{self.name}" if self.repository else self.name


_NAMES: Final = ("repository", "name", "cluster", "variant")
"""The columns that identify a package, which come first."""
COLUMNS: Final = (*_NAMES, *(name for name in PageRow.__struct_fields__ if name not in _NAMES))


class ReportSource(NamedTuple):
    """The commit of the control repository that a report is about, and the version that made it."""

    commit: str
    branch: str
    author: str
    time: str
    subject: str
    version: str


class Page(Struct, frozen=True):
    """One page: the report of a command, and what only pages show.

    `clusters` are the registered ones, each with why it could not be read, "" if it was. `places` are
    those of the differences of packages in `diffs`.
    """

    kind: ReportKind
    report: Report
    packages: tuple[PageRow, ...] = ()
    diffs: tuple[PackageDiff, ...] = ()
    places: Mapping[PackageKey, int] = field(default_factory=dict)
    source: ReportSource | None = None
    clusters: Mapping[str, str] = field(default_factory=dict)


# The page

_CODE = regex(r"`([^`]+)`")
_MOST_PINS = 200
_MOST_CAUSES = 500
"""Causes and effects that the summary lists; more of them are counted, and every package is in the table."""


def html_page(page: Page, redactor: Redactor) -> str:
    """Return the page. Deterministic: the same report gives the same bytes.

    Every text is escaped where it enters the page: in the template by autoescape, in the data as JSON. Only
    the page's own script and style run, which the policy in its head names by their digests.
    """
    report, instance = page.report, page.report.names.instance
    script, style = load_template("report.js"), load_template("report.css")
    phases = Counter(package.phase for package in page.packages if package.phase)
    lines = [*outcome_lines(report.outcome)] if report.outcome else []
    effects = lines[:-1]
    if isinstance(report, CheckReport) and not report.comparison.deep:
        effects = [join_texts(" ", (v.fate, str(v.key), v.message)) for v in report.comparison.variants]
    return (
        _environment(redactor)
        .get_template("report.html")
        .render(
            page=page,
            report=report,
            title=f"{page.kind} of {instance}" if instance else str(page.kind),
            policy=_policy(script, style),
            script=Markup(script),  # noqa: S704 - a file of this program
            style=Markup(style),  # noqa: S704 - the same
            data=Markup(script_json(data_value(page, redactor))),  # noqa: S704 - escaped as JSON
            phases={str(phase): phases[phase] for phase in Phase if phases[phase]},
            summary=compared_summary(report)
            if isinstance(report, CheckReport)
            else " ".join([*lines[-1:], report.sentence]),
            ops={op: count for op, count in report.ops.items() if op != Op.KEEP},
            losses=loss_texts(report.losses),
            judgements=judgement_texts(report.judgements),
            rollouts=moving_rollouts(report.rollouts),
            diff_rows=partial(_diff_rows, page),
            causes=list(enumerate(report.causes[:_MOST_CAUSES])),
            more_causes=len(report.causes[_MOST_CAUSES:]),
            lock=[*_lock_lines(report)],
            failed=list(failures(report.outcome)) if report.outcome else (),
            effects=effects[:_MOST_CAUSES],
            all_effects=len(effects),
            problems=_problems(report),
            sets=sorted({package.set for package in page.packages if package.set}),
        )
    )


def _lock_lines(report: Report) -> Iterator[str]:
    if isinstance(report, CheckReport):
        yield from map(pin_line, report.comparison.pins[:_MOST_PINS])
    yield from map(move_text, report.moves)
    yield from proposal_lines(report.lock)


def _problems(report: Report) -> list[tuple[str, bool, int, list[ProblemGroup]]]:
    """Return lists of problems: the head, whether they are news, how many there are, and their groups."""
    lists = [("Problems", True, report.problems)]
    if isinstance(report, CheckReport):
        comparison = report.comparison
        lists = [
            ("New problems", True, report.problems),
            ("Not read", False, comparison.unread),
            ("Fixed problems", False, comparison.fixed),
            ("Problems that were there before", False, comparison.old),
        ]
    return [(head, is_new, len(problems), group_problems(problems)) for head, is_new, problems in lists]


def _diff_rows(page: Page, cause: ChangeCause) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the text, the place and the risks of each difference of a cause."""
    for diff in cause.diffs:
        first = diff.changes[0]
        place = page.places.get(first.package, -1)
        files = page.diffs[place].files if place >= 0 else ()
        size = impact_text(diff.impact) if diff.impact else _size(files) if files else ""
        count = f"{len(diff.changes)} x " if len(cause.diffs) > 1 else ""
        text = ": ".join(filter(None, (f"{count}{diff.names if cause.is_folded else ''}", size)))
        yield text, place, risk_texts(change_risks(first))


def _size(files: Sequence[FileDiff]) -> str:
    """Return the size of a difference that the plan did not compute: of a deletion, or of an open draft."""
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return impact_text(Impact("", len(files), added, removed))


def _policy(script: str, style: str) -> str:
    """Return a content security policy by which nothing is loaded, and no other script or style runs."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _environment(redactor: Redactor) -> Environment:
    masked = _shown(redactor)
    environment = Environment(
        loader=FunctionLoader(load_template),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=masked,
        keep_trailing_newline=True,
    )
    # A part of an address is the text as the page shows it, quoted: the script compares both.
    environment.filters["quoted"] = lambda text: quote(masked(text))
    environment.filters["spans"] = lambda text: Markup(_CODE.sub(r"<code>\1</code>", escape(masked(text))))  # noqa: S704 - escaped
    environment.filters["plural"] = plural
    environment.filters["safe_link"] = safe_link
    environment.filters["number"] = "{:,}".format
    return environment


def _shown(redactor: Redactor) -> Callable[[Any], Any]:
    """Return what every value passes before it is escaped: without secrets, and nothing invisible in it."""

    def finalize(value: Any) -> Any:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return terminal(redactor.text(value))

    return finalize


# Its data

_PLACEHOLDERS: Final = ("\x01", "\x02", "\x03", "\x04")
"""Of repository, package, cluster and variant. `terminal` leaves no control character in a text."""
_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script_json(value: Any) -> str:
    """Return JSON that no text in it can end as a script element of HTML, or start a comment in."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    return text


def safe_link(url: str) -> str:
    """Return an address that a page may link to: of the web, or none."""
    return url if url.startswith(("https://", "http://")) else ""


def shown_lines(text: str) -> str:
    """Return text of several lines with what is invisible spelled out; tabs and newlines stay."""
    return "\n".join("\t".join(map(terminal, line.split("\t"))) for line in text.split("\n"))


def data_value(page: Page, redactor: Redactor) -> dict[str, Any]:
    """Return the data of a page as a JSON value: texts, lists of numbers, and what refers to them."""
    encoder = _Encoder(redactor)
    packages = [encoder.package(package) for package in page.packages]
    diffs = [encoder.diff(diff) for diff in page.diffs]
    return {
        "kind": str(page.kind).lower(),
        "clusters": [list(map(encoder.clean, item)) for item in page.clusters.items()],
        "columns": COLUMNS,
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

    def package(self, row: PageRow) -> list[Any]:
        """Return the fields of a package: numbers of texts, of lists of them, and of lists of such lists."""
        names = list(map(self.clean, (row.repository, row.name, row.cluster)))
        variant = _masked(self.clean(row.variant), _by_length(names))
        identities = _by_length([*names, self.clean(row.variant)])

        def text(value: Text) -> int:
            return self._number(_masked(self.clean(str(value)), identities)) if value else 0

        def lines(value: str) -> int:
            return self._number(_masked(shown_lines(self._redactor.text(value)), identities))

        def column(name: str, value: Any) -> int:
            match value:
                case int():
                    return value
                case str():
                    return text(safe_link(value) if name.endswith("_url") else value)
                case (tuple(), *_):
                    part = lines if name == "conflicts" else text
                    return self._list([self._list(list(map(part, record))) for record in value])
            return self._list(list(map(text, value)))

        fields = ((name, getattr(row, name)) for name in COLUMNS[len(_NAMES) :])
        return [*map(self._number, (*names, variant)), *(column(*field) for field in fields)]

    def diff(self, diff: PackageDiff) -> list[Any]:
        """Return a difference; equal differences of files are stored once."""
        files = [self._list(self._file(file)) for file in diff.files]
        return [self.clean(diff.name), diff.packages, files, self.clean(diff.note)]

    def _file(self, file: FileDiff) -> list[int]:
        hunks = shown_lines(self._redactor.text(file.hunks))
        texts = map(self.clean, (file.path, file.action, file.note))
        return [*map(self._number, texts), file.added, file.removed, self._number(hunks)]

    def clean(self, text: str) -> str:
        """Return a text without secrets, with what is invisible spelled out."""
        masked = self._shown.get(text)
        if masked is None:
            masked = self._shown[text] = terminal(self._redactor.text(text))
        return masked

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
