from collections.abc import Iterator

import pytest

from tests.support.forges.scripted import ScriptedApi, scripted_api


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with scripted_api() as served:
        yield served
