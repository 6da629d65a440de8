"""Pull requests: lookup by `REPO/PACKAGE`, `REPO#3` or `3`, filters, readiness (D10, D18)."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple, TypeVar

from msgspec import Struct

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, Repository, RepositorySpec
from reconciler.base.errors import Location, RefusedError, UsageError
from reconciler.base.lazy import regex
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural, some
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.expand.variants import owner_key
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.local.merge import LockHead, OutdatedError, parse_head
from reconciler.forge.local.pulls import head_branches, missing_branch_hint
from reconciler.forge.registry import Forge, OwnTools, find_tools
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Draft, Inventory, PullRequest, PullState, RepositoryView, Source
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.refs import HEADS, index_refs, is_deletion, is_group_in, revision_refs, short_branch
from reconciler.plan.approvals import early_deletions, ended_by
from reconciler.plan.changes import APPLY_ENDS_IT, Approvable, Objection, Plan, WriteDraft, WriteRemoval
from reconciler.plan.context import by_weight
from reconciler.records.state import LOCKS_DIRECTORY, PackageVariantRecord
from reconciler.resolve.ownership import is_foreign
from reconciler.run.plan import PlannedRun, RunInputs

_DRAFT_BRANCH = regex(r"reconciler/(?P<instance>[^/]+)/")
"""Branches that an instance makes under its own name: of groups, deletions, locks and the index."""
_PATTERN = regex(r"[*?\[]")
_SET = "PackageVariantSet"
_OF_CONTROL = frozenset((LOCKS_DIRECTORY, INDEX_DIRECTORY))
_MOST_NAMES = 5
_F = TypeVar("_F")
_NOT_REGISTERED = "no registered Repository is there"
ON_EVERY_FORGE = "`pr` is for repositories without a forge; `approve` merges on every one."
_LIST = "`reconciler status` shows what is in review."


class ListedPull(NamedTuple):
    """A pull request with the view that its packages are in, its forge and its clone.

    Where no Repository is at the path of its package, the view is of the whole repository, and
    `is_registered` is False: the gates of the package are unknown. `left` is why patterns leave it out.

    `sets` are the PackageVariantSets that its packages were made by, as `namespace/name`, `instance` is
    another instance that its packages belong to, "" for this one and for none. `labels` are those of the
    variants that its packages are of, as `key` and `key=value`. `members` are the packages of a group, as
    arguments of `approve`. `repository` is how people name the Repository, if not by its name alone.
    """

    view: RepositoryView
    pull: PullRequest
    forge: Forge
    mirror: Mirror
    sets: frozenset[str] = frozenset()
    instance: str = ""
    labels: frozenset[str] = frozenset()
    members: tuple[str, ...] = ()
    is_registered: bool = True
    why_left: str = ""
    tools: OwnTools | None = None
    repository: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """The identity: names of Repositories are unique in a namespace only."""
        return self.view.url, self.pull.number

    @property
    def called(self) -> str:
        """The Repository, as the arguments of commands begin."""
        return self.repository or self.view.key.name

    @property
    def is_local(self) -> bool:
        """Whether Git alone keeps it, so that its merge is in the clone at once."""
        return isinstance(self.forge, LocalForge)

    @property
    def place(self) -> str:
        """Where people decide about it, on a forge with pages of its own: its page, and a command line."""
        return self.tools.way(self.pull.url) if self.tools is not None else ""

    @property
    def name(self) -> str:
        """The argument of `pr show`."""
        return f"{self.called}#{self.pull.number}"

    @property
    def package(self) -> str:
        """The argument of `approve`; the head of a pull request about several packages."""
        about = parse_head(self.pull.head)
        if about is None or not self.is_registered:
            return about.path if about else self.pull.head
        return f"{self.called}/{below(self.view, about.path)}"

    @property
    def shown(self) -> str:
        """The packages as people read them."""
        rest = f" and {plural(len(self.members) - 1, 'other')}" if self.members[1:] else ""
        return f"{self.members[0]}{rest}" if self.members else self.package


def list_pulls(world: RunInputs) -> list[ListedPull]:
    """Return the pull requests of every repository that was read, by repository and number."""
    listed: list[ListedPull] = []
    sets = dict(_by_place(world.inventory.records.values(), _set_of))
    labels = dict(_by_place(world.inventory.records.values(), _labels_of))
    records = _by_place(world.inventory.records.values(), lambda record: (record,))
    stalled = _stalled_owners(world)
    for url in sorted({view.url for view in world.inventory.views.values() if view.is_available}):
        views = list(world.inventory.views_of(url))
        mirror = world.mirrors.open(views[0].remote)
        forge = world.forges.of(mirror)
        others = dict(_other_instances(views, world.inventory.policy.instance))
        groups, grouped_by = _groups(views, world.inventory)
        whole = _whole_view(url, mirror, world.inventory)
        tools = find_tools(world.inventory.policy, mirror.remote, url)
        for pull in world.inventory.pulls.get(url, ()):
            made_by, labelled = (
                frozenset(name for head in _about(pull) for name in named.get((url, head), ()))
                for named in (sets, labels)
            )
            named = _DRAFT_BRANCH.match(pull.head)
            instance = named["instance"] if named else others.get(pull.head, "")
            instance = "" if instance == world.inventory.policy.instance else instance
            members = tuple(groups.get(pull.head, ()))
            view = grouped_by.get(pull.head) or _view_of(pull, url, world.inventory)
            is_known = view is not None or (
                url == world.inventory.control.url and isinstance(parse_head(pull.head), LockHead)
            )
            why = _why_left(pull, view, records, world.inventory) if view else ""
            why = why if view or is_known else _NOT_REGISTERED
            owners = (stalled[url, about] for about in _about(pull) if (url, about) in stalled)
            why = why or next((f"{owner} is not understood" for owner in owners), "")
            listed.append(
                ListedPull(
                    view or whole,
                    pull,
                    forge,
                    mirror,
                    made_by,
                    instance,
                    labelled,
                    members,
                    is_registered=is_known,
                    why_left=why,
                    tools=tools,
                    repository=world.inventory.label(view.key) if view else "",
                )
            )
    listed += _of_control(world, {pull.view.url for pull in listed})
    return sorted(listed, key=lambda f: (f.view.key, f.pull.number))


def _stalled_owners(world: RunInputs) -> Mapping[tuple[str, str], str]:
    """Return the owners that are not understood, by URL and path, or group branch, of their packages."""
    inventory, stalled = world.inventory, world.expand().stalled
    return {
        (url, about): owner.subject
        for record in inventory.records.values()
        if (owner := owner_key(record)) in stalled
        for url, about in (*record.packages, (record.url, record.group))
        if about
    }


def _groups(
    views: Iterable[RepositoryView], inventory: Inventory
) -> tuple[Mapping[str, list[str]], Mapping[str, RepositoryView]]:
    """Return the packages with a draft in a group, or that a person deleted there, and the first one's view.

    Both by the branch of the group.
    """
    groups: dict[str, list[str]] = {}
    first: dict[str, RepositoryView] = {}
    for view in views:
        for path, package in sorted(view.packages.items()):
            refs = [draft.ref for draft in package.drafts if draft.is_grouped]
            refs += [group.ref for group in view.groups if package.main_tree and path in group.deleted]
            for ref in refs if inventory.view_of(PackageKey(view.url, path)) is view else ():
                groups.setdefault(short_branch(ref), []).append(
                    f"{inventory.label(view.key)}/{below(view, path)}"
                )
                first.setdefault(short_branch(ref), view)
    return groups, first


def _other_instances(views: Iterable[RepositoryView], instance: str) -> Iterator[tuple[str, str]]:
    """Yield the branches of drafts that another instance owns, with its name."""
    for view in views:
        for package in view.packages.values():
            for draft in package.drafts:
                if is_foreign(draft.header, draft.path, instance):
                    owner = draft.header.owner.partition("/")[0]
                    yield from ((head, owner) for head in head_branches(short_branch(draft.ref)))


def _by_place(
    records: Iterable[PackageVariantRecord], facts_of: Callable[[PackageVariantRecord], Iterable[_F]]
) -> Mapping[tuple[str, str], list[_F]]:
    """Return facts of records by the URL and the path, or the group branch, of their packages."""
    named: dict[tuple[str, str], list[_F]] = {}
    for record in records:
        for about in filter(None, (record.path, record.group)):
            named.setdefault((record.url, about), []).extend(facts_of(record))
    return named


def _set_of(record: PackageVariantRecord) -> Iterator[str]:
    if record.set_name:
        yield f"{record.namespace}/{record.set_name}"


def _labels_of(record: PackageVariantRecord) -> Iterator[str]:
    for key, value in (record.spec.get("labels") or {}).items():
        yield from (key, f"{key}={value}")


def _about(pull: PullRequest) -> Iterator[str]:
    """Yield the head of a pull request, and the path of its package if it has one alone."""
    yield pull.head
    if about := parse_head(pull.head):
        yield about.path


class PullFilter(Struct, frozen=True):
    """Filters of pull requests: those count that match each filter which is given.

    Attributes:
        sets: PackageVariantSets, as `name` or `namespace/name`; one of them made the packages.
        labels: Labels of the pull request or of its variant, as `key` or `key=value`; it has all of them.
    """

    sets: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether any filter is given."""
        return bool(self.sets or self.labels)

    def select(self, listed: Iterable[ListedPull]) -> list[ListedPull]:
        """Return the pull requests that match, in the same order."""
        named = [(pull, _with_short_names(pull.sets)) for pull in listed]
        return [
            pull
            for pull, names in named
            if (not self.sets or not names.isdisjoint(self.sets))
            and {*pull.pull.labels, *pull.labels}.issuperset(self.labels)
        ]

    def check_sets(self, inventory: Inventory) -> None:
        """Refuse the name of a set that does not exist: it would look like a set without pull requests.

        Raises:
            UsageError: No PackageVariantSet has a name of the filter, now or when the last run was recorded.
        """
        names = _with_short_names(_set_names(inventory))
        declared = sorted(name for name in names if "/" in name)
        otherwise = f"PackageVariantSets of this fleet: {some(declared, _MOST_NAMES)}."
        for name in self.sets:
            if name not in names:
                hint = suggest(
                    name, names, otherwise=otherwise if names else "No PackageVariantSet is declared."
                )
                raise UsageError(f"There is no PackageVariantSet {name}", hint=hint)


