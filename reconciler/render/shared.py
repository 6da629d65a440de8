"""Render packages that differ only by their own values once: by name, path, location and owner.

Most packages of a fleet do: their upstreams are the same, and so are their files on main, except for the
lines of the Kptfile and of the package context that hold these values, or what the variant sets in the
package context. The first package of such a class is rendered; the others are copies of the result with
their own values in these lines.

That is exact because rendering only copies these values, and compares them with nothing but themselves. A
value that occurs elsewhere in the inputs is part of the key, so only packages with that value share.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import InjectionSelector, PackageContext
from reconciler.inventory.inventory import RepositoryView
from reconciler.krm.yaml import is_plain
from reconciler.names.objects import File, tree_id
from reconciler.render.context import NAME, PACKAGE_PATH
from reconciler.render.kptfile import FUNCTION_PREFIX
from reconciler.render.merge_sides import updates_of
from reconciler.render.merging import VariantInputs
from reconciler.render.rendered import Blocked, Package

_MAX_RESULTS: Final = 1024
_MAX_BYTES: Final = 1 << 16
"""Of all own files: the limits of larger ones may depend on the length of a value."""


class OwnValues(NamedTuple):
    """The values by which the packages of a class differ."""

    name: str
    package: str
    location: str
    owner: str


class _Line(NamedTuple):
    """The line of an own value as we write it: its file, its key with the indentation, and the value."""

    path: str
    key: str
    value: str


_FILES: Final = (KPTFILE, PACKAGE_CONTEXT_FILE)
_CONTEXT_KEYS: Final = (NAME, PACKAGE_PATH)


def _own_lines(own: OwnValues, context: PackageContext | None) -> tuple[_Line, ...]:
    """Return the lines of own values, with the keys that the variant sets in the package context."""
    data = (context.data if context is not None else None) or {}
    return (
        _Line(KPTFILE, "  name", own.name),
        _Line(KPTFILE, f"    {LOCATION}", own.location),
        _Line(KPTFILE, f"    {OWNER}", own.owner),
        _Line(PACKAGE_CONTEXT_FILE, f"  {NAME}", own.name),
        _Line(PACKAGE_CONTEXT_FILE, f"  {PACKAGE_PATH}", own.package),
        *(
            _Line(PACKAGE_CONTEXT_FILE, f"  {key}", data[key])
            for key in sorted(data)
            if key not in _CONTEXT_KEYS and is_plain(key) and is_plain(data[key])
        ),
    )


class SharedRenders:
    """The rendered packages of a run by their inputs without own values; emptied when full."""

    def __init__(self) -> None:
        self._templates: dict[object, _Template] = {}

    def render(
        self,
        inputs: VariantInputs,
        view: RepositoryView,
        own: OwnValues,
        render: Callable[[], Package | Blocked],
    ) -> Package | Blocked:
        """Return the result of `render`: a copy of an equal package where there is one.

        Packages with conflicts, notes or functions of their variant are always rendered: their names occur
        in more than the lines of own values.
        """
        lines = _own_lines(own, inputs.resolved.variant.spec.package_context)
        key = _class_key(inputs, view, lines)
        if key is None:
            return render()
        template = self._templates.get(key)
        if template is not None:
            return template.fill(lines)
        result = render()
        if (template := _make_template(result, lines, key.kept)) is not None:
            if len(self._templates) >= _MAX_RESULTS:
                self._templates.clear()
            self._templates[key] = template
        return result


class _ClassKey(NamedTuple):
    """The inputs of rendering. `kept` are the own values that occur elsewhere in them, else empty."""

    inputs: tuple[object, ...]
    files: tuple[object, ...]
    kept: tuple[str, ...]


def _class_key(inputs: VariantInputs, view: RepositoryView, lines: tuple[_Line, ...]) -> _ClassKey | None:
    """Return the key of a package's class, None if its own values may matter to its other content."""
    resolved, contents = inputs.resolved, inputs.contents
    variant, base = resolved.variant, resolved.base
    spec = variant.spec
    is_adopted = resolved.local is not None and base is None
    is_changed_by_functions = any(each in inputs.sides for each in updates_of(resolved))
    if is_adopted or is_changed_by_functions or spec.pipeline or spec.mutators:
        return None
    if not all(is_plain(line.value) for line in lines):
        return None
    local = contents[resolved.local] if resolved.local is not None else {}
    # Equal trees are not fetched: nothing is merged.
    sources = [contents.get(pin.tree, {}) for pin in (base, resolved.pin) if pin is not None]
    others = [files[path].data for files in sources for path in _FILES if path in files]
    if any(b"\0" in data for data in (*others, *(local[path].data for path in _FILES if path in local))):
        return None
    masked = {path: _mask(path, local[path].data, lines) for path in _FILES if path in local}
    settings = (
        _context(spec.package_context, lines),
        _injection(spec.injectors or (), view.cluster, variant.key.namespace),
        tuple(sorted(variant.annotations.items())),
    )
    rest = b"\n".join((*masked.values(), *others, repr(settings).encode()))
    if _FUNCTION in rest or len(rest) > _MAX_BYTES:
        return None
    return _ClassKey(
        (base, resolved.pin, resolved.lost_base, view.deployment, settings),
        tuple((path, masked.get(path) or file.oid, file.mode) for path, file in local.items()),
        tuple(line.value if line.value.encode() in rest else "" for line in lines),
    )


