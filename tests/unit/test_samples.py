import pytest

from tests.support import samples
from tests.support.samples import pick, sample


def test_sample_is_one_in_a_share_and_all_where_everything_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ALL", False)
    monkeypatch.setattr(samples, "SAMPLE", "4")
    assert [*sample(range(8), 3)] == [1, 4, 7]
    monkeypatch.setattr(samples, "ALL", True)
    assert [*sample(range(8), 3)] == [*pick(range(8), "any")] == [*range(8)]


def test_names_pick_one_case_each_and_every_case_is_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ALL", False)
    monkeypatch.setattr(samples, "SAMPLE", "0")
    picked = [pick("abcde", str(number)) for number in range(60)]

    assert {len(cases) for cases in picked} == {1}
    assert {cases[0] for cases in picked} == {*"abcde"}
    assert [pick("abcde", str(number)) for number in range(60)] == picked
