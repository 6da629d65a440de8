"""The evaluator where Google's wheel does not exist: a walk over the tree that cel-python parsed.

cel-python's own interpreter is not used for it: it answers wrongly on conditions over non-booleans,
on errors inside macros and on mixed numbers, and it bounds nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.expand.expressions.engine import Inputs, Result, no_string
from reconciler.expand.expressions.errors import Failure
from reconciler.expand.expressions.functions import FUNCTIONS, call
from reconciler.expand.expressions.nodes import (
    Call,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Message,
    Name,
    Node,
    Select,
)
from reconciler.expand.expressions.signatures import TYPE_NAMES, WRAPPERS
from reconciler.expand.expressions.string_functions import STRING_FUNCTIONS
from reconciler.expand.expressions.values import (
    FaultError,
    MapValue,
    TypeValue,
    from_python,
    kind_of,
)

MAX_ITERATIONS = 10_000


class PortableEngine:
    """The same answers as cel-cpp to everything that passes the static check, in Python alone."""

    name = "portable"

    def __init__(self, extensions: frozenset[str] = frozenset()) -> None:
        self._functions = {**FUNCTIONS, **STRING_FUNCTIONS} if extensions else FUNCTIONS

    def compile(self, text: str, tree: Node) -> Any:  # noqa: ARG002 - the tree says it all
        """Return the tree."""
        return tree

    def bind(self, inputs: Inputs) -> Any:
        """Return the inputs as CEL's values."""
        bound = {name: from_python(value) for name, value in inputs.items()}
        return bound | {f".{name}": value for name, value in bound.items()}

    def evaluate(self, program: Any, bound: Any) -> Result:
        """Return the string, or why there is none."""
        try:
            value = _Walk(self._functions).value(program, bound)
        except FaultError as fault:
            return Failure(str(fault))
        if isinstance(value, str):
            return value
        return no_string(kind_of(value))


class _Walk:
    """One evaluation; counts its iterations."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.functions = functions
        self.turns = 0

    def value(self, node: Node, scope: Mapping[str, Any]) -> Any:  # noqa: C901, PLR0911 - one line per kind
        match node:
            case Literal(value=value):
                return value
            case Name(name=name):
                return _lookup(name, scope)
            case Select():
                return self.select(node, scope)
            case Call(function="_&&_" | "_||_"):
                return self.logic(node, scope)
            case Call(function="_?_:_"):
                return self.condition(node, scope)
            case Call():
                arguments = [self.value(argument, scope) for argument in node.arguments]
                return call(self.functions, node.function, arguments)
            case ListOf(items=items):
                return [self.value(item, scope) for item in items]
            case MapOf(entries=entries):
                return MapValue.of((self.value(key, scope), self.value(item, scope)) for key, item in entries)
            case Message(name=name, fields=fields):
                return self.value(fields[0][1], scope) if fields else WRAPPERS[name][1]
            case Macro():
                return self.macro(node, scope)

    def select(self, node: Select, scope: Mapping[str, Any]) -> Any:
        operand = self.value(node.operand, scope)
        if not isinstance(operand, MapValue):
            raise FaultError("no such overload")
        entry = operand.find(node.field)
        if node.test:
            return entry is not None
        if entry is None:
            raise FaultError(f"no such key: {node.field}")
        return entry[1]

    def logic(self, node: Call, scope: Mapping[str, Any]) -> Any:
        """Evaluate `&&` or `||`: an operand that decides absorbs whatever the other one is."""
        decides = node.function == "_||_"
        fault: FaultError | None = None
        for argument in node.arguments:
            try:
                value = self.value(argument, scope)
            except FaultError as error:
                fault = fault or error
                continue
            if value is decides:
                return decides
            if not isinstance(value, bool):
                fault = fault or FaultError("no such overload")
        if fault is not None:
            raise fault
        return not decides

    def condition(self, node: Call, scope: Mapping[str, Any]) -> Any:
        test, yes, no = node.arguments
        return self.value(yes if self.truth(test, scope) else no, scope)

    def truth(self, node: Node, scope: Mapping[str, Any]) -> bool:
        value = self.value(node, scope)
        if not isinstance(value, bool):
            raise FaultError("no such overload")
        return value

    def macro(self, node: Macro, scope: Mapping[str, Any]) -> Any:
        over = self.value(node.operand, scope)
        items = list(over.keys()) if isinstance(over, MapValue) else over
        if not isinstance(items, list):
            raise FaultError("no such overload")
        scopes = [{**scope, node.variable: item} for item in items]
        self.turns += len(scopes)
        if self.turns > MAX_ITERATIONS:
            raise FaultError("Iteration budget exceeded")
        *tests, body = node.arguments
        if node.macro == "map":
            return [self.value(body, one) for one in scopes if all(self.truth(test, one) for test in tests)]
        if node.macro == "filter":
            return [one[node.variable] for one in scopes if self.truth(body, one)]
        if node.macro == "exists_one":
            return sum([self.truth(body, one) for one in scopes]) == 1
        return self.quantifier(body, scopes, decides=node.macro == "exists")

    def quantifier(self, body: Node, scopes: list[dict[str, Any]], *, decides: bool) -> bool:
        fault: FaultError | None = None
        for scope in scopes:
            try:
                if self.truth(body, scope) is decides:
                    return decides
            except FaultError as error:
                fault = fault or error
        if fault is not None:
            raise fault
        return not decides


def _lookup(name: str, scope: Mapping[str, Any]) -> Any:
    if name in scope:
        return scope[name]
    if name.removeprefix(".") in TYPE_NAMES:
        return TypeValue(name.removeprefix("."))
    raise FaultError(f"no such attribute(s): {name.removeprefix('.')}")
