"""The generated part of a pull request's text, between hidden markers; text around it is kept. Pure."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson
from msgspec.structs import replace

from reconciler.base.lazy import regex
from reconciler.base.redact import mask_credentials, outgoing_fields
from reconciler.inventory.inventory import PullRequest
from reconciler.names.trailers import Ticks, read_boxes

_FIELDS = ("head", "base", "title", "body", "labels", "reviewers", "assignees", "proposes")


def outgoing_pull(pull: PullRequest) -> PullRequest:
    """Return a pull request without credentials in its title, its text and the text of its status.

    Raises:
        RefusedError: A credential is in a field that machines read.
    """
    fields = {name: getattr(pull, name) for name in _FIELDS}
    status = pull.status and pull.status._replace(text=mask_credentials(pull.status.text))
    return replace(pull, **outgoing_fields(fields, f"the pull request of {pull.head}"), status=status)


_BEGIN = regex(r"<!-- reconciler:begin ([A-Za-z0-9_-]+=*) -->\n?")
_FENCE = regex(r"`{3,}|~{3,}")
_END = "<!-- reconciler:end -->"
_MARK = regex(r"<!-- (reconciler:[^>)\n]*) -->")
# Azure DevOps and Bitbucket show HTML comments as text: a link definition shows nothing anywhere.
_HIDDEN_MARK = regex(r"\[//\]: # \((reconciler:[^>)\n]*)\)")
_CUT = "\n\nThe rest does not fit here; the files of this pull request show it."
_CUT_LINKED = "\n\nThe rest does not fit here: [all changes of this pull request]({})."
_CUT_COMMENT = "\n\nThe rest does not fit here."


class MarkedBody(NamedTuple):
    """A pull request's text, split at the markers.

    The marker is a hint: people can write it too. It decides only which parts are left alone.

    Attributes:
        body: The generated part; the whole text if there is no marker.
        before: The text before the marker, written by people.
        after: The text after the marker, written by people.
        title: The digest of the generated title, "" if unknown.
        labels: The labels that were set beside the text.
        people: The reviewers and assignees that were asked, as `reviewer/NAME` and `assignee/NAME`.
        has_marker: Whether the text has a marker.
        content: The digest of the generated part's source, "" if unknown or if the part was edited.
        auto_merge: The head for which auto-merge was enabled, "" for none.
        status: The head that got a status, with the status's name, result and text; empty for none.
        duplicate_of: The pull request that was kept when this one was closed as a duplicate, else 0.
        proposes: The package tree that the text is about, "" if unknown.
        ticks: The ticked boxes of the generated part, None if people edited anything else of it.
    """

    body: str
    before: str = ""
    after: str = ""
    title: str = ""
    labels: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    has_marker: bool = False
    content: str = ""
    auto_merge: str = ""
    duplicate_of: int = 0
    status: tuple[str, ...] = ()
    proposes: str = ""
    ticks: Ticks | None = None


def digest(text: str) -> str:
    """Return the digest of a text in the marker."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compose(
    body: str,
    title: str,
    labels: Iterable[str],
    around: MarkedBody,
    limit: int,
    *,
    content: str = "",
    people: Iterable[str] = (),
    auto_merge: str = "",
    difference: str = "",
    status: Iterable[str] = (),
    proposes: str = "",
) -> str:
    """Return a pull request's text with a new generated part, cut to at most `limit` characters.

    Args:
        body: The generated part.
        title: The generated title.
        labels: The labels that are set beside the text.
        around: The present text; its parts outside of the markers are kept.
        limit: The greatest length that the forge accepts.
        content: The digest of the part's source.
        people: The reviewers and assignees that were asked.
        auto_merge: The head for which auto-merge was enabled.
        difference: The address of everything that the pull request changes, "" if unknown.
        status: The head that got a status, with the status's name, result and text.
        proposes: The package tree that the part is about, "" for a group.
    """
    fields: dict[str, object] = {"labels": sorted(labels), "title": digest(title)}
    if names := sorted(people):
        fields["people"] = names
    if auto_merge:
        fields["autoMerge"] = auto_merge
    if values := list(status):
        fields["status"] = values
    if proposes:
        fields["proposes"] = proposes
    if content:
        fields |= {"content": content, "part": digest("")}
    begin = _begin(fields)
    # What people wrote above stays above.
    before = f"{around.before.rstrip()}\n\n" if around.before.strip() else ""
    room = limit - _size(before) - len(begin) - len(_END) - _size(around.after) - 1
    # A generated text cannot forge a marker, whichever way it is hidden.
    body = body.replace("<!-- reconciler:", "<!-- reconciler :").replace("# (reconciler:", "# (reconciler :")
    part = _fitting(body, room, _CUT_LINKED.format(difference) if difference else _CUT)
    if content:
        begin = _begin({**fields, "part": digest(read_boxes(part)[0])})
    return f"{before}{begin}{part}\n{_END}{around.after}"


