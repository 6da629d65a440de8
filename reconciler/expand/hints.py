"""What to do about an expression that was refused or failed."""

from reconciler.cel import EXTENSIONS, Failure
from reconciler.cel.check import MAP_ORDER
from reconciler.cel.functions import STRING_EXTENSION
from reconciler.expand.findings import EXPRESSIONS
from reconciler.expand.owners import EXTENSIONS as ANNOTATION

_HIDDEN = frozenset({"spec", "status", "kind", "apiVersion", "metadata", "data"})
_UNDECLARED = "undeclared reference to '"
_NO_KEY = "no such key: "
_HINTS = {
    "no such attribute(s): repository": "The repository is known only after repo or repoExpr was evaluated.",
    MAP_ORDER: "Name the keys, as in target.labels.region, or ask with `in`, size(), exists() or all().",
}


def hint_for(failure: Failure) -> str:
    """Return the way out of a failure, empty where there is no special one."""
    message = failure.message
    if message.startswith(_UNDECLARED):
        return _undeclared(message.removeprefix(_UNDECLARED).rstrip("'"))
    if message.startswith(_NO_KEY):
        if message.removeprefix(_NO_KEY) in _HIDDEN:
            return "Expressions see only name, namespace, labels and annotations of an object."
        return "Test for it first, as in has(target.labels.x) ? target.labels.x : 'none'."
    if "type conversion" in message:
        return "Write string(...) around the value."
    return _HINTS.get(message, "")


def _undeclared(name: str) -> str:
    if name in STRING_EXTENSION:
        return f"Annotate the set with {ANNOTATION}: {', '.join(sorted(EXTENSIONS))}."
    return f"There are repoDefault, packageDefault, upstream, target and repository; see {EXPRESSIONS}."
