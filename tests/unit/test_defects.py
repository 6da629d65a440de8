"""Guards: what breaks unforeseen in one unit, and what is none of its faults."""

import errno
import logging

import pytest

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Exit, ReconcilerError, RefusedError
from reconciler.krm.yaml import load_documents


@pytest.mark.parametrize("kind", [IndexError, KeyError, RecursionError, MemoryError, OSError, TypeError])
def test_unforeseen_error_is_defect_of_its_unit(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
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
        load_documents(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [RefusedError("no"), OSError(errno.ENOSPC, "No space left on device")])
def test_expected_errors_and_limits_of_the_machine_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, guard("edge/web"):
        raise error
    assert raised.value is error
    assert not isinstance(raised.value, DefectError)
    assert isinstance(error, (ReconcilerError, OSError))