def _set_names(inventory: Inventory) -> Iterator[str]:
    """Yield the sets that are declared, invalid ones too, and those of the records."""
    yield from (str(pvs.key) for pvs in inventory.sets)
    yield from (f"{key.namespace}/{key.name}" for key in inventory.stalled if key.kind == _SET)
    yield from map(str, inventory.set_records)
    yield from (f"{r.namespace}/{r.set_name}" for r in inventory.records.values() if r.set_name)


def _with_short_names(names: Iterable[str]) -> frozenset[str]:
    """Return names with namespace together with those without."""
    return frozenset(part for name in names for part in (name, name.partition("/")[2]))


def _of_control(world: RunInputs, listed: Container[str]) -> Iterator[ListedPull]:
    """Yield those of a lock, the index and revisions, where the control repository is not listed anyway."""
    control, inventory = world.inventory.control, world.inventory
    if control.url in listed:
        return
    mirror = world.mirrors.open(control.remote)
    forge = world.forges.of(mirror)
    instance = inventory.policy.instance
    prefixes = (index_refs(instance), revision_refs(instance))
    pulls = inventory.pulls.get(control.url, ())
    if inventory.reviewed is None and any(ref.startswith(prefixes) for ref in mirror.refs()):
        pulls = forge.list_pulls()
    view = _whole_view(control.url, mirror, inventory)
    tools = find_tools(inventory.policy, control.remote, control.url)
    yield from (ListedPull(view, pull, forge, mirror, tools=tools) for pull in pulls)


