"""Who may change a lock that everybody shares, and what is said about a name that nothing floats by."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.base.errors import RefusedError, UsageError
from reconciler.policy import Policy
from reconciler.run import lock
from tests.support.plan_values import a_desired
from tests.support.sets import world


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("follow", [(), ("web",)])
def test_lock_is_not_written_while_every_change_is_suspended(follow, *, changed: bool, suspend: bool) -> None:
    result: Any = SimpleNamespace(decision=SimpleNamespace(changed=changed))

    with pytest.raises(RefusedError) if suspend and (follow or changed) else nullcontext():
        lock._check_active(
            result, world(policy=Policy(suspend=suspend)), lock.PinRequest(follow=frozenset(follow))
        )


@pytest.mark.parametrize(
    ("name", "hint"), [("web-3", "Did you mean web-1?"), ("web-2", "Name one whose upstream")]
)
def test_name_that_nothing_floats_by_leads_to_another_one_unless_it_is_that_of_a_variant(name, hint) -> None:
    upstreams = {"web-1": {"branch": "main"}, "web-2": {"revision": 1}}
    variants = [a_desired(n, upstream={"repo": "b", "package": "web", **ref}) for n, ref in upstreams.items()]

    with pytest.raises(UsageError) as error:
        lock._named(variants, name, world())
    assert error.value.hint.startswith(hint)
