"""Which definitions of the package a set of modules leads to: a graph of references, read from the sources.

A node is a top-level function, class or variable, named `module.name`, or a module: what it does when it is
imported. A class leads to what all its methods use. References through objects (`thing.method()`) are not
followed: methods are part of their class.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Sources = Mapping[str, str]
"""The text of each module by its dotted name."""


def read_sources(root: Path, package: str) -> dict[str, str]:
    """Return the sources of a package below a directory."""
    sources = {}
    for path in sorted((root / package.replace(".", "/")).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources[name] = path.read_text(encoding="utf-8")
    return sources


@dataclass
class Module:
    """The definitions of one module, its imports, and what each definition refers to."""

    name: str
    imports: dict[str, str] = field(default_factory=dict)
    """Local name to the dotted name that it stands for."""
    references: dict[str, set[str]] = field(default_factory=dict)
    """Definition to dotted names; "" stands for the statements that run on import."""
    functions: set[str] = field(default_factory=set)


class ReferenceGraph:
    """The references between the definitions of several modules."""

    def __init__(self, sources: Sources) -> None:
        self.modules = {name: _read_module(name, text) for name, text in sources.items()}

    def reachable(self, roots: Iterable[str]) -> set[str]:
        """Return every node that modules lead to, whatever of theirs is called."""
        pending = [node for root in roots for node in self._all_of(root)]
        seen: set[str] = set()
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending += self._targets(node)
        return seen

    def used_functions(self, modules: Iterable[str]) -> set[str]:
        """Return every function of the graph that the code of these modules names, where it is defined."""
        named = {
            target
            for module in modules
            for references in self.modules[module].references.values()
            for reference in references
            for target in self._resolve(reference)
        }
        return {node for node in named if self._is_function(node)}

    def _all_of(self, module: str) -> Iterator[str]:
        yield module
        yield from (f"{module}.{name}" for name in self.modules[module].references if name)

    def _is_function(self, node: str) -> bool:
        module, _, name = node.rpartition(".")
        return module in self.modules and name in self.modules[module].functions

    def _targets(self, node: str) -> Iterator[str]:
        module, _, name = node.rpartition(".")
        if node in self.modules:
            module, name = node, ""
        elif module not in self.modules:
            return
        yield module
        for reference in self.modules[module].references.get(name, ()):
            yield from self._resolve(reference)

    def _is_shadowed(self, module: str) -> bool:
        """Tell whether a package imports something else under the name of a module in it."""
        package, _, name = module.rpartition(".")
        return package in self.modules and name in self.modules[package].imports

    def _resolve(self, reference: str) -> Iterator[str]:
        """Yield the definition that a name stands for, through re-exports; nothing if it is foreign."""
        for _ in range(len(self.modules)):
            if reference in self.modules and not self._is_shadowed(reference):
                yield reference
                return
            module, _, name = reference.rpartition(".")
            while module and module not in self.modules:  # an attribute of a definition
                reference = module
                module, _, name = reference.rpartition(".")
            if not module:
                return
            if name in self.modules[module].references:
                yield reference
                return
            if name not in self.modules[module].imports:
                return
            reference = self.modules[module].imports[name]


def _read_module(name: str, text: str) -> Module:
    tree = ast.parse(text)
    module = Module(name)
    for node in ast.walk(tree):  # imports within functions too: they keep the start of a command short
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module.imports |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            names = ((each.asname or each.name.partition(".")[0], each) for each in node.names)
            module.imports |= {local: each.name if each.asname else local for local, each in names}
    defined = {target: node for node in tree.body for target in _defined_names(node)}
    module.functions = {
        target
        for target, node in defined.items()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    module.references = {"": set(), **{target: set() for target in defined}}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        named = {_qualified(each, module, defined.keys()) for each in ast.walk(node)} - {""}
        for target in _defined_names(node) or [""]:
            module.references[target] |= named
        module.references[""] |= _decorations(node, module, defined.keys())
    return module


def _decorations(node: ast.stmt, module: Module, defined: Iterable[str]) -> set[str]:
    """Return what the decorators of a definition refer to, and the definition, which they may register."""
    expressions = [each for decorator in getattr(node, "decorator_list", []) for each in ast.walk(decorator)]
    named = {_qualified(each, module, defined) for each in expressions} - {""}
    return named | {f"{module.name}.{target}" for target in _defined_names(node)} if named else set()


def _defined_names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            ]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _qualified(node: ast.AST, module: Module, defined: Iterable[str]) -> str:
    """Return the dotted name that an expression stands for, "" if it is none of a module."""
    if isinstance(node, ast.Name):
        if node.id in defined:
            return f"{module.name}.{node.id}"
        return module.imports.get(node.id, "")
    if isinstance(node, ast.Attribute):
        value = _qualified(node.value, module, defined)
        return f"{value}.{node.attr}" if value else ""
    return ""