def without_early(listed: Sequence[ListedPull], plan: Callable[[], Plan]) -> list[ListedPull]:
    """Return pull requests: patterns leave those that delete what is not, or not whole, at its new place."""
    is_early = any(is_deletion(f"{HEADS}{f.pull.head}") and f.pull.state is PullState.OPEN for f in listed)
    early = early_deletions(plan()) if is_early else {}
    return [f._replace(why_left=f.why_left or str(early.get((f.view.url, f.pull.head), ""))) for f in listed]


def is_pattern(text: str) -> bool:
    """Tell whether an argument names whatever matches it."""
    return bool(_PATTERN.search(text))


def find_pulls(listed: Sequence[ListedPull], text: str) -> list[ListedPull]:
    """Return the pull requests that `text` names.

    `REPO#3` or `3` name one whatever its state; `REPO/PACKAGE` the open ones, else the newest. A pattern
    like `edge-*/web` names all open ones that it matches.

    Raises:
        UsageError: It names none, or a bare number names several.
    """
    if is_pattern(text):
        opened = [f for f in listed if f.pull.state is PullState.OPEN]
        matching = [f for f in opened if _matches(f, (f.name, *_names(f)), [text])]
        named = [f for f in matching if not f.why_left]
        if matching and not named:
            message = f"{text} matches only what is left: {matching[0].name}: {matching[0].why_left}"
            raise UsageError(message, hint=f"A pattern leaves it. Name it: {matching[0].name}.")
        return _some(named, text, ())
    if text.isdecimal() or "#" in text:
        repository, _, number = text.rpartition("#")
        named = [f for f in listed if str(f.pull.number) == number and repository in ("", f.called)]
        if len(named) > 1:
            raise UsageError(
                f"{text} is ambiguous: {', '.join(f.name for f in named)}",
                hint=f"Name the repository too, as in {named[0].name}.",
            )
        return _some(named, text, (f.name for f in listed))
    named = [f for f in listed if text in _names(f)]
    if len({f.called for f in named}) > 1:  # of a Repository that is called as the namespace of the other
        ways = some([f.name for f in named], _MOST_NAMES)
        raise UsageError(f"{text} is ambiguous", hint=f"Name its pull request: {ways}.")
    opened = [f for f in named if f.pull.state is PullState.OPEN]
    # A package that has one of its own is meant there, and not as a member of a group.
    members = [f for f in opened if text not in f.members]
    return members or opened or _some(named[-1:], text, (f.package for f in listed))


