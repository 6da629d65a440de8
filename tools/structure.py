"""Measure the structure and the vocabulary of the package, and the path of one pull request through it.

Run as `python tools/structure.py [--path]`; with `--path` also the profile of one run that opens pull
requests for one PackageVariantSet over six clusters on the local forge.
"""

import ast
import io
import re
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.world import build_world

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "reconciler"
WORLD = ROOT / "fixtures/worlds/02-object-selector"
VAGUE_NAMES = frozenset({"one", "found", "known", "wanted", "asked", "said", "told", "several"})
"""Pronouns and participles that tell a reader nothing as the name of a variable."""
SMALL = 100
"""Lines below which a module with a single importer counts as a function of that importer."""


class Module(NamedTuple):
    """One source file: its dotted name, its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module


class Structure(NamedTuple):
    """The figures of a package; `vague` counts bindings of vague names, `bindings` of all names."""

    files: int
    lines: int
    comments: int
    vague: Counter[str]
    bindings: int
    classes: int
    repeated_classes: tuple[str, ...]
    single_importer: tuple[str, ...]
    small_single_importer: int


class Profile(NamedTuple):
    """What one command executed: source files, functions, and calls from one file into another."""

    files: int
    functions: int
    transfers: int


def read_modules(package: Path = PACKAGE) -> list[Module]:
    """Return every module of a package, sorted by path."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        dotted = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        modules.append(Module(dotted.removesuffix(".__init__"), text, ast.parse(text)))
    return modules


def measure(modules: list[Module]) -> Structure:
    """Return the figures of modules."""
    classes = _public_classes(modules)
    single = _single_importer(modules)
    small = {module.name for module in modules if module.text.count("\n") < SMALL}
    names = Counter(name for module in modules for name in _bound_names(module.tree))
    return Structure(
        files=len(modules),
        lines=sum(module.text.count("\n") for module in modules),
        comments=sum(_comments(module.text) for module in modules),
        vague=Counter({name: names[name] for name in VAGUE_NAMES if names[name]}),
        bindings=names.total(),
        classes=len(classes),
        repeated_classes=tuple(sorted(name for name, where in classes.items() if len(where) > 1)),
        single_importer=single,
        small_single_importer=len(small.intersection(single)),
    )


def _comments(text: str) -> int:
    """Count comments that explain something: directives to linters and type checkers do not."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT)
    return sum(not comment.startswith(("noqa", "type:", "pragma", "ruff:", "!")) for comment in comments)


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the name of every parameter and every variable, once for each binding."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def _public_classes(modules: list[Module]) -> Mapping[str, set[str]]:
    classes: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].add(module.name)
    return classes


def _single_importer(modules: list[Module]) -> tuple[str, ...]:
    """Return the modules that exactly one other module imports."""
    names = {module.name for module in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    dotted = f"{node.module}.{alias.name}"
                    importers[dotted if dotted in names else node.module].add(module.name)
    return tuple(sorted(name for name in names if len(importers[name] - {name}) == 1))


def profile_pull_request() -> Profile:
    """Plan and apply one set over six clusters in an own process state, and count what is executed."""
    with tempfile.TemporaryDirectory() as scratch:
        world = build_world(WORLD, Path(scratch) / "world")
        files: set[str] = set()
        functions: set[tuple[str, int]] = set()
        transfers = 0

        def count(frame: FrameType, event: str, _: Any) -> None:
            nonlocal transfers
            path = frame.f_code.co_filename
            if event != "call" or not path.startswith(str(PACKAGE)):
                return
            files.add(path)
            functions.add((path, frame.f_code.co_firstlineno))
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            transfers += caller.startswith(str(PACKAGE)) and caller != path

        # Commands import what they need when they start: a first one keeps imports out of the count.
        world.run("plan")
        sys.setprofile(count)
        try:
            result = world.run("apply")
        finally:
            sys.setprofile(None)
        if result.code:
            raise SystemExit(f"apply ended with {result.code}: {result.out}{result.err}")
        return Profile(len(files), len(functions), transfers)


def report(structure: Structure) -> Iterator[str]:
    """Yield the lines of the table."""
    vague = ", ".join(f"{name} {count}" for name, count in structure.vague.most_common())
    share = structure.vague.total() / structure.bindings
    yield f"files                                     {structure.files}"
    yield f"lines                                     {structure.lines}"
    yield f"comments per 1,000 lines                  {1000 * structure.comments / structure.lines:.1f}"
    yield f"names that say nothing                    {share:.1%} ({vague})"
    repeated, singles = len(structure.repeated_classes), len(structure.single_importer)
    yield f"public class names with several meanings  {repeated} of {structure.classes}"
    yield f"modules with a single importer            {singles} ({singles / structure.files:.0%})"
    yield f"modules with a single importer, small     {structure.small_single_importer} under {SMALL} lines"


def kinds_of_classes(modules: list[Module]) -> Counter[str]:
    """Count classes by what makes them: their decorator or first base."""
    kinds: Counter[str] = Counter()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                marks = [ast.unparse(each).partition("(")[0] for each in (*node.decorator_list, *node.bases)]
                kinds[marks[0].partition("[")[0] if marks else "plain"] += 1
    return kinds


def helpers_with_one_caller(modules: list[Module]) -> tuple[int, int]:
    """Return how many private functions there are, and how many are named once beside their definition."""
    named: Counter[tuple[str, str]] = Counter()
    private = []
    for module in modules:
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.FunctionDef)
                and node.name.startswith("_")
                and not node.name.endswith("__")
            ):
                private.append((module.name, node.name))
            elif isinstance(node, ast.Name | ast.Attribute):
                named[module.name, node.id if isinstance(node, ast.Name) else node.attr] += 1
    return len(private), sum(named[each] == 1 for each in private)


def surroundings(modules: list[Module]) -> Iterator[str]:
    """Yield the lines about classes, helpers, tests, commands and dependencies."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in kinds_of_classes(modules).most_common(9))
    yield f"classes by kind                           {kinds}"
    private, once = helpers_with_one_caller(modules)
    yield f"private functions with one caller         {once} of {private}"
    tests = [
        path for path in (ROOT / "tests").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in tests if path.suffix == ".py")
    yield f"files of tests                            {len(tests)}"
    yield f"lines of tests in Python                  {lines}"
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    commands = re.findall(r"(?m)^#+ `reconciler ?([^`]*)`", text)
    options = set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z][a-z-]*)", text))
    yield f"commands, with those below them           {len([c for c in commands if c])}"
    yield f"different options                         {len(options)}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield f"dependencies of a run                     {len(project['dependencies'])}"
    locks = sorted(ROOT.glob("requirements*.lock"))
    yield f"bytes of {len(locks)} lock files                     {sum(path.stat().st_size for path in locks)}"


def main(arguments: list[str]) -> None:
    """Print the table, and with `--path` the profile of one pull request."""
    modules = read_modules()
    lines = [*report(measure(modules)), *surroundings(modules)]
    if "--path" in arguments:
        profile = profile_pull_request()
        lines.append(f"files that one pull request passes        {profile.files}")
        lines.append(f"functions that it calls                   {profile.functions}")
        lines.append(f"calls from one file into another          {profile.transfers}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
