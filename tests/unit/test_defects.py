"""Guards: what breaks unforeseen in one unit, and what is none of its faults."""

import errno
import logging
from collections.abc import Mapping
from contextlib import suppress

import pytest

from reconciler.base.defects import LOGGER, DefectError, guard, isolate
from reconciler.base.errors import Exit, ReconcilerError, RefusedError
from reconciler.base.redact import Redactor
from reconciler.cli.stderr import DefectLog
from reconciler.krm.yaml import load_documents


@pytest.mark.parametrize("kind", [IndexError, KeyError, RecursionError, MemoryError, OSError, TypeError])
def test_unforeseen_error_is_defect_of_its_unit(kind, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DefectError) as raised, guard("edge/web"):
        raise kind("odd")
    assert raised.value.exit_code is Exit.BUG
    assert kind.__name__ in str(raised.value)
    record = caplog.records[-1]
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("edge/web: ")
    assert record.exc_info


def test_defect_names_the_innermost_line_of_our_code() -> None:
    with pytest.raises(DefectError, match=r"TypeError.* at reconciler/krm/yaml/\w+\.py:\d+"), guard("x"):
        load_documents(None)


@pytest.mark.parametrize("error", [RefusedError("no"), OSError(errno.ENOSPC, "No space left on device")])
def test_expected_errors_and_limits_of_the_machine_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, guard("edge/web"):
        raise error
    assert raised.value is error
    assert not isinstance(raised.value, DefectError)
    assert isinstance(error, (ReconcilerError, OSError))


@pytest.mark.parametrize(
    ("units", "breaks", "kept"),
    [
        ("abcde", lambda kept: "f" in kept, "abcde"),
        ("abcde", lambda kept: "c" in kept, "abde"),
        ("abcde", lambda kept: kept & set("ae"), "bcd"),
        ("abcde", lambda kept: kept >= set("bd"), "abce"),
        ("abcde", bool, ""),
    ],
    ids=["none", "one", "two", "two that break only together", "all"],
)
def test_work_on_all_units_is_done_without_those_that_it_breaks_with(units, breaks, kept) -> None:
    calls = []

    def work(left_out: Mapping[str, DefectError]) -> set[str]:
        calls.append(left_out)
        result = set(units) - left_out.keys()
        if breaks(result):
            raise KeyError("odd")
        return result

    result, defects = isolate(lambda: units, work)
    assert result == set(kept)
    assert set(defects) == set(units) - set(kept)
    assert (len(calls) == 1) is (kept == units)


def test_work_that_breaks_without_any_unit_is_a_bug_of_the_run() -> None:
    with pytest.raises(KeyError, match="odd"):
        isolate(lambda: "ab", lambda left_out: left_out["odd"])


def test_expected_error_of_work_on_all_units_passes() -> None:
    def work(left_out: Mapping[str, DefectError]) -> None:
        if "a" not in left_out:
            raise RefusedError("no")

    with pytest.raises(RefusedError, match="no"):
        isolate(lambda: "ab", work)


def test_one_bug_in_many_units_is_one_traceback_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    with DefectLog(Redactor()) as log:
        for number in range(1000):
            with suppress(DefectError), guard(f"edge/p{number}"):
                raise KeyError("odd")
        summary = log.summary()
        is_printed_twice = logging.getLogger(LOGGER).propagate
    err = capsys.readouterr().err
    assert err.count("Traceback") == 1
    assert "edge/p0: KeyError" in err
    assert "999" in summary
    assert (is_printed_twice, logging.getLogger(LOGGER).propagate) == (False, True)
    assert log not in logging.getLogger(LOGGER).handlers
    assert summary.count("\n  python ") == 1
    assert "not installed" not in summary