def find_or_open_pulls(
    world: RunInputs, texts: Sequence[str], listed: Sequence[ListedPull], text: str
) -> list[ListedPull]:
    """Return the open pull requests that `text` names; a draft that has none yet gets one.

    With `pullRequests.openOn: propose` a draft has no pull request until a person proposes it. If the
    pull request of a draft was closed in its current state, no other is opened. `texts` are all names that
    were given.

    Raises:
        UsageError: It names nothing that could be approved.
        RefusedError: It shares a draft without a pull request with packages that were not named.
    """
    for view in world.inventory.repositories.values():
        for path, package in view.packages.items():
            called = world.inventory.label(view.key)
            if text not in (f"{called}/{below(view, path)}", f"{called}/{path}"):
                continue
            drafts = package.drafts
            if len(drafts) == 1 and not _is_proposed(drafts[0], view, listed):
                head = short_branch(drafts[0].ref)
                views = world.inventory.views_of(view.url)
                members = _groups(views, world.inventory)[0].get(head, [])
                named = set(texts)
                if others := [m for m in members if named.isdisjoint(_spellings(m, called, view))]:
                    message = f"It shares a draft without a pull request with {some(others, _MOST_NAMES)}"
                    together = f"Approve them together: `reconciler approve {' '.join(members)}`."
                    raise RefusedError(f"{text}: {message}", hint=together)
                mirror = world.mirrors.open(view.remote)
                forge = world.forges.of(mirror)
                title = f"Propose {some(members, _MOST_NAMES) if members else text}"
                proposal = PullRequest(head, view.branch, title, "Proposed by hand.\n")
                tools = find_tools(world.inventory.policy, mirror.remote, view.url)
                pull = forge.ensure(proposal)
                proposed = ListedPull(view, pull, forge, mirror, members=tuple(members), tools=tools)
                return [proposed._replace(repository=called)]
    return find_pulls(listed, text)


def _spellings(member: str, called: str, view: RepositoryView) -> tuple[str, ...]:
    """Return a package as it is listed, and by its path from the root of the repository."""
    name = f"{called}/"
    if not view.directory or not member.startswith(name):
        return (member,)
    return member, f"{name}{view.directory}/{member.removeprefix(name)}"


def _is_proposed(draft: Draft, view: RepositoryView, listed: Sequence[ListedPull]) -> bool:
    """Whether a draft has a pull request that is open, or that was merged or closed as the draft is now."""
    named = [
        f.pull
        for f in listed
        if f.view.url == view.url and short_branch(draft.ref) in head_branches(f.pull.head)
    ]
    newest = max(named, key=by_weight, default=None)
    if newest is None:
        return False
    if newest.state is PullState.MERGED:  # other forges than the local one leave its branch to the next run
        return newest.head_oid == draft.tip.oid
    return newest.state is PullState.OPEN or newest.head_oid in ("", draft.tip.oid)


def _some(named: list[ListedPull], text: str, candidates: Iterable[str]) -> list[ListedPull]:
    if named:
        return named
    raise UsageError(f"There is no pull request {text}", hint=suggest(text, candidates, otherwise=_LIST))


