"""What packages of a fleet share while they are rendered changes no result."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.krm.yaml import PACKAGE_LIMITS, Tree, YamlError, load_documents
from reconciler.render.kptfile import kptfile_value
from tests.property.test_yaml_round_trip import PIECES, documents

TEXTS = st.one_of(documents(usual=True), documents(), st.lists(PIECES, max_size=14).map("".join))
HEADS = st.sampled_from(["", "---\n", "# x\n---\n", "\ufeff", "%YAML 1.1\n---\n", "a: 1\r\n...\r\n"])


def _first_value(data: bytes) -> dict[str, Any]:
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
    except YamlError:
        return {}
    value = documents[0].value if documents else None
    return value if isinstance(value, dict) else {}


@given(HEADS, TEXTS)
@example("", '{"a": 1e2}')
@example("a: 1\n", "---\nb: 2\n")
@example("a: 1\r", "---\rb: 2\r")
def test_value_of_kptfile_is_that_of_its_first_document(head: str, text: str) -> None:
    data = (head + text).encode("utf-8", "surrogatepass")

    assert repr(kptfile_value(data)) == repr(_first_value(data))


@given(TEXTS)
def test_trees_of_equal_texts_read_alike_after_their_values_were_changed(text: str) -> None:
    try:
        first = Tree.parse(text)
        value = first.value
    except YamlError:
        return
    before = repr(value)
    if isinstance(value, dict):
        value["changed"] = True

    assert repr(Tree.parse(text).value) == before
