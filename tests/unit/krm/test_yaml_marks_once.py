"""Positions of fields: a document is composed once for all that are asked for in a row."""

import pytest

from reconciler.krm.yaml import load, load_documents

TEXT = b"items:\n- a\n- b\n---\nitems:\n  - c\n"


def test_marks_of_one_document_are_found_in_one_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = []
    compose = load.compose
    monkeypatch.setattr(load, "compose", lambda *given: composed.append(given) or compose(*given))
    first, second = load_documents(TEXT)
    composed.clear()

    assert [first.mark(("items", index)) for index in (0, 1)] == [(2, 3), (3, 3)]
    assert first.key_mark(("items",)) == (1, 1)
    assert len(composed) == 1
    assert second.mark(("items", 0)) == (6, 5)
    assert first.mark(("items", 0)) == (2, 3)
    assert len(composed) == 3