def _matches(listed: ListedPull, names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether one of its names matches a pattern, which may leave out the namespace."""
    spelled = {text for name in names for text in (name, name.removeprefix(f"{listed.view.key.namespace}/"))}
    return any(fnmatchcase(text, pattern) for text in spelled for pattern in patterns)


def _names(listed: ListedPull) -> Iterator[str]:
    yield listed.package
    yield from listed.members
    about = parse_head(listed.pull.head)
    if about and listed.is_registered:
        yield f"{listed.called}/{about.path}"


def _view_of(pull: PullRequest, url: str, inventory: Inventory) -> RepositoryView | None:
    """Return the view that every command names the pull request by: that of its package or its group.

    One onto another branch than that of the Repository is about what was left there.
    """
    about, ref = parse_head(pull.head), f"{HEADS}{pull.head}"
    is_of_control = url == inventory.control.url and isinstance(about, LockHead) and about.path in _OF_CONTROL
    if about is not None and not is_of_control:
        view, there = inventory.view_of(PackageKey(url, about.path)), inventory.views_of(url)
        former = (v for v in there if v.former and v.branch == pull.base and about.path in v.former.packages)
        return next(former, view) if view is not None and view.branch != pull.base else view
    return next((view for view in inventory.views_of(url) if is_group_in(ref, *view.key)), None)


def _why_left(
    pull: PullRequest,
    view: RepositoryView,
    records: Mapping[tuple[str, str], Sequence[PackageVariantRecord]],
    inventory: Inventory,
) -> str:
    """Return why only a person who names the pull request decides about it, "" for no reason.

    Its package is of a Repository that is not understood, or that is gone from inside the directory of
    another one, which has gates of its own. A group keeps its branch when its Repository is renamed.
    """
    if view.former is not None:
        return "" if view.former.is_understood else view.former.message
    members = [record for about in _about(pull) for record in records.get((view.url, about), ())]
    is_own = parse_head(pull.head) is not None or is_group_in(f"{HEADS}{pull.head}", *view.key)
    if not members and not is_own:
        return _NOT_REGISTERED
    gone = (
        ObjectName(record.namespace, record.repository)
        for record in members
        if len(record.downstream.directory) > len(view.directory)
    )
    names = (f"{name.namespace}/{name.name}" for name in gone if name not in inventory.repositories)
    return next((f"Repository {name} is not registered any more" for name in names), "")


def _whole_view(url: str, mirror: Mirror, inventory: Inventory) -> RepositoryView:
    """Return a view for pull requests that no Repository holds: gates count, and the address names it."""
    name = ObjectName("", "control" if url == inventory.control.url else url)
    metadata, spec = ObjectMeta(name=name.name), RepositorySpec(deployment=True)
    manifest = Repository(api_version=REPOSITORY, kind="Repository", metadata=metadata, spec=spec)
    branch = inventory.control.branch if url == inventory.control.url else mirror.head_branch
    return RepositoryView(name, url, mirror.remote, branch, "", manifest, Source(Location(LOCKS_DIRECTORY)))


def below(view: RepositoryView, path: str) -> str:
    """Return a path of a repository as people write it after the name of the Repository."""
    return path.removeprefix(f"{view.directory}/") if view.directory else path


def shared_error(
    listed: ListedPull, texts: Sequence[str], verb: str = "Approve", command: str = "approve"
) -> RefusedError | None:
    """Return why nothing is done with a group by the names of some of its packages, None if it may be.

    `texts` are the arguments that found it.
    """
    aliases = (listed.name, str(listed.pull.number), listed.package)
    spelled = {member: _spellings(member, listed.called, listed.view) for member in listed.members}
    others = [member for member, names in spelled.items() if not _matches(listed, names, texts)]
    if not others or _matches(listed, aliases, texts):
        return None
    message = f"It shares pull request {listed.name} with {some(others, _MOST_NAMES)}"
    return RefusedError(message, hint=f"{verb} them together: `reconciler {command} {listed.name}`.")


def local_forge(listed: ListedPull, verb: str) -> LocalForge:
    """Return the forge of a pull request that Git alone keeps.

    Raises:
        UsageError: Its forge has pages and a command line of its own.
    """
    if isinstance(listed.forge, LocalForge):
        return listed.forge
    raise UsageError(f"{verb} pull request {listed.name} {listed.place}", hint=ON_EVERY_FORGE)


def hosted_text(inventory: Inventory) -> str:
    """Return where the pull requests of repositories on forges are, "" where Git keeps all."""
    views = sorted(inventory.views.values(), key=lambda view: view.key)
    with_tools = [(view, find_tools(inventory.policy, view.remote, view.url)) for view in views]
    hosted = [(view.key.name, tools) for view, tools in with_tools if tools is not None]
    if not hosted:
        return ""
    others = f"; those of {plural(len(hosted) - 1, 'other repository')} are on theirs" if hosted[1:] else ""
    return f"The pull requests of {hosted[0][0]} are {hosted[0][1].way()}{others}"


def unheld_error(listed: ListedPull) -> RefusedError | None:
    """Return why a pull request without a Repository is not merged; None for others."""
    if listed.is_registered:
        return None
    about = parse_head(listed.pull.head)
    message = f"No registered Repository is at {about.path if about else listed.pull.head}"
    way = listed.place or f"with `reconciler pr close {listed.name}`"
    hint = f"Register its Repository again and run `reconciler apply`, or close it {way}."
    return RefusedError(message, hint=hint)


def is_merged(listed: ListedPull) -> bool:
    """Whether nothing is left to be done with a pull request because it was merged."""
    return listed.pull.state is PullState.MERGED


def closed_error(listed: ListedPull) -> RefusedError | None:
    """Return why a closed pull request is not merged, and how it is proposed again; None for others."""
    if listed.pull.state is not PullState.CLOSED:
        return None
    message = f"Pull request {listed.name} was closed"
    if listed.tools is not None and not listed.tools.reopens:
        hint = "Its forge does not open it again. Annotate its variant with another `reconciler.dev/retry`."
        return RefusedError(message, hint=hint)
    # A pull request can only be opened again while its branch exists.
    refs = listed.mirror.refs()
    if any(f"{HEADS}{name}" in refs for name in head_branches(listed.pull.head)):
        way = listed.place or f"with `reconciler pr reopen {listed.name}`"
        hint = f"Open it again {way}, then approve it."
        return RefusedError(message, hint=hint)
    return RefusedError(message, hint=missing_branch_hint(listed.pull.head))


def find_objection(listed: ListedPull, plan: Plan) -> Objection | None:
    """Return why a pull request is approved by its name alone, None if it is approved with all others."""
    names: tuple[str | int, ...] = (*head_branches(listed.pull.head), listed.pull.number)
    about = (plan.objections.get((listed.view.url, name)) for name in names)
    return min(filter(None, about), default=None)


def objection_error(listed: ListedPull, objection: Objection) -> RefusedError:
    """Return the refusal of a pull request without its name."""
    _, what, who, way, step = objection
    hint = f"{who}. Approve it by name, {listed.name}, or {way}." if who else step
    return RefusedError(f"Pull request {listed.name} {what}", hint=hint)


def approvable(listed: ListedPull, plan: Plan) -> Approvable:
    """Return what keeps a pull request from being approved; gates hold where patterns leave it, too."""
    approvable = plan.approvable.get((listed.view.url, listed.pull.head), Approvable())
    return approvable.strict if listed.why_left else approvable


def outdated_error(error: OutdatedError, listed: ListedPull, plan: Callable[[], PlannedRun]) -> RefusedError:
    """Return the refusal with the step that helps: `apply` if it renews the branch, else git.

    `plan` reads everything anew: what this command merged before may be what changed the base.
    """
    planned = plan()
    if planned.inputs.inventory.control.standing.is_outdated:
        return RefusedError(str(error), hint="Run `git pull` and `reconciler apply`, then approve again.")
    changes = [change for change in planned.plan.all_changes if change.package.url == listed.view.url]
    write = next((w for change in changes for w in change.writes if _renews(w, listed)), None)
    if write is not None:
        removes = isinstance(write, WriteRemoval)
        then = "proposes the deletion anew, with that change in it" if removes else "brings it into the draft"
        return RefusedError(str(error), hint=f"Run `reconciler apply`: it {then}. Then approve again.")
    if not {*head_branches(listed.pull.head), listed.pull.number}.isdisjoint(
        chain.from_iterable(map(ended_by, changes))
    ):
        return RefusedError(str(error), hint=APPLY_ENDS_IT)
    change = next((change for change in changes if change.package.path == error.path), None)
    reason = ": ".join(filter(None, (change.reason, str(change.message)))) if change else ""
    why = f" `reconciler apply` leaves the branch as it is: {reason}." if change else ""
    return RefusedError(str(error), hint=f"{error.hint}{why}")


def _renews(write: object, listed: ListedPull) -> bool:
    """Whether a planned write makes the branch start at the base's head, or merges that."""
    if not isinstance(write, WriteDraft | WriteRemoval):
        return False
    base = listed.mirror.refs().get(f"{HEADS}{listed.pull.base}")
    renewed = {write.onto, write.merges} if isinstance(write, WriteDraft) else {write.onto}
    return short_branch(write.ref) in head_branches(listed.pull.head) and base in renewed
