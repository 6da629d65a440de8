"""Where the dashboard is kept: an issue of one run, a file of each shard."""

from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.apply.dashboard import DashboardWriter
from reconciler.forge.api_forge import ApiForge
from reconciler.plan.shard import WHOLE, Shard, dashboard_file
from reconciler.report.dashboard import Dashboard
from reconciler.report.summary import Names
from tests.support.forges.scripted import scripted_api
from tests.unit.apply.world import Edge


@pytest.mark.parametrize(
    ("has_api", "shard", "text", "is_file"),
    [
        (False, WHOLE, "text", True),
        (False, WHOLE, "", False),
        (False, Shard(1, 2), "text", True),
        (True, WHOLE, "text", False),
        (True, Shard(1, 2), "text", True),
        (True, Shard(1, 2), "", False),
    ],
)
def test_dashboard_is_a_file_where_no_issue_of_one_run_holds_it(
    tmp_path: Path, has_api: bool, shard: Shard, text: str, is_file: bool
) -> None:
    with scripted_api() as api:
        forge = (
            ApiForge(cast("Any", None), api.transport(), "demo") if has_api else Edge(tmp_path).target().forge
        )
    writer = DashboardWriter(forge, Names("demo"), shard)

    files = writer.files(Dashboard(text, calls=True))

    assert files == ({dashboard_file(shard): text.encode()} if is_file else {})
    assert writer.is_shared is (shard.parts > 1)
