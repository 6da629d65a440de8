"""Vectors of others run against what commands run: a function that only a test calls proves nothing."""

from tests.support.conformance import PROJECT
from tests.support.reachability import ReferenceGraph, read_sources

COMMANDS = "reconciler.cli"
SUITE = "tests.conformance"


def unreachable_functions(sources: dict[str, str]) -> set[str]:
    """Return the functions of the package that conformance tests name and no command leads to."""
    graph = ReferenceGraph(sources)
    commands = [name for name in sources if f"{name}.".startswith(f"{COMMANDS}.")]
    suite = {name for name in sources if name.startswith(f"{SUITE}.")}
    reached = graph.reachable(suite)
    helpers = {name for name in sources if name.startswith("tests.") and name in reached}
    named = {name for name in graph.used_functions(suite | helpers) if name.startswith("reconciler.")}
    return named - graph.reachable(commands)


def test_functions_that_conformance_tests_call_are_called_by_commands() -> None:
    sources = read_sources(PROJECT, "reconciler") | read_sources(PROJECT, "tests")

    assert unreachable_functions(sources) == set()


def test_function_that_only_a_test_calls_is_unreachable() -> None:
    merge = "def merge(): return _sides()\ndef _sides(): ...\ndef merge_old(): return _sides()\n"
    sources = {
        "reconciler": "",
        "reconciler.cli": "",
        "reconciler.cli.plan": "def plan():\n    from reconciler.krm import merge\n    return merge()\n",
        "reconciler.krm": "from reconciler.krm.merge import merge, merge_old\n",
        "reconciler.krm.merge": merge,
        "tests.support.merges": "from reconciler.krm import merge_old\ndef attempt(): merge_old()\n",
        "tests.conformance.test_merge": (
            "from reconciler.krm.merge import merge\nfrom tests.support import merges\n"
            "def test_merge(): merge(), merges.attempt()\n"
        ),
    }

    assert unreachable_functions(sources) == {"reconciler.krm.merge.merge_old"}
