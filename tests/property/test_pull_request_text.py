"""Whatever stands in names, values and files, a reviewer's forge renders it inert."""

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason
from reconciler.forge import body_marker
from reconciler.names.ids import ObjectName, Oid, PackageKey, ask_key
from reconciler.names.objects import File
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Op, Plan
from reconciler.plan.rejection import ask_box, asked_keys
from reconciler.plan.status import PackageStatus
from reconciler.report.diff import DifferenceReader
from reconciler.report.markdown import group_body, make_dashboard, pull_body
from reconciler.report.report import Names
from tests.support.plan_values import a_change, a_conflict
from tests.support.values import replace

LIMIT = 60_000
EVIL = "EVIL"
PIECES = [
    *("@kim", "#1", "![x](http://e/x.png)", "[x](http://e)", "<img src=x>", "<!-- ", "-->", "|", "`", "```"),
    *("~~~", "\n", "\n\n", "# h\n", "\u202e", "\u200b", "*", "_", "\\", "https://e.example", "<details>"),
    *("&#64;kim", "$x$", "    ", "\t", "- ", "> ", "\x1b[31m", "::error::"),
    *("<!-- reconciler:end -->", "<!-- reconciler:begin {} -->"),
]
texts = st.lists(st.sampled_from([EVIL, *PIECES]) | st.text(max_size=5), min_size=1, max_size=14).map("".join)
hostile = texts.map(lambda text: f"{EVIL}{text}{EVIL}")


def every(tokens: list[Token]) -> list[Token]:
    return [t for token in tokens for t in (token, *every(token.children or []))]


def parsed(text: str) -> list[Token]:
    return every(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text))


def change(name: str, field: str, value: str) -> Change:
    return a_change(
        package=PackageKey("file:///edge.git", name),
        repository=ObjectName("default", name),
        op=Op.UPDATE,
        reason=Reason.UPSTREAM_CHANGED,
        message=value,
        variant=ObjectName("default", name),
        location=Location(name, 3),
        upstream_from=value,
        upstream_to=field,
        conflicts=(a_conflict(name, field, value, field),),
        tree=Oid("a" * 40),
        unready=(value,),
    )


_FOLDS = ("Kptfile and owner", "Answers from a shell", "Difference")
_FOLD = (*(f"<details>\n<summary>{title}</summary>" for title in _FOLDS), "</details>")
"""The only elements in the text about packages."""


def check_inert(tokens: list[Token], html: int = 0) -> None:
    kinds = [token.type for token in tokens]
    assert not {"link_open", "image", "html_inline"} & set(kinds)
    own = [token for token in tokens if token.type == "html_block" and token.content.strip("\n") not in _FOLD]
    assert len(own) == html
    for token in tokens:
        if token.type in {"text", "html_block"}:
            assert EVIL not in token.content
            assert "@" not in token.content


@settings(deadline=None, max_examples=60)
@given(hostile, hostile, hostile, hostile)
def test_hostile_names_values_and_files_are_code_and_nothing_else(
    name: str, field: str, value: str, content: str
) -> None:
    files = DifferenceReader().changes(
        {"a.yaml": File.of(b"x\ny"), name: File.of(b"z")},
        {
            "a.yaml": File.of(content.encode("utf-8", "replace")),
            name: File.of(value.encode("utf-8", "replace")),
        },
    )

    body = pull_body(change(name, field, value), Names(value), files)
    whole = body_marker.compose(body, name, [value], body_marker.MarkedBody(""), LIMIT)

    check_inert(parsed(body))
    check_inert(parsed(whole), html=2)
    assert body_marker.parse(whole).labels == (value,)
    assert body_marker.parse(whole).title == body_marker.digest(name)
    assert body_marker.compose(body, name, [value], body_marker.parse(whole), LIMIT) == whole


