"""Find, create and write fields of resources by the paths that functions are configured with.

Two notations: field specs of kustomize's filters (`spec/template/metadata/labels`, `a[]` for every item), and
paths of replacements (`spec.containers.[name=app].image`, `items.*.x`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from reconciler.base.suggestions import parse_boolean
from reconciler.base.values import whole_number
from reconciler.functions.builtin.call import FunctionFailedError, Splits, as_text
from reconciler.functions.patterns import PatternError, compile_pattern
from reconciler.functions.resources import Resource
from reconciler.krm.yaml import Field, Raw, Scalar, SetValue, Style, Tree, YamlError, emit
from reconciler.krm.yaml import Sequence as YamlSequence


class FieldRef(NamedTuple):
    """A field, present or not: a mapping and a key, or a list and an index."""

    holder: Any
    key: str | int

    @property
    def value(self) -> Any:
        """The value, None where there is none yet."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.key)
        return self.holder[self.key] if self.key < len(self.holder) else None  # type: ignore[operator] # an index

    def put(self, value: Any) -> None:
        """Replace the value, or append it to the list."""
        if isinstance(self.holder, list) and self.key == len(self.holder):
            self.holder.append(value)
        else:
            self.holder[self.key] = value


class FieldSpec(NamedTuple):
    """A field of some kinds. Empty group, version and kind fit everything; `a[]` is every item of `a`."""

    path: str
    group: str = ""
    version: str = ""
    kind: str = ""
    create: bool = False

    def find(self, resource: Resource) -> list[FieldRef]:
        """Return the fields of a resource; empty if its kind does not fit.

        Raises:
            FunctionFailedError: The value of a parent is no mapping.
        """
        fits = (
            self.kind in ("", resource.kind)
            and self.group in ("", resource.group)
            and self.version in ("", resource.api_version.rpartition("/")[2])
        )
        return list(find_spec(resource.value, self.path.split("/"), create=self.create)) if fits else []


def find_spec(value: Any, path: Sequence[str], *, create: bool) -> Iterator[FieldRef]:
    """Yield the fields at a path; `create` makes the mappings above them.

    Raises:
        FunctionFailedError: The value of a parent is no mapping.
    """
    if value is None:
        return
    step, rest = path[0], path[1:]
    if not isinstance(value, dict):
        raise FunctionFailedError(f"The field above {step} is no mapping")
    key, is_list = (step[:-2], True) if step.endswith("[]") else (step, False)
    if not rest and not is_list:
        if create or key in value:
            yield FieldRef(value, key)
        return
    if value.get(key) is None:
        if not create or is_list:
            return
        value[key] = {}
    if not is_list:
        yield from find_spec(value[key], rest, create=create)
        return
    for index, item in enumerate(value[key] if isinstance(value[key], list) else ()):
        if rest:
            yield from find_spec(item, rest, create=create)
        else:
            yield FieldRef(value[key], index)


def parse_specs(value: Any, where: str) -> list[FieldSpec]:
    """Return the field specs of a configuration; `where` names its field in the error.

    Raises:
        FunctionFailedError: The value is no list of field specs.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) and item.get("path") for item in value):
        raise FunctionFailedError(f"{where} is no list of fields with a path")
    return [
        FieldSpec(
            str(item["path"]),
            str(item.get("group") or ""),
            str(item.get("version") or ""),
            str(item.get("kind") or ""),
            create=parse_boolean(item.get("create")) is True,
        )
        for item in value
    ]


def configured_specs(config: Mapping[str, Any], field: str) -> list[FieldSpec]:
    """Return the field specs of a configuration in `field`, or under their older name `fieldSpecs`.

    Raises:
        FunctionFailedError: It has both, or a value that is no list of field specs.
    """
    if config.get("fieldSpecs") and config.get(field):
        raise FunctionFailedError(f"only one of fieldSpecs and {field} may be set")
    name = "fieldSpecs" if config.get("fieldSpecs") else field
    return parse_specs(config.get(name), name)


def split_path(text: str) -> tuple[str, ...]:
    r"""Return the steps of a path; `\.` is a dot in a key, and dots in brackets separate nothing.

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


