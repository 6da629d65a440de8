"""Instrument a package so that running it marks which blocks of its functions were entered.

A block is a run of statements that are entered together: a branch, the body of a loop, or what follows them.
Marks are bytes of memory that forks share, so what a command's own process runs counts, too.
"""

import ast
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import mmap
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

MARKS = "__marks__"
CAPACITY = 1 << 17
COMPOUND = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match)


@dataclass(frozen=True)
class Block:
    """A run of statements, the `number`-th of its function."""

    function: str
    number: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """Identify the block as long as its function does not change."""
        return f"{self.function}#{self.number}"


def read_blocks(path: Path, name: str) -> list[Block]:
    """Return the blocks of every function of a module, which is called `name` in their names."""
    return _mark(ast.parse(path.read_text(encoding="utf-8")), name, 0)


@dataclass
class Marks:
    """The blocks of a package that were entered since they were last taken."""

    root: Path
    package: str
    names: list[str] = field(default_factory=list)
    entered: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, CAPACITY))

    def instrument(self) -> None:
        """Import the whole package with marks in it."""
        assert self.package not in sys.modules, f"{self.package} is imported already"
        sys.meta_path.insert(0, _Finder(self))
        import_package(self.package)

    def finds(self, path: Path) -> bool:
        """Compile every module anew."""
        return path.suffix == ".py"

    def compile(self, path: Path) -> CodeType:
        """Compile a module with a mark at the start of each block."""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        blocks = _mark(tree, str(path.relative_to(self.root)), len(self.names))
        self.names += [block.name for block in blocks]
        assert len(self.names) < CAPACITY
        return compile(tree, str(path), "exec", dont_inherit=True)

    def take(self) -> set[int]:
        """Return the entered blocks and forget them."""
        size = len(self.names)
        taken = {number for number, mark in enumerate(self.entered[:size]) if mark}
        self.entered[:size] = bytes(size)
        return taken


@dataclass(frozen=True)
class Changed:
    """A package with another source of one module."""

    package: str
    path: Path
    source: str
    entered: None = None

    def install(self) -> None:
        """Import the whole package so."""
        assert self.package not in sys.modules, f"{self.package} is imported already"
        sys.meta_path.insert(0, _Finder(self))
        import_package(self.package)

    def finds(self, path: Path) -> bool:
        """Compile the module that is changed."""
        return path == self.path

    def compile(self, path: Path) -> CodeType:
        """Compile the other source."""
        return compile(self.source, str(path), "exec", dont_inherit=True)


def import_package(package: str) -> None:
    """Import every module of a package that is not a program."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def clear_caches(package: str) -> None:
    """Empty the caches of the functions of a package, so that the next test enters them anew."""
    for cached in _cached_functions(package):
        cached.cache_clear()


@functools.cache
def _cached_functions(package: str) -> list["functools._lru_cache_wrapper[object]"]:
    wrappers = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    return [wrapper for wrapper in wrappers if (wrapper.__module__ or "").split(".")[0] == package]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, marks: Marks | Changed) -> None:
        self._marks = marks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != self._marks.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin and self._marks.finds(Path(spec.origin)):
            spec.loader = _Loader(fullname, spec.origin, self._marks)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, marks: Marks | Changed) -> None:
        super().__init__(fullname, path)
        self._marks = marks

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 # its signature
        return self._marks.compile(Path(self.path))

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[MARKS] = self._marks.entered
        super().exec_module(module)


def _mark(tree: ast.Module, path: str, start: int) -> list[Block]:
    """Insert the marks in a tree and return their blocks; the first one has the number `start`."""
    blocks: list[Block] = []

    def mark_bodies(nodes: Sequence[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                mark_bodies(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                _mark_function(node, f"{path}::{prefix}{node.name}", start, blocks)

    mark_bodies(tree.body, "")
    return blocks


def _mark_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, start: int, blocks: list[Block]
) -> None:
    first = len(blocks)
    for node in list(ast.walk(function)):
        for attribute in ("body", "orelse", "finalbody"):
            body = getattr(node, attribute, None)
            if isinstance(body, list) and body and not isinstance(node, ast.ClassDef):
                runs = []
                for run in _runs(body):
                    blocks.append(Block(name, len(blocks) - first, run[0].lineno, run[-1].end_lineno or 0))
                    runs += [_mark_statement(start + len(blocks) - 1, run[0]), *run]
                docstring = [body[0]] if _is_docstring(body[0]) else []
                setattr(node, attribute, [*docstring, *runs])
    ast.fix_missing_locations(function)


def _runs(body: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Split statements after each one that may leave the block."""
    runs: list[list[ast.stmt]] = [[]]
    for statement in body:
        runs[-1].append(statement)
        if isinstance(statement, COMPOUND):
            runs.append([])
    return [run for run in runs if run]


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _mark_statement(number: int, at: ast.stmt) -> ast.stmt:
    mark = ast.parse(f"{MARKS}[{number}] = 1").body[0]
    for node in ast.walk(mark):
        ast.copy_location(node, at)
    return mark
