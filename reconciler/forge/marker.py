"""The generated part of a pull request body, between hidden markers; text around it is kept. Pure."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

_BEGIN = re.compile(r"<!-- reconciler:begin ([A-Za-z0-9_-]+=*) -->\n?")
_FENCE = re.compile(r"`{3,}|~{3,}")
_END = "<!-- reconciler:end -->"
_CUT = "\n\nThe rest does not fit here; the files of this pull request show it."


class Marked(NamedTuple):
    """A pull request's text, taken apart; `title` is the digest of the title that we gave, "" if unknown.

    `content` is the digest of what our part was made of, "" if that is unknown or somebody changed our
    part. `duplicate_of` is the pull request in whose favour we closed this one, 0 for none.

    The marker is a hint: people can write it too. It decides only what is left alone.
    """

    body: str
    before: str = ""
    after: str = ""
    title: str = ""
    labels: tuple[str, ...] = ()
    found: bool = False
    content: str = ""
    duplicate_of: int = 0


def digest(text: str) -> str:
    """Return what stands for a text in the marker."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compose(
    body: str, title: str, labels: Iterable[str], around: Marked, limit: int, *, content: str = ""
) -> str:
    """Return the whole text, at most `limit` characters: our part between markers, people's as it was.

    `content` stands for what the part was made of.
    """
    about: dict[str, object] = {"labels": sorted(labels), "title": digest(title)}
    if content:
        about |= {"content": content, "part": digest("")}
    begin = _begin(about)
    before = f"{around.before.rstrip()}\n\n" if around.before.strip() else ""
    room = limit - len(before) - len(begin) - len(_END) - len(around.after) - 1
    body = body.replace("<!-- reconciler:", "<!-- reconciler :")
    inside = body if len(body) <= room else _cut(body, max(0, room - len(_CUT)))
    if content:
        begin = _begin({**about, "part": digest(inside)})
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
    content, number = about.get("content"), about.get("duplicateOf")
    inside = inside.removesuffix("\n") if end else inside
    is_ours = isinstance(content, str) and about.get("part") == digest(inside)
    return Marked(
        body=inside,
        before=text[: begin.start()],
        after=after,
        title=title if isinstance(title, str) else "",
        labels=tuple(label for label in labels if isinstance(label, str)) if isinstance(labels, list) else (),
        found=True,
        content=content if isinstance(content, str) and is_ours else "",
        duplicate_of=number if isinstance(number, int) else 0,
    )


def mark_duplicate(text: str, number: int) -> str:
    """Return the text of a pull request with the hidden note that another one was kept in its place."""
    text = text.replace("\r\n", "\n")
    begin = _BEGIN.search(text)
    if begin is None:
        return f"{text}\n\n{_begin({'duplicateOf': number})}{_END}"
    about = {**_about(begin.group(1)), "duplicateOf": number}
    return f"{text[: begin.start()]}{_begin(about)}{text[begin.end() :]}"


def _begin(about: Mapping[str, object]) -> str:
    return f"<!-- reconciler:begin {base64.urlsafe_b64encode(orjson.dumps(about)).decode()} -->\n"


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
