"""Our part of a pull request's text, fenced by hidden markers; what stands around it is people's. Pure."""

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import orjson

_BEGIN = re.compile(r"<!-- reconciler:begin ([A-Za-z0-9_-]+=*) -->\n?")
_FENCE = re.compile(r"`{3,}|~{3,}")
_END = "<!-- reconciler:end -->"
_CUT = "\n\nThe rest does not fit here; the files of this pull request show it."


class Marked(NamedTuple):
    """A pull request's text, taken apart; `title` is the digest of the title that we gave, "" if unknown.

    The marker is a hint: people can write it too. It decides only what is left alone.
    """

    body: str
    before: str = ""
    after: str = ""
    title: str = ""
    labels: tuple[str, ...] = ()
    found: bool = False


def digest(title: str) -> str:
    """Return what stands for a title in the marker."""
    return hashlib.sha256(title.encode()).hexdigest()[:16]


def compose(body: str, title: str, labels: Iterable[str], around: Marked, limit: int) -> str:
    """Return the whole text, at most `limit` characters: our part between markers, people's as it was."""
    about = orjson.dumps({"labels": sorted(labels), "title": digest(title)})
    begin = f"<!-- reconciler:begin {base64.urlsafe_b64encode(about).decode()} -->\n"
    before = f"{around.before.rstrip()}\n\n" if around.before.strip() else ""
    room = limit - len(before) - len(begin) - len(_END) - len(around.after) - 1
    body = body.replace("<!-- reconciler:", "<!-- reconciler :")
    inside = body if len(body) <= room else _cut(body, max(0, room - len(_CUT)))
    return f"{before}{begin}{inside}\n{_END}{around.after}"


def parse(text: str) -> Marked:
    """Take a text apart. Total: without a marker all of it is people's, and is the body too."""
    text = text.replace("\r\n", "\n")
    begin = _BEGIN.search(text)
    if begin is None:
        return Marked(text, before=text)
    inside, end, after = text[begin.end() :].partition(_END)
    about = _about(begin.group(1))
    title, labels = about.get("title"), about.get("labels")
    return Marked(
        body=inside.removesuffix("\n") if end else inside,
        before=text[: begin.start()],
        after=after,
        title=title if isinstance(title, str) else "",
        labels=tuple(label for label in labels if isinstance(label, str)) if isinstance(labels, list) else (),
        found=True,
    )


def comment_text(key: str, body: str, limit: int) -> str:
    """Return a comment's text with the hidden name that finds it again."""
    head = _name(key)
    return f"{head}\n{body}"[:limit]


def is_comment(key: str, text: str) -> bool:
    """Tell whether a comment of ours is the one that `key` names."""
    return text.startswith(_name(key))


def _name(key: str) -> str:
    return f"<!-- reconciler:comment:{re.sub(r'[^A-Za-z0-9._/-]', '_', key)} -->"


def _about(text: str) -> dict[str, object]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _cut(body: str, room: int) -> str:
    """Keep whole lines only; a code block that is open at the end is closed, so that nothing escapes."""
    kept: list[str] = []
    size, fence = 0, ""
    for line in body.split("\n"):
        marks = _FENCE.match(line)
        after = fence
        if marks:
            after = "" if fence == line else fence or marks.group()
        size += len(line) + 1
        if size + (len(after) + 1 if after else 0) > room:
            break
        kept.append(line)
        fence = after
    return "\n".join([*kept, *([fence] if fence else [])]) + _CUT