@settings(deadline=None, max_examples=60)
@given(hostile, hostile, hostile)
def test_a_hostile_group_is_code_and_nothing_else(name: str, field: str, value: str) -> None:
    hostile_one = replace(change(name, field, value), warnings=(value,), unready=(field,), message=value)

    body = group_body([hostile_one, change("n", "f", "v")], Names(value), {})
    whole = body_marker.compose(body, name, [value], body_marker.MarkedBody(""), LIMIT)

    check_inert(parsed(body))
    check_inert(parsed(whole), html=2)


BOX = "- [x] <!-- reconciler:ask 0123456789abcdef -->"


@settings(deadline=None, max_examples=60)
@given(hostile, hostile, hostile | hostile.map(lambda text: f"{text}\n{BOX}\n"))
def test_a_hostile_dashboard_is_code_and_ticks_no_box(name: str, field: str, value: str) -> None:
    rejected = replace(change(f"{name}.0", field, value), reason=Reason.REJECTED, waits=True)
    blocked = replace(change(f"{value}.1", field, name), op=Op.BLOCK)
    waiting = replace(change(f"{field}.2", name, value), waits=True)
    # Its message is prose: tests/unit/test_prose.py has what that makes of hostile texts.
    problem = Problem(Location(name, 1), Reason.INVALID_MANIFEST, "wrong", "Correct it.", name)
    plan = Plan((rejected, blocked, waiting), problems=(problem,))
    phases = zip(plan.changes, (Phase.REJECTED, Phase.STALLED, Phase.HELD_BACK), strict=True)
    statuses = [
        PackageStatus(phase, c.variant, c.package, c.repository, value, reason=field, message=value)
        for c, phase in phases
    ]

    text = make_dashboard(plan, statuses, Names(value), "3 h").text
    ticked = text.replace("- [ ]", "- [x]")

    check_inert(parsed(text.replace(ask_box(ask_key(rejected.package, rejected.tree)), "-")))
    assert asked_keys(text) == frozenset()
    assert asked_keys(ticked) == {ask_key(rejected.package, rejected.tree)}


@settings(deadline=None, max_examples=30)
@given(hostile)
def test_what_functions_warned_of_is_code_and_nothing_else(warning: str) -> None:
    body = pull_body(replace(change("n", "f", "v"), warnings=(warning,)), Names("demo"))

    check_inert(parsed(body))
    assert "### Function results" in body


def test_a_name_of_a_megabyte_fits() -> None:
    name = "@EVIL`|<b>" * 100_000
    files = DifferenceReader().changes({}, {f"{name}{n}": File.of(b"x") for n in range(150)})

    body = pull_body(change(name, name, name), Names("demo"), files)
    whole = body_marker.compose(body, name, ["a"], body_marker.MarkedBody(""), LIMIT)

    assert len(whole) <= LIMIT
    check_inert(parsed(whole), html=2)


@settings(deadline=None, max_examples=50)
@given(st.lists(hostile, min_size=1, max_size=40), st.integers(400, 4000))
def test_what_is_cut_stays_inert(contents: list[str], limit: int) -> None:
    before = {f"f{n}": File.of(b"x\n" * 30) for n in range(len(contents))}
    after = {f"f{n}": File.of(text.encode("utf-8", "replace") * 5) for n, text in enumerate(contents)}

    body = pull_body(change("n", "f", "v"), Names("demo"), DifferenceReader().changes(before, after))
    whole = body_marker.compose(body, "t", ["a"], body_marker.MarkedBody(""), limit)

    assert len(whole) <= limit
    check_inert(parsed(whole), html=2)


def test_a_secret_is_never_shown() -> None:
    secret = b"apiVersion: v1\nkind: Secret\ndata: {p: %b}\n"
    files = DifferenceReader().changes(
        {"s.yaml": File.of(secret % b"b2xk")}, {"s.yaml": File.of(secret % b"bmV3")}
    )

    body = pull_body(replace(change("n", "f", "v"), conflicts=()), Names("demo"), files)

    assert "b2xk" not in body
    assert "bmV3" not in body
    assert "may hold a Secret, not shown" in body