def parse(text: str) -> MarkedBody:
    """Split a text at its markers. Total: without a marker all of it is people's, and the body too."""
    text = normalise_newlines(text)
    begin = _BEGIN.search(text)
    if begin is None:
        return MarkedBody(text, before=text)
    part, end, after = text[begin.end() :].partition(_END)
    fields = _fields(begin.group(1))
    title = fields.get("title")
    content, number, auto_merge = (fields.get(name) for name in ("content", "duplicateOf", "autoMerge"))
    proposes = fields.get("proposes")
    part = part.removesuffix("\n") if end else part
    unticked, ticks = read_boxes(part)
    is_unedited = fields.get("part") == digest(unticked)
    return MarkedBody(
        body=part,
        before=text[: begin.start()],
        after=after,
        title=title if isinstance(title, str) else "",
        labels=_texts(fields.get("labels")),
        people=_texts(fields.get("people")),
        has_marker=True,
        content=content if isinstance(content, str) and is_unedited else "",
        auto_merge=auto_merge if isinstance(auto_merge, str) else "",
        duplicate_of=number if isinstance(number, int) else 0,
        status=_texts(fields.get("status")),
        proposes=proposes if isinstance(proposes, str) else "",
        ticks=ticks if is_unedited else None,
    )


def mark_duplicate(text: str, number: int) -> str:
    """Return a pull request's text with the number of the pull request that was kept in its place."""
    return _with_field(text, "duplicateOf", number)


def mark_auto_merge(text: str, head: str) -> str:
    """Return a pull request's text with the head for which auto-merge was enabled."""
    return _with_field(text, "autoMerge", head)


def _with_field(text: str, name: str, value: object) -> str:
    """Return a text with a field of its marker set; without a marker it gets an empty one at its end."""
    text = normalise_newlines(text)
    begin = _BEGIN.search(text)
    if begin is None:
        return f"{text}\n\n{_begin({name: value})}{_END}"
    fields = {**_fields(begin.group(1)), name: value}
    return f"{text[: begin.start()]}{_begin(fields)}{text[begin.end() :]}"


def comment_text(key: str, body: str, limit: int) -> str:
    """Return a comment's text with a hidden key, cut to at most `limit` characters."""
    marker = _comment_marker(key)
    return f"{marker}\n{_fitting(body, limit - len(marker) - 1, _CUT_COMMENT)}"


def issue_text(key: str, body: str, present: str, limit: int) -> str:
    """Return an issue's text with a hidden key and a new body; what people wrote around it is kept."""
    before, _, rest = normalise_newlines(present).partition(_comment_marker(key))
    _, end, after = rest.partition(_END)
    around = f"{before.rstrip()}\n\n" if before.strip() else ""
    after = after if end else ""
    room = limit - _size(around) - len(_END) - _size(after) - 1
    return f"{around}{comment_text(key, body, room)}\n{_END}{after}"


def is_comment(key: str, text: str) -> bool:
    """Tell whether a text has this hidden key, wherever people left it."""
    return _comment_marker(key) in text


def same_text(text: str, other: str) -> bool:
    """Tell whether two texts are equal to a forge, which may change newlines and drop trailing space."""
    return normalise_newlines(text).rstrip() == normalise_newlines(other).rstrip()


def normalise_newlines(text: str) -> str:
    r"""Return a text with `\n` for the `\r\n` of a web form."""
    return text.replace("\r\n", "\n")


def hide(text: str) -> str:
    """Return a text with definitions of links as its marks, for forges that show comments of HTML."""
    return _MARK.sub(r"[//]: # (\1)", text.replace(f"\n{_END}", f"\n\n{_END}"))


def reveal(text: str) -> str:
    """Return a text of such a forge with its marks as they are elsewhere."""
    text = _HIDDEN_MARK.sub(r"<!-- \1 -->", normalise_newlines(text))
    return text.replace(f"\n\n{_END}", f"\n{_END}")


def _begin(fields: Mapping[str, object]) -> str:
    return f"<!-- reconciler:begin {base64.urlsafe_b64encode(orjson.dumps(fields)).decode()} -->\n"


def _comment_marker(key: str) -> str:
    return f"<!-- reconciler:comment:{re.sub(r'[^A-Za-z0-9._/-]', '_', key)} -->"


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _fields(encoded: str) -> dict[str, object]:
    try:
        value = orjson.loads(base64.urlsafe_b64decode(encoded))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _fitting(body: str, room: int, end: str) -> str:
    """Return a text that fits: all of it, or its first lines and an end."""
    return body if _size(body) <= room else _cut(body, max(0, room - len(end))) + end


def _size(text: str) -> int:
    """Return the length of a text in units of UTF-16, which is what some forges count."""
    # A character beyond the basic plane counts twice there.
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _cut(body: str, room: int) -> str:
    """Keep whole lines only, and close an open code block: text after it must not become code."""
    lines_kept: list[str] = []
    size, fence = 0, ""
    for line in body.split("\n"):
        marks = _FENCE.match(line)
        after = fence
        if marks:
            after = "" if fence == line else fence or marks.group()
        size += _size(line) + 1
        if size + (len(after) + 1 if after else 0) > room:
            break
        lines_kept.append(line)
        fence = after
    return "\n".join([*lines_kept, *([fence] if fence else [])])