def _injection(injectors: Sequence[InjectionSelector], *of: str) -> tuple[str, ...]:
    """Return what selects the objects to inject: nothing without injectors."""
    return (*of, *(repr(each) for each in injectors)) if injectors else ()


_FUNCTION: Final = f"{FUNCTION_PREFIX}.".encode()
_CONTEXT: Final = PACKAGE_CONTEXT_NAME.encode()


def _context(context: PackageContext | None, lines: tuple[_Line, ...]) -> tuple[object, ...]:
    """Return what a variant sets in the package context, without the values that have a line of their own."""
    if context is None:
        return ()
    own = {line.key.strip() for line in lines if line.path == PACKAGE_CONTEXT_FILE} - {*_CONTEXT_KEYS}
    data = ((key, None if key in own else value) for key, value in sorted((context.data or {}).items()))
    return (*data, *(context.remove_keys or ()))


def _mask(path: str, data: bytes, lines: tuple[_Line, ...]) -> bytes:
    """Return a file with numbers instead of the values in the lines of own values."""
    for number, line in enumerate(lines):
        if line.path == path:
            old, new = f"\n{line.key}: {line.value}\n", f"\n{line.key}: \0{number}\n"
            data = data.replace(old.encode(), new.encode())
    return data


class _Template(Struct, frozen=True):
    """A rendered package, and its files with numbers instead of own values."""

    package: Package
    masked: dict[str, bytes]

    def fill(self, lines: tuple[_Line, ...]) -> Package:
        """Return the package with other own values."""
        files = dict(self.package.files)
        for path, masked in self.masked.items():
            data = masked
            for number, line in enumerate(lines):
                data = data.replace(f"\0{number}\n".encode(), f"{line.value}\n".encode())
            files[path] = File.of(data, files[path].mode)
        return replace(self.package, tree=tree_id(files), files=files)


def _make_template(
    result: Package | Blocked, lines: tuple[_Line, ...], kept: tuple[str, ...]
) -> _Template | None:
    """Return the template of a package, None if an own value is in more than its lines."""
    if isinstance(result, Blocked) or result.conflicts or result.answers or result.notes:
        return None
    masked = {path: _mask(path, result.files[path].data, lines) for path in _FILES if path in result.files}
    # No other file is written, but one that has the package context in place of its usual file.
    others = (
        file.data for path, file in result.files.items() if path not in masked and _CONTEXT in file.data
    )
    texts = (text.encode() for text in (result.injection or "", *result.unready, *result.warnings))
    rest = b"\n".join((*masked.values(), *others, *texts))
    moving = (line.value for line, same in zip(lines, kept, strict=True) if not same)
    return None if any(value.encode() in rest for value in moving) else _Template(result, masked)
