from reconciler.git.push import PushResult, PushStatus, RefUpdate, name_refs


def results(*refs: str) -> list[PushResult]:
    return [PushResult(RefUpdate(ref, None, None), PushStatus.REJECTED) for ref in refs]


def test_three_refs_are_named() -> None:
    assert name_refs(results("a", "b", "c")) == "a, b, c"


def test_further_refs_are_counted() -> None:
    assert name_refs(results("a", "b", "c", "d", "e")) == "a, b, c and 2 more"
