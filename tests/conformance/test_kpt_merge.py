"""Package updates as the real kpt made them: equal in `compatible` mode, never worse in the default one.

Wanted differences are rules (`tests/ecosystem/kpt_rules.py`); `docs/contributing/divergences.md` says why. A
difference that no rule explains fails, and so does a rule that no case needs.
"""

import json
import re
from pathlib import Path

import pytest

from reconciler.names.objects import File
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update import UpstreamRef
from tests.ecosystem.kpt_rules import RULES, Outcome, Update, names_of, unexplained
from tests.support.conformance import OWN, PROJECT, folders
from tests.support.merges import MINIMAL, attempt, read_tree

NEW = UpstreamRef("${REPO}", "/pkg", "v2", "${COMMIT_UPSTREAM}")
UPSTREAM = "upstream:\n  type: git\n  git:\n    repo: ${REPO}\n    directory: /pkg\n    ref: v1\n"
LOCK = UPSTREAM.replace("upstream:", "upstreamLock:") + "    commit: ${COMMIT_ORIGINAL}\n"


def read_case(case: Path, mode: MergeMode) -> Update:
    """Read a case and update its package; local's Kptfile gets the upstream that it was fetched from."""
    original, upstream, local = (read_tree(case / side) for side in ("original", "upstream", "local"))
    strategy = json.loads((case / "case.json").read_text())["strategy"]
    result = json.loads((case / "result.json").read_text())
    kptfile = local.get("Kptfile") or original.get("Kptfile") or File.of(MINIMAL.encode())
    text = kptfile.data.decode()
    block = f"{UPSTREAM}  updateStrategy: {strategy}\n"
    missing = (b for b in (block, LOCK) if b[: b.index(":")] + ":\n" not in text)
    local["Kptfile"] = File.of("".join((text, *missing)).encode())

    def update(winner: OnConflict) -> Outcome:
        options = {"strategy": Strategy(strategy), "mode": mode, "on_conflict": winner, "new_upstream": NEW}
        files, conflicts, refused = attempt(original, upstream, local, **options)
        places = frozenset((conflict.path, conflict.resource) for conflict in conflicts)
        return Outcome(files, "refused" if refused else "", places)

    kpts = Outcome(read_tree(case / "expected"), "\n".join(result["messages"]) if result["rc"] else "")
    compatible = mode is MergeMode.COMPATIBLE
    asked = update(OnConflict.ASK)
    ours = asked if compatible else update(OnConflict.UPSTREAM)
    return Update(original, upstream, local, strategy, kpts, ours, asked, compatible)


@pytest.mark.parametrize("mode", MergeMode)
@pytest.mark.parametrize("case", folders("kpt", "case.json"))
def test_update_equals_kpts_or_differs_by_a_rule(case: Path, mode: MergeMode) -> None:
    assert unexplained(read_case(case, mode)) == []


def test_every_rule_is_needed_and_documented() -> None:
    section = (
        (PROJECT / "docs/contributing/divergences.md").read_text().partition("\n## PackageVariantSets")[0]
    )
    needed = {
        name for case in OWN.glob("kpt/*") for mode in MergeMode for name in names_of(read_case(case, mode))
    }

    assert sorted(RULES) == sorted(needed)
    assert set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == set(RULES)
