"""Templates of reports: values are text, never templates themselves."""

import pytest

from reconciler.base.errors import Location
from reconciler.base.text import prose
from reconciler.expand import Desired
from reconciler.names.problems import Problem
from reconciler.plan.compare import Side, compare
from reconciler.plan.set_diff import SetDiff
from reconciler.report.comparison import comparison_report
from reconciler.report.markdown import comparison_markdown
from reconciler.report.report import Names


@pytest.mark.parametrize(
    "hostile",
    [
        "{{ 7 * 7 }}",
        "{% for x in ().__class__.__base__.__subclasses__() %}49{% endfor %}",
        "{{ 'a' * 10**9 }}",
    ],
)
def test_value_that_looks_like_a_template_stays_text(hostile: str) -> None:
    problem = Problem(Location("manifests/a.yaml", 1), "InvalidManifest", f"No field {hostile}", hostile)
    before, after = Side(Desired(), SetDiff()), Side(Desired(), SetDiff(), (problem,))

    text = comparison_markdown(comparison_report(compare(before, after), Names("fleet", {})))

    assert hostile.partition(" ")[2].split()[0] in text
    assert "49" not in text.replace(hostile, "").replace(prose(hostile), "")
    assert len(text) < 10_000
