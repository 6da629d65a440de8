"""State and status: written last, by compare-and-swap, only where something changed."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.apply import state
from reconciler.apply.outcome import EffectKind, Result
from reconciler.apply.state import (
    Branch,
    is_overtaken,
    read_branch,
    read_dashboards,
    share_branch,
    surviving_records,
    write_branch,
    write_locks,
)
from reconciler.base.errors import Exit, UnavailableError
from reconciler.base.redact import learn_credential
from reconciler.git.push import PushResult, PushStatus, RefUpdate
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid, PackageKey
from reconciler.policy import CommitPolicy, Limits, Policy
from reconciler.records.state import (
    PackageVariantRecord,
    UpstreamLock,
    lock_bytes,
    lock_path,
    record_bytes,
    record_path,
)
from tests.support.git import EPOCH, Repo, make_repository
from tests.support.plan_values import a_record
from tests.support.values import TOKEN

REF = "refs/heads/reconciler/demo/state"
RECORDED = ("control", EffectKind.RECORDED, "reconciler/demo/state")
POLICY = CommitPolicy()

packages = st.sampled_from([PackageKey("u", p) for p in "abc"])
records = st.dictionaries(st.sampled_from("wxyz"), st.binary(max_size=2))


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "control.git", {"a": "b"})


def mirror(repo: Repo) -> Mirror:
    found = Mirrors(repo.path.parent / "cache").open(str(repo.path))
    found.fetch()
    return found


def branch(files: dict[str, bytes], expect: Oid | None = None) -> Branch:
    return Branch(REF, expect, files, "Record\n")


@given(records, records, st.dictionaries(st.sampled_from("wxyz"), packages), st.frozensets(packages))
def test_a_failed_package_keeps_its_record_and_no_other_does(
    old: dict[str, bytes], new: dict[str, bytes], owners: dict[str, PackageKey], failed: frozenset[PackageKey]
) -> None:
    written = surviving_records(old, new, owners, failed)

    for path in old.keys() | new.keys():
        source = old if owners.get(path) in failed else new
        assert written.get(path) == source.get(path)


def test_names_of_clusters_may_differ_in_case(repo: Repo) -> None:
    files = {"locks/Edge.json": b"{}", "locks/edge.json": b"[]"}

    assert not write_branch(mirror(repo), branch(files), POLICY, EPOCH).unfinished
    assert read_branch(mirror(repo), repo.oid(REF), Limits()) == files


def test_another_run_that_decided_otherwise_is_never_overwritten(repo: Repo) -> None:
    ours = mirror(repo)
    write_branch(mirror(repo), branch({"x": b"theirs"}), POLICY, EPOCH)
    theirs = repo.oid(REF)

    result = write_branch(ours, branch({"x": b"ours"}), POLICY, EPOCH)

    assert repo.oid(REF) == theirs
    assert result.exits == {Exit.UNAVAILABLE}
    assert result.effects[0].error


def test_another_run_that_wrote_the_same_did_our_work(repo: Repo) -> None:
    ours = mirror(repo)
    write_branch(mirror(repo), branch({"x": b"same"}), POLICY, EPOCH + 7)

    assert write_branch(ours, branch({"x": b"same"}), POLICY, EPOCH) == Result()


def test_no_files_and_no_branch_is_nothing_to_do(repo: Repo) -> None:

    write_branch(mirror(repo), branch({}), POLICY, EPOCH)

    assert REF not in repo.refs()


def test_no_files_empty_a_branch_that_has_some(repo: Repo) -> None:
    write_branch(mirror(repo), branch({"x": b"1"}), POLICY, EPOCH)
    first = repo.oid(REF)

    result = write_branch(mirror(repo), branch({}, first), POLICY, EPOCH)

    found = mirror(repo)
    assert read_branch(found, found.refs()[REF], Limits()) == {}
    assert [str(p) for p in repo.git[repo.oid(REF)].parent_ids] == [first]
    assert [effect.oid for effect in result.effects] == [repo.oid(REF)]


def test_changes_of_an_optional_directory_alone_are_no_reason_to_write(repo: Repo) -> None:
    write_branch(mirror(repo), branch({"a": b"1", "seen/x": b"1"}), POLICY, EPOCH)
    tip = repo.oid(REF)

    def write(files: dict[str, bytes]) -> bool:
        write_branch(mirror(repo), branch(files, tip)._replace(optional="seen"), POLICY, EPOCH)
        return repo.oid(REF) != tip

    assert not write({"a": b"1", "seen/x": b"2", "seen/y": b"1"})
    assert not write({"a": b"1"})
    assert write({"a": b"2", "seen/x": b"2"})
    assert held(repo) == {"a": b"2", "seen/x": b"2"}


def test_a_fleet_has_more_records_than_a_package_has_files(repo: Repo) -> None:
    files = {f"packagevariants/d/{n}.json": b"{}" for n in range(60)}
    write_branch(mirror(repo), branch(files), POLICY, EPOCH)

    found = mirror(repo)

    assert read_branch(found, found.refs()[REF], Limits(package_files=50)) == files


def variant(name: str, uid: str = "u") -> PackageVariantRecord:
    return a_record(namespace="d", name=name, uid=uid, manifest="m", url="u", path=name)


def records_of(*records: PackageVariantRecord) -> dict[str, bytes]:
    return {record_path(record): record_bytes(record) for record in records}


def test_runs_that_change_records_of_one_repository_keep_each_others_lines(repo: Repo) -> None:
    both = records_of(variant("theirs"), variant("mine"), variant("leaves"))
    write_branch(mirror(repo), branch(both), POLICY, EPOCH)
    read = repo.oid(REF)
    theirs = records_of(variant("theirs", "new"), variant("mine"), variant("leaves"), variant("came"))
    write_branch(mirror(repo), branch(theirs, read), POLICY, EPOCH)

    decided = {record_path(variant(name)) for name in ("mine", "leaves", "came")}
    ours = branch(records_of(variant("theirs"), variant("mine", "new")), read)
    result = share_branch(mirror(repo), ours, decided.__contains__, Policy(), EPOCH)

    assert held(repo) == records_of(variant("theirs", "new"), variant("mine", "new"), variant("came"))
    assert not result.exits


def test_locks_are_written_beside_lines_that_cannot_be_read(repo: Repo) -> None:
    lines = record_bytes(variant("web")).decode() + "{\n"
    repo.commit({"packagevariants/d/edge.jsonl": lines}, branch="reconciler/demo/state")
    control = SimpleNamespace(state=repo.oid(REF), commit=SimpleNamespace(time=EPOCH))
    inventory = cast("Any", SimpleNamespace(policy=Policy(instance="demo"), control=control))

    write_locks(inventory, mirror(repo), {"locks/c.json": b"{}"})

    assert held(repo) == {
        **records_of(variant("web")),
        "packagevariants/d/edge.jsonl": b"{\n",
        "locks/c.json": b"{}",
    }


def is_lock(path: str) -> bool:
    return path.startswith("locks/")


def share(repo: Repo, files: dict[str, bytes], expect: Oid | None) -> Result:
    """Write as a shard does that read `expect` and owns every file but those of others."""
    mine = branch(files, expect)
    return share_branch(
        mirror(repo), mine, lambda path: not path.startswith("others/"), Policy(), EPOCH, common=is_lock
    )


def held(repo: Repo) -> dict[str, bytes]:
    found = mirror(repo)
    return read_branch(found, found.refs()[REF], Limits())


@pytest.mark.parametrize(
    ("written", "expected", "is_late"),
    [
        (({"locks/c.json": b"1", "mine/x": b"old"}, {"locks/c.json": b"2", "mine/x": b"old"},
            {"locks/c.json": b"3", "mine/x": b"new"}), {"locks/c.json": b"2", "mine/x": b"new"}, True),
        (({"locks/c.json": b"1", "others/y": b"old"}, {"locks/c.json": b"1", "others/y": b"new"},
            {"locks/c.json": b"2", "others/y": b"old"}), {"locks/c.json": b"2", "others/y": b"new"}, False),
        (({}, {"locks/c.json": b"2", "mine/x": b"1"}, {"locks/c.json": b"2", "mine/x": b"2"}),
            {"locks/c.json": b"2", "mine/x": b"2"}, False),
        (({"mine/left": b"1", "mine/x": b"1"}, {"mine/left": b"1", "mine/new": b"1", "mine/x": b"1"},
            {"mine/x": b"2"}), {"mine/new": b"1", "mine/x": b"2"}, False),
    ],
    ids=["locks that another run decided otherwise", "locks that nobody decided since",
        "locks that another shard decided alike", "a file that came since"],
)  # fmt: skip
def test_a_shard_writes_what_it_decides_beside_what_others_wrote_meanwhile(
    repo: Repo, written: tuple[dict[str, bytes], ...], expected: dict[str, bytes], is_late: bool
) -> None:
    read, meanwhile, ours = written
    write_branch(mirror(repo), branch(read), POLICY, EPOCH)
    before = repo.find(REF)
    write_branch(mirror(repo), branch(meanwhile, before), POLICY, EPOCH)

    result = share(repo, ours, before)

    assert held(repo) == expected
    assert result.exits == ({Exit.UNAVAILABLE} if is_late else set())
    assert ("decided the locks first" in result.effects[-1].error) is is_late
    assert {(e.repository, e.what, e.ref) for e in result.effects} == {RECORDED}


@pytest.mark.parametrize(("failed", "moved"), list(product([False, True], repeat=2)))
def test_locks_are_overtaken_if_they_failed_and_the_branch_is_not_where_it_was_read(
    failed: bool, moved: bool
) -> None:
    read, now = Oid("1" * 40), Oid("2" * 40)
    inventory = SimpleNamespace(policy=Policy(instance="demo"), control=SimpleNamespace(state=read))
    refs = {REF: now if moved else read, "refs/heads/reconciler/other/state": read}
    control = SimpleNamespace(refs=lambda: refs)
    result = Result(exits=frozenset({Exit.UNAVAILABLE} if failed else {Exit.REFUSED}))

    assert is_overtaken(cast("Any", inventory), cast("Any", control), result) is (failed and moved)


@pytest.mark.parametrize(
    ("status", "exit_code", "message"),
    [
        (PushStatus.REJECTED, Exit.REFUSED, "The repository refuses it: locked"),
        (PushStatus.STALE, Exit.UNAVAILABLE, "Another run wrote it first: locked"),
    ],
)
def test_refused_and_overtaken_branches_have_different_errors(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, status: PushStatus, exit_code: Exit, message: str
) -> None:
    answer = PushResult(RefUpdate(REF, None, None), status, "locked")
    monkeypatch.setattr(state, "push", lambda *_: [answer])

    result = write_branch(mirror(repo), branch({"x": b"1"}), POLICY, EPOCH)

    assert (result.exits, [effect.error for effect in result.effects]) == ({exit_code}, [message])


def test_unreadable_machine_branch_is_named_with_the_reason(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "control.git", {"l": (b"/etc/passwd", 0o120000)})

    with pytest.raises(UnavailableError, match=f"{repo.oid('main')} of {repo.path} cannot be read: l: "):
        read_branch(mirror(repo), repo.oid("main"), Limits())
    assert read_branch(mirror(repo), None, Limits()) == {}


@pytest.mark.parametrize("tip", [True, False])
def test_each_part_of_a_dashboard_is_read_from_the_branch_as_it_is_now(repo: Repo, tip: bool) -> None:
    early = mirror(repo)
    parts = {"dashboard-0-of-3.md": b"first", "dashboard-2-of-3.md": b"\xff", "dashboard-0-of-2.md": b"other"}
    if tip:
        write_branch(mirror(repo), branch(parts), POLICY, EPOCH)

    assert read_dashboards(early, REF, 3) == ({0: "first", 2: "\ufffd"} if tip else {})


def test_record_in_which_a_machine_would_read_a_credential_stays_as_it_was(repo: Repo) -> None:
    old = {"a.json": b'{"head":"old"}\n', "b.json": b'{"head":"b"}\n'}
    write_branch(mirror(repo), branch(old), POLICY, EPOCH)
    learn_credential(TOKEN, "a test")
    new = {
        "a.json": orjson.dumps({"head": TOKEN}),
        "b.json": orjson.dumps({"head": "new", "message": f"said {TOKEN}"}),
        "c.json": orjson.dumps({"conflicts": [{"local": TOKEN}]}),
        "d.md": f"said {TOKEN}".encode(),
        f"{TOKEN}.json": b"{}",
    }

    result = write_branch(mirror(repo), branch(new, repo.oid(REF)), POLICY, EPOCH)

    assert held(repo) == {
        "a.json": old["a.json"],
        "b.json": b'{"head":"new","message":"said ***"}\n',
        "d.md": b"said ***",
    }
    why = " holds a credential that this run uses"
    assert [effect.error for effect in result.effects if effect.error] == [
        f"Field head of record a.json{why}",
        f"Field conflicts[0].local of record c.json{why}",
        f"The name of record {TOKEN}.json{why}",
    ]
    assert result.exits == {Exit.REFUSED}


@pytest.mark.parametrize("is_shared", [False, True])
def test_branch_that_cannot_be_written_or_read_is_reported(
    tmp_path: Path, repo: Repo, is_shared: bool
) -> None:
    ours = mirror(repo)
    if is_shared:
        repo.path.rename(tmp_path / "gone")
        result = share_branch(ours, branch({"x": b"1"}), lambda _: True, Policy(), EPOCH)
    else:
        (tmp_path / "cache").touch()
        result = write_branch(ours, branch({"x": b"1"}), POLICY, EPOCH)

    (effect,) = result.effects
    assert (effect.repository, effect.what, effect.ref) == RECORDED
    assert effect.error
    assert (result.exits, result.unfinished) == ({Exit.UNAVAILABLE}, {})


def test_shard_that_lost_a_race_reads_the_branch_again(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    other = mirror(repo)
    races = iter([{"others/y": b"1"}, {"others/y": b"1", "others/z": b"2"}])
    write = state.write_branch

    def lose(*arguments: Any) -> Result:
        if files := next(races, None):
            other.fetch()
            write(other, branch(files, other.refs().get(REF)), POLICY, EPOCH)
        return write(*arguments)

    monkeypatch.setattr(state, "write_branch", lose)

    result = share(repo, {"mine/x": b"3"}, None)

    assert held(repo) == {"others/y": b"1", "others/z": b"2", "mine/x": b"3"}
    assert not result.exits


PIN = UpstreamLock(
    namespace="default",
    name="web",
    repository="up",
    package="web",
    selector={},
    commit="1" * 40,
    tree="2" * 40,
)


def test_locks_of_clusters_are_replaced_pins_are_set_and_every_other_file_stays(repo: Repo) -> None:
    pin = lock_path(PIN)
    before = {"locks/old.json": b"1", "locks/kept.json": b"1", "other": b"1", pin: b"old", f"{pin}.x": b"1"}
    write_branch(mirror(repo), branch(before), POLICY, EPOCH)
    control = SimpleNamespace(state=repo.oid(REF), commit=SimpleNamespace(time=EPOCH + 9))
    inventory = SimpleNamespace(policy=Policy(instance="demo"), control=control)

    result = write_locks(
        cast("Any", inventory), mirror(repo), {"locks/kept.json": b"2", "locks/n.json": b"3"}, [PIN]
    )

    assert held(repo) == {
        "locks/kept.json": b"2",
        "locks/n.json": b"3",
        "other": b"1",
        pin: lock_bytes(PIN),
        f"{pin}.x": b"1",
    }
    commit = repo.git[repo.oid(REF)]
    assert (commit.message, commit.committer.time) == ("Record locks\n", EPOCH + 9)
    assert [effect.oid for effect in result.effects] == [repo.oid(REF)]