def find_fields(
    value: Any, steps: Sequence[str], splits: Splits, *, lenient: bool = False
) -> Iterator[FieldRef]:
    """Yield every field at a path; `lenient` takes the first item of a list only, by equality.

    `splits` gets the texts that a pattern is searched in.
    """
    if not steps:
        return
    for field in _step(value, steps[0], splits, lenient=lenient):
        if len(steps) == 1:
            yield field
        else:
            yield from find_fields(field.value, steps[1:], splits, lenient=lenient)


def _step(value: Any, step: str, splits: Splits, *, lenient: bool) -> Iterator[FieldRef]:
    if isinstance(value, list):
        if step == "*" and not lenient:
            yield from (FieldRef(value, index) for index in range(len(value)))
        elif _is_selector(step):
            items = [n for n, item in enumerate(value) if _selects(step, item, splits, lenient=lenient)]
            yield from (FieldRef(value, index) for index in items[: 1 if lenient else None])
        elif (element := whole_number(step)) is not None and element < len(value):
            yield FieldRef(value, element)
    elif isinstance(value, dict):
        if step == "*" and not lenient:
            yield from (FieldRef(value, key) for key in value)
        elif step in value:
            yield FieldRef(value, step)


def _is_selector(step: str) -> bool:
    return step[:1] == "[" and step[-1:] == "]" and "=" in step


def _selects(step: str, item: Any, splits: Splits, *, lenient: bool) -> bool:
    name, _, text = step[1:-1].partition("=")
    value = (item.get(name) if isinstance(item, dict) else None) if name else item
    if value is None or isinstance(value, (dict, list)):
        return False
    if lenient:
        return as_text(value) == text
    splits += [(text, ""), (as_text(value), "")]
    try:
        return compile_pattern(text).search(as_text(value)) is not None
    except PatternError as error:
        raise FunctionFailedError(str(error)) from error


def create_field(value: Any, steps: Sequence[str], splits: Splits) -> FieldRef | None:
    """Create the parents of a field; None where a parent has a value of another type."""
    for number, step in enumerate(steps):
        field = _create(value, step, splits)
        if field is None or number == len(steps) - 1:
            return field
        if field.value is None:
            following = steps[number + 1]
            field.put([] if _is_selector(following) or following.isdigit() else {})
        value = field.value
    return None


def _create(value: Any, step: str, splits: Splits) -> FieldRef | None:
    if isinstance(value, dict):
        return None if step == "*" or _is_selector(step) else FieldRef(value, step)
    if not isinstance(value, list):
        return None
    existing = next(_step(value, step, splits, lenient=False), None)
    if existing is not None:
        return existing
    if _is_selector(step):
        name, _, text = step[1:-1].partition("=")
        value.append({name: text} if name else text)
        return FieldRef(value, len(value) - 1)
    return FieldRef(value, len(value)) if whole_number(step) == len(value) else None


def put_text(field: Field, text: str) -> SetValue:
    """Return the edit that writes text into a scalar: a quoted one stays quoted, a plain one is retyped."""
    node = field.node
    if isinstance(node, Scalar) and node.style is not Style.PLAIN:
        return SetValue(field.path, text)
    return SetValue(field.path, plain(text))


@lru_cache(maxsize=1024)
def plain(text: str) -> Any:
    """Return the value that YAML writes as `text` without quotes; the text itself if it needs quotes."""
    if text and "\n" not in text:
        try:
            root = Tree.parse(f"- {text}").root
        except YamlError:
            return text
        # In a list, a text such as `a: b` or `# a` is no scalar of its own.
        item = root.items[0] if isinstance(root, YamlSequence) and len(root.items) == 1 else None
        node = item.value if item is not None else None
        if isinstance(node, Scalar) and node.style is Style.PLAIN and node.content == text:
            value = node.value
            return value if emit(value) == text else Raw(text)
    return text
