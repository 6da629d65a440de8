"""Field paths as kustomize writes them: `spec.containers.[name=app].image`, `items.*.x`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.functions.builtin.call import FunctionFailedError, as_text
from reconciler.functions.patterns import PatternError, compile_pattern


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: in a mapping by its key, or in a list by its index."""

    holder: Any
    key: str | int

    @property
    def value(self) -> Any:
        """The value, None where there is none yet."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.key)
        return self.holder[self.key] if self.key < len(self.holder) else None  # type: ignore[operator] # an index

    def put(self, value: Any) -> None:
        """Replace the value."""
        if isinstance(self.holder, list) and self.key == len(self.holder):
            self.holder.append(value)
        else:
            self.holder[self.key] = value


def split_path(text: str) -> tuple[str, ...]:
    r"""Return the steps of a path; `\.` is a dot in a key, and brackets hold their dots together.

    Source: kustomize kyaml/utils/pathsplitter.go, SmarterPathSplitter.
    """
    steps: list[str] = []
    current, depth, escaped = "", 0, False
    for letter in text:
        if escaped:
            current += letter if letter == "." else f"\\{letter}"
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == "." and not depth:
            steps.append(current)
            current = ""
        else:
            depth += (letter == "[") - (letter == "]" and depth > 0)
            current += letter
    steps.append(current)
    return tuple(_bare(step) for step in steps if step)


def _bare(step: str) -> str:
    """`[a.b/c]` is a key; `[name=x]` and `[=x]` select items."""
    return step[1:-1] if step[:1] == "[" and step[-1:] == "]" and "=" not in step else step


def find_places(value: Any, steps: Sequence[str], *, lenient: bool = False) -> list[Place]:
    """Return every place that a path leads to; `lenient` takes the first item of a list only, by equality."""
    return list(_find(value, steps, lenient=lenient))


def _find(value: Any, steps: Sequence[str], *, lenient: bool) -> Iterator[Place]:
    if not steps:
        return
    for place in _step(value, steps[0], lenient=lenient):
        if len(steps) == 1:
            yield place
        else:
            yield from _find(place.value, steps[1:], lenient=lenient)


def _step(value: Any, step: str, *, lenient: bool) -> Iterator[Place]:
    if isinstance(value, list):
        if step == "*" and not lenient:
            yield from (Place(value, index) for index in range(len(value)))
        elif _is_selector(step):
            found = [
                Place(value, index)
                for index, item in enumerate(value)
                if _selects(step, item, lenient=lenient)
            ]
            yield from found[:1] if lenient else found
        elif step.isdigit() and int(step) < len(value):
            yield Place(value, int(step))
    elif isinstance(value, dict):
        if step == "*" and not lenient:
            yield from (Place(value, key) for key in value)
        elif step in value:
            yield Place(value, step)


def _is_selector(step: str) -> bool:
    return step[:1] == "[" and step[-1:] == "]" and "=" in step


def _selects(step: str, item: Any, *, lenient: bool) -> bool:
    field, _, wanted = step[1:-1].partition("=")
    have = (item.get(field) if isinstance(item, dict) else None) if field else item
    if have is None or isinstance(have, (dict, list)):
        return False
    if lenient:
        return as_text(have) == wanted
    try:
        return compile_pattern(wanted).search(as_text(have)) is not None
    except PatternError as error:
        raise FunctionFailedError(str(error)) from error


def create_place(value: Any, steps: Sequence[str]) -> Place | None:
    """Make the place that a path leads to, with its parents; None where something else is in the way."""
    for number, step in enumerate(steps):
        place = _make(value, step)
        if place is None or number == len(steps) - 1:
            return place
        if place.value is None:
            following = steps[number + 1]
            place.put([] if _is_selector(following) or following.isdigit() else {})
        value = place.value
    return None


def _make(value: Any, step: str) -> Place | None:
    if isinstance(value, dict):
        return None if step == "*" or _is_selector(step) else Place(value, step)
    if not isinstance(value, list):
        return None
    found = list(_step(value, step, lenient=False))
    if found:
        return found[0]
    if _is_selector(step):
        field, _, wanted = step[1:-1].partition("=")
        value.append({field: wanted} if field else wanted)
        return Place(value, len(value) - 1)
    return Place(value, len(value)) if step.isdigit() and int(step) == len(value) else None
