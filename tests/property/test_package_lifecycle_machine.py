"""The life of a cluster's packages as a state machine: whatever people do, the laws of its lock hold.

Every step is something that a person or a registry does; then a run decides and writes, or is killed
before it writes. The laws are asserted here from the lock alone, and not by the code that keeps them.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconciler.dependencies.lock.format import ClusterLock, LockUpdate, ownership_entries
from reconciler.dependencies.model.instances import LockedRevision
from reconciler.dependencies.model.packages import DEFAULT_ACTIONS, Actions, ActivationRequest, RevisionPolicy
from tests.support.package_life import NOTHING, Life

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
NAME = st.sampled_from("abcd")
VERSION = st.integers(1, 4)
KINDS = st.frozensets(st.sampled_from(["Bucket", "Queue", "Topic"]), max_size=2)
LIMIT = st.sampled_from([0, 1, 3])
KEEPS = Actions(uninstall=False)
PUBLISHED = (
    ("a", 1, "Bucket", "", DEFAULT_ACTIONS),
    ("a", 2, "Bucket Queue", "d", DEFAULT_ACTIONS),
    ("a", 3, "Bucket", "d", DEFAULT_ACTIONS),
    ("b", 1, "Topic", "", DEFAULT_ACTIONS),
    ("b", 2, "Queue Topic", "", DEFAULT_ACTIONS),
    ("b", 3, "Queue", "", DEFAULT_ACTIONS),
    ("c", 1, "", "d", KEEPS),
    ("c", 2, "Topic", "d", KEEPS),
    ("d", 1, "", "", DEFAULT_ACTIONS),
    ("d", 2, "Stack", "", DEFAULT_ACTIONS),
)
"""Who brings what and needs whom: `Queue` and `Topic` move between packages from version to version."""


class Packages(RuleBasedStateMachine):
    """People, a registry, and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life()
        self.consents: set[str] = set()
        self.stopped: set[str] = set()
        for name, version, kinds, needs, actions in PUBLISHED:
            self.life.publish(name, version, frozenset(kinds.split()), frozenset(needs), actions)

    def step(self, **more: bool) -> None:
        """Let a run decide, twice as if the first were killed, and write; then nothing is left to do."""
        before = self.life.locked
        killed = self.life.decide(**more)
        decision = self.life.run(**more)
        assert decision.files == killed.files
        after = self.life.locked
        check_lock(after)
        gone = (
            {str(entry.package) for _, entry in ownership_entries(before.resolution)}
            if more.get("prune")
            else set()
        )
        there = {str(one.instance) for one in after.resolution.packages}
        check_step(before, after, self.consents | (gone - there))
        self.check_users(before, after, decision)
        if not more:
            assert self.life.decide().files == self.life.files

    def check_users(self, before: ClusterLock, after: ClusterLock, decision: LockUpdate) -> None:
        """What runs and is asked for still runs, unless a person stopped it; who lost is told so."""
        runs = {one.package for one in after.lock.revisions if one.is_active}
        for one in before.lock.revisions:
            name = one.package.rpartition("/")[2]
            if one.is_active and name in self.life.installs and name not in self.stopped:
                assert one.package in runs, one
        told = {problem.subject for problem in decision.problems}
        current = {one.package: one for one in after.lock.revisions if one.current}
        for name, install in self.life.installs.items():
            waits = install.revisions.manual or self.life.activations
            held = current.get(f"Provider/{name}")
            if not waits and (held is None or not held.is_active):
                assert str(install) in told, name

    # the registry

    @rule(
        name=NAME, version=VERSION, kinds=KINDS, needs=st.frozensets(NAME, max_size=2), managed=st.booleans()
    )
    def publish(
        self, name: str, version: int, kinds: frozenset[str], needs: frozenset[str], *, managed: bool
    ) -> None:
        if (name, version) not in self.life.published:
            below = frozenset(one for one in needs if one > name)  # no circles
            self.life.publish(
                name, version, kinds, below, DEFAULT_ACTIONS if managed else Actions(uninstall=False)
            )
            self.step()

    @precondition(lambda self: len(self.life.published) > 2)
    @rule(data=st.data())
    def lose_a_version(self, data: st.DataObject) -> None:
        self.life.published.pop(data.draw(st.sampled_from(sorted(self.life.published))))
        self.step()

    # people

    @precondition(lambda self: self.life.published)
    @rule(data=st.data(), manual=st.booleans(), limit=LIMIT)
    def install_or_upgrade(self, data: st.DataObject, limit: int, *, manual: bool) -> None:
        name, version = data.draw(st.sampled_from(sorted(self.life.published)))
        take_over = self.life.installs[name].revisions.take_over if name in self.life.installs else ()
        self.life.ask(name, version, RevisionPolicy(manual, limit, take_over))
        self.step()

    @precondition(lambda self: self.old_revisions())
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        """Ask again for what a retained revision has."""
        one = data.draw(st.sampled_from(self.old_revisions()))
        name = one.package.rpartition("/")[2]
        self.life.ask(name, int(one.image.rpartition(":v")[2][0]), self.life.installs[name].revisions)
        self.step()

    def old_revisions(self) -> list[LockedRevision]:
        return [
            one
            for one in self.life.locked.lock.revisions
            if not one.current and one.package.rpartition("/")[2] in self.life.installs
        ]

    @precondition(lambda self: self.life.installs)
    @rule(data=st.data(), other=NAME)
    def take_over(self, data: st.DataObject, other: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.life.installs)))
        self.life.policy(name, take_over=(f"x.io/{other}",))
        self.step()

    @precondition(lambda self: self.life.installs)
    @rule(data=st.data())
    def consent_to_pruning(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.life.installs)))
        self.life.policy(name, prune_kinds=True)
        self.consents.add(f"xpkg:x.io/{name}@cluster")
        self.step()

    @precondition(lambda self: self.life.installs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.life.installs.pop(data.draw(st.sampled_from(sorted(self.life.installs))))
        self.step()

    @precondition(lambda self: self.life.locked.lock.revisions)
    @rule(data=st.data(), active=st.sampled_from([True, True, False]))
    def say_what_runs(self, data: st.DataObject, *, active: bool) -> None:
        one = data.draw(st.sampled_from(self.life.locked.lock.revisions))
        name = one.package.rpartition("/")[2]
        self.life.activations[one.name] = ActivationRequest("ProviderRevision", one.name, active)
        self.stopped |= {name} if not active else set()
        self.step()

    @precondition(lambda self: self.life.activations)
    @rule(data=st.data())
    def unsay_it(self, data: st.DataObject) -> None:
        self.life.activations.pop(data.draw(st.sampled_from(sorted(self.life.activations))))
        self.step()

    # runs that differ

    @rule()
    def be_unsure(self) -> None:
        before = self.life.locked.resolution.packages
        self.step(sure=False)
        assert {one.instance for one in before} <= {
            one.instance for one in self.life.locked.resolution.packages
        }

    @rule()
    def leave_dependencies_alone(self) -> None:
        self.step(dependencies=False)

    @rule()
    def prune(self) -> None:
        self.step(prune=True)
        assert self.life.locked.resolution.unused == ()

    @invariant()
    def the_lock_is_sound(self) -> None:
        check_lock(self.life.locked)


def check_lock(locked: ClusterLock) -> None:
    """Assert what must hold of any lock."""
    revisions = locked.lock.revisions
    active = {one.name for one in revisions if one.is_active}
    names = {one.name for one in revisions}
    packages = [one.package for one in revisions if one.is_active]
    assert len(packages) == len(set(packages)), "two active revisions of one package"
    assert len({(one.package, one.revision) for one in revisions}) == len(revisions)
    assert {one.package for one in revisions} <= {one.object for one in locked.resolution.packages}
    there = {one.instance for one in locked.resolution.packages}
    needed = {name for one in revisions if one.is_active for name in one.needs}
    assert needed <= there, "what runs lacks what it needs"
    for name, entry in ownership_entries(locked.resolution):
        assert not entry.controller or entry.controller in active, (name, entry)
        assert not entry.controller or entry.controller in entry.owners, (name, entry)
        assert set(entry.owners) <= names, (name, entry)


def check_step(before: ClusterLock, after: ClusterLock, consents: set[str]) -> None:
    """Assert what must hold from one lock to the next."""
    assert after.lock in (before.lock, NOTHING.lock) or after.lock.generation == before.lock.generation + 1
    numbers: dict[str, int] = {}
    for one in before.lock.revisions:
        numbers[one.package] = max(numbers.get(one.package, 0), one.revision)
    known = {one.name: one for one in before.lock.revisions}
    kept = {one.name for one in after.lock.revisions}
    for one in after.lock.revisions:
        old = known.get(one.name)
        if old is None or (one.is_active and old.revision != one.revision):
            assert one.revision > numbers.get(one.package, 0), one
    now = dict(ownership_entries(after.resolution))
    for name, entry in ownership_entries(before.resolution):
        owners = now[name].owners if name in now else ()
        assert set(entry.owners) & kept <= set(owners), "an owner shrank while its revision is retained"
        stood = entry.controller or entry.retained
        assert name in now or not stood or str(entry.package) in consents, f"{name} is lost"
        if stood and name in now and now[name].package != entry.package:
            assert now[name].controller, f"{name} was taken and is controlled by nobody"


TestPackages = Packages.TestCase
TestPackages.settings = settings(max_examples=40 * FUZZ, stateful_step_count=25, deadline=None)
