"""Upstream selection (D9): from the words of a manifest to one package at one verified commit."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import PLACEHOLDER, Downstream, Upstream
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import some
from reconciler.base.values import grouped
from reconciler.dependencies.versions import Grammar, VersionError, parse_constraint, rank, whole_version
from reconciler.expand.owners import find_in_place, missing_package, untagged_chart
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Inventory, PackageRevision, PackageState, RepositoryView, TreeAt
from reconciler.names.ids import ObjectName, Oid, PackageKey, normalise_url
from reconciler.names.objects import Commit
from reconciler.names.problems import Problem
from reconciler.names.refs import is_within, short_branch, short_tag
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Downstreams, Pin

NOT_FOUND = "could not find upstream package revision"
"""Porch's prefix of messages about missing upstreams."""

_ZERO = "upstream cannot be published with revision number 0"
_MOST_REVISIONS = 5


def find_upstream(variant: DesiredVariant, inventory: Inventory) -> Pin | Problem:
    """Return the pin of a variant's upstream, or what is wrong with it, at the field to blame.

    Source: porch packagevariant_controller.go, getUpstreamPR.
    Differs: Porch knows `workspaceName` alone; without any selector it takes the branch's head,
    which it then refuses to clone, and we take the latest published revision.
    """
    upstream = variant.spec.upstream or Upstream()
    if upstream.revision == 0:
        at = ("spec", "upstream", "revision")
        return variant.problem_at(Reason.UPSTREAM_NOT_FOUND, _ZERO, "Revisions count from 1.", *at)
    view = find_repository(variant, upstream.repo or "", inventory, field="upstream")
    if isinstance(view, Problem):
        return view
    path = view.full_path(upstream.package or "")
    if path in view.broken:
        location = variant.source.at("spec", "upstream", "package")
        return replace(view.broken[path], location=location).owned_by(variant.owner)
    lookup = _Lookup(variant, view, view.upstream_at(path) or PackageState(path), inventory)
    selectors = (
        (upstream.revision, lookup.by_revision),
        (upstream.workspace_name, lookup.by_workspace),
        (upstream.tag, lookup.by_tag),
        (upstream.version, lookup.by_version),
        (upstream.branch, lookup.by_branch),
    )
    pins = (find(str(value)) for value, find in selectors if value is not None)
    pin = next(pins, None) or lookup.latest()
    return pin if isinstance(pin, Problem) else check_pin(pin, variant, inventory)


def find_repository(
    variant: DesiredVariant, name: str, inventory: Inventory, *, field: str
) -> RepositoryView | Problem:
    """Return the registered and readable repository of that name in the variant's namespace."""
    key, at = ObjectName(variant.key.namespace, name), ("spec", field, "repo")
    view = inventory.repositories.get(key)
    if view is None:
        names = [k.name for k in inventory.repositories if k.namespace == variant.key.namespace]
        start = f"{NOT_FOUND}: repository" if field == "upstream" else "Repository"
        message = f"{start} {key} is not registered"
        register = f"Register it as a Repository object. {_near(name, names)}"
        hint = inventory.unregistered_hint(key, register)
        return variant.problem_at(Reason.REPOSITORY_NOT_FOUND, message, hint, *at)
    if view.problem is None:
        return view
    reason = Reason(view.problem.reason)
    problem = variant.problem_at(reason, view.unread_message, view.problem.hint, *at)
    return replace(problem, repository=view.key)


def find_wrong_repositories(variants: Iterable[DesiredVariant], inventory: Inventory) -> Iterator[Problem]:
    """Yield what manifests alone tell of Repositories that variants name: not registered, or not usable.

    One that is only out of reach is none: nothing was read.
    """
    for variant in variants:
        upstream, downstream = variant.spec.upstream, variant.spec.downstream
        for field, name in (
            ("upstream", upstream.repo if upstream else ""),
            ("downstream", downstream.repo if downstream else ""),
        ):
            view = find_repository(variant, name or "", inventory, field=field)
            if isinstance(view, Problem) and view.reason != Reason.REPOSITORY_UNAVAILABLE:
                there = inventory.repositories.get(view.repository) if view.repository else None
                yield there.problem if there is not None and there.problem is not None else view


NOT_VERIFIED_HINT = (
    "Have its author sign a tag of it, add the author's key to spec.verify of the configuration, or take a "
    "revision whose tag is signed."
)


def find_fault(url: str, ref: str, commit: Oid, inventory: Inventory) -> str:
    """Return why a revision is not verified, "" if it is, or if no rule is about its repository."""
    trust = inventory.trust.get(url)
    if trust is None or (ref, commit) in trust.tags:
        return ""
    return trust.faults.get((ref, commit)) or f"{ref} is no signed tag of commit {commit[:12]}"


def check_pin(pin: Pin, variant: DesiredVariant, inventory: Inventory) -> Pin | Problem:
    """Return a pin that is verified, or the problem of the variant that would take it."""
    fault = find_fault(pin.package.url, pin.ref, pin.commit.oid, inventory)
    if not fault:
        return pin
    message = f"Upstream {pin.ref} of repository {pin.repository} is not verified: {fault}"
    return variant.problem_at(Reason.UPSTREAM_NOT_VERIFIED, message, NOT_VERIFIED_HINT, "spec", "upstream")


def check_forward(pin: Pin, variant: DesiredVariant, inventory: Inventory) -> Pin | Problem:
    """Return the pin that a selector finds, or its problem if a package would go back to it.

    An old signature stays good, so it does not tell whether a holder of the key moved or deleted the tag. To
    go back on purpose takes a change in Git.
    """
    trust, lock = inventory.trust.get(pin.package.url), inventory.locks.get(variant.key)
    if trust is None or lock is None or lock.commit == pin.commit.oid:
        return pin
    if pin.commit.oid not in trust.older.get(Oid(lock.commit), ()):
        return pin
    message = (
        f"Upstream {pin.ref} of repository {pin.repository} is not verified: {lock.ref}, which was taken at "
        f"commit {lock.commit[:12]}, is newer, and no signature tells who took it back"
    )
    hint = f"To go back, name the revision in the manifest, or run `reconciler lock --upgrade {variant.key}`."
    return variant.problem_at(Reason.UPSTREAM_NOT_VERIFIED, message, hint, "spec", "upstream")


Place = tuple[str, str, str]
"""A package on one branch: the URL of its repository, its path and the branch."""


def find_circles(downstreams: Downstreams, inventory: Inventory) -> dict[ObjectName, Problem]:
    """Return the problems of variants with packages that are made, at last, from themselves. Order-free.

    Each run would make a new revision of all of them, for ever. A package on another branch is another one:
    to follow that is no circle.
    """
    made_from: list[tuple[DesiredVariant, Place, Place]] = []
    above: dict[Place, set[Place]] = {}
    names: dict[Place, str] = {}
    for variant in (variant for contenders in downstreams.values() for variant in contenders):
        downstream = variant.spec.downstream or Downstream()
        below = _place(variant, downstream, inventory)
        up = _place(variant, variant.spec.upstream or Upstream(), inventory)
        if below is not None and up is not None:
            made_from.append((variant, below, up))
            above.setdefault(below, set()).add(up)
            names[below] = f"{downstream.repo}/{downstream.package}"
    problems: dict[ObjectName, Problem] = {}
    for variant, below, up in made_from:
        # A package at the root of a repository has every other one in it.
        is_around = up == (below[0], "", below[2])
        if is_around or (up in above and (way := _way(up, below, above))):
            made = "its own repository" if is_around else ", which is made from ".join(names[p] for p in way)
            message = f"Package {names[below]} is made from {made}"
            hint = "Give one of these packages an upstream that is made from none of them."
            at = ("spec", "upstream", "package")
            problems[variant.key] = variant.problem_at(Reason.UPSTREAM_CIRCLE, message, hint, *at)
    return problems


def _place(variant: DesiredVariant, side: Upstream | Downstream, inventory: Inventory) -> Place | None:
    view = inventory.repositories.get(ObjectName(variant.key.namespace, side.repo or ""))
    if view is None:
        return None
    branch = side.branch if isinstance(side, Upstream) else None
    return view.url, view.full_path(side.package or ""), branch or view.branch


def _way(start: Place, end: Place, above: Mapping[Place, set[Place]]) -> tuple[Place, ...]:
    """Return the shortest way from a package up to another one, () if there is none."""
    ways: dict[Place, tuple[Place, ...]] = {start: (start,)}
    queue = deque(ways)
    while queue:
        place = queue.popleft()
        if place == end:
            return ways[place]
        for up in sorted(above.get(place, set()) - ways.keys()):
            ways[up] = (*ways[place], up)
            queue.append(up)
    return ()


def pin_at(
    view: RepositoryView, path: str, commit: Commit, tree: Oid, *, ref: str, revision: int = -1
) -> Pin:
    """Return the pin of one package of a view at one commit."""
    git = view.manifest.spec.git
    repo = git.repo if git else view.remote
    return Pin(
        package=PackageKey(view.url, path),
        remote=view.remote,
        ref=ref,
        revision=revision,
        commit=commit,
        tree=tree,
        repo=repo,
        repository=view.key.name,
        name=package_name(view, path),
        is_plain=view.manifest.has_plain_packages,
    )


class _Lookup(Struct, frozen=True):
    """One package in which to look; each way to look returns a pin or a problem."""

    variant: DesiredVariant
    view: RepositoryView
    package: PackageState
    inventory: Inventory

    def by_revision(self, number: str) -> Pin | Problem:
        # Porch numbers the package revision of the branch -1.
        if int(number) == PLACEHOLDER:
            return self.by_branch(self.view.branch)
        for revision in self.package.published:
            if revision.revision == int(number):
                workspace = (self.variant.spec.upstream or Upstream()).workspace_name
                if workspace is None or workspace == revision.workspace:
                    return self._published(revision)
                what = f"revision {number} under workspace {workspace}: it is {revision.workspace}"
                return self.missing("workspaceName", what, "Give one of the two, or both of one revision.")
        return self.missing("revision", f"no revision {number}", self._revisions(int(number)))

    def by_workspace(self, workspace: str) -> Pin | Problem:
        for revision in self.package.published:
            if revision.workspace == workspace:
                return self._published(revision)
        for draft in self.package.drafts:
            if draft.workspace == workspace:
                ref = short_branch(draft.ref)
                return pin_at(self.view, self.package.path, draft.tip, draft.tree, ref=ref, revision=0)
        # That revision has the name of the branch as its workspace in Porch.
        if workspace == self.view.branch:
            return self.by_branch(workspace)
        names = [*(r.workspace for r in self.package.published), *(d.workspace for d in self.package.drafts)]
        return self.missing("workspaceName", f"no workspace {workspace}", _near(workspace, names))

    def by_tag(self, tag: str) -> Pin | Problem:
        full_tag = f"{self.package.path}/{tag}".lstrip("/")
        revisions = (r for r in self.package.published if short_tag(r.ref) == full_tag)
        tagged = next(map(self._published, revisions), None)
        commit = self.view.tags.get(tag)
        tree = commit and self.inventory.trees.get(TreeAt(self.view.url, commit.oid, self.package.path))
        whole = pin_at(self.view, self.package.path, commit, tree, ref=tag) if commit and tree else None
        if tagged is not None and whole is not None and tagged.commit.oid != whole.commit.oid:
            what = f"two tags {tag}: {tagged.ref} and {whole.ref} name different commits"
            return self.missing("tag", what, f"Write {tagged.ref} out, or move one of the two.")
        if (pin := tagged or whole) is not None:
            return pin
        return self.missing("tag", f"no tag {tag}", _near(tag, [*self._own_tags(), *self._plain_tags()]))

    def by_version(self, text: str) -> Pin | Problem:
        try:
            constraint = parse_constraint(text, Grammar.MASTERMINDS)
        except VersionError as error:
            return self.problem("version", Reason.VALIDATION_ERROR, str(error), "Write a range such as ^1.2.")
        tags = sorted({*self._own_tags(), *self._plain_tags()})
        versions = [v for v in map(whole_version, tags) if v is not None]
        fitting = rank(v for v in versions if constraint.allows(v))
        if not fitting:
            listed = ", ".join(v.text for v in versions) or "none"
            latest, has_own = self.package.latest, any(map(whole_version, self._own_tags()))
            step = " v{} is a revision: write `revision`, or follow a `branch`."
            step = "" if has_own or latest is None else step.format(latest.revision)
            hint = f"Versions: {listed}.{step}"
            return self.missing("version", f"no version {text}", hint)
        return self.by_tag(fitting[0].text)

    def by_branch(self, branch: str) -> Pin | Problem:
        commit = self.view.head if branch == self.view.branch else self.view.branches.get(branch)
        tree = None
        if commit is not None:
            at = TreeAt(self.view.url, commit.oid, self.package.path)
            tree = self.package.main_tree if branch == self.view.branch else self.inventory.trees.get(at)
        if commit is None or tree is None:
            hint = _near(branch, list(self.view.branches))
            return self.missing("branch", f"nothing on branch {branch}", hint)
        return pin_at(self.view, self.package.path, commit, tree, ref=branch)

    def latest(self) -> Pin | Problem:
        latest = self.package.latest
        if latest is None:
            hint = "Publish a revision, or name a workspaceName, tag or branch."
            return self.missing("package", "no published revision", self._tagged() or hint)
        return self._published(latest)

    def missing(self, field: str, what: str, hint: str) -> Problem:
        """Say what is not there; the words do not tell whether the package is, as this plan may make it."""
        name = package_name(self.view, self.package.path)
        message = f"{NOT_FOUND}: package {name} in repository {self.view.key.name} has {what}"
        if self.view.upstream_at(self.package.path) is None:
            existing = [package_name(self.view, path) for path in self.view.packages]
            field, hint = "package", missing_package(name, existing) if name else _near(name, existing)
            if there := find_in_place(name, self.view, self.inventory.repositories.values()):
                message, hint = f"{NOT_FOUND}: in repository {self.view.key.name} {there[0]}", there[1]
        return self.problem(field, Reason.UPSTREAM_NOT_FOUND, message, hint)

    def problem(self, field: str, reason: Reason, message: str, hint: str) -> Problem:
        return self.variant.problem_at(reason, message, hint, "spec", "upstream", field, cause=message)

    def _published(self, revision: PackageRevision) -> Pin:
        ref, number = short_tag(revision.ref), revision.revision
        path, commit = self.package.path, revision.commit
        return pin_at(self.view, path, commit, revision.tree, ref=ref, revision=number)

    def _own_tags(self) -> Iterator[str]:
        return (short_tag(r.ref).removeprefix(f"{self.package.path}/") for r in self.package.published)

    def _plain_tags(self) -> list[str]:
        return sorted(tag for tag in self.view.tags if "/" not in tag)

    def _revisions(self, revision: int) -> str:
        numbers = sorted(r.revision for r in self.package.published if r.revision > 0)
        if not numbers:
            return self._tagged() or "None is published yet."
        newest = ", ".join(f"v{n}" for n in numbers[-_MOST_REVISIONS:])
        step = untagged_chart(self.package, revision)
        return f"Ask for one that is published: {newest}; the latest is v{numbers[-1]}.{step}"

    def _tagged(self) -> str:
        """Return the hint for a package with tags that are no numbers of revisions, "" if it has none."""
        tags = rank(version for tag in self._own_tags() if (version := whole_version(tag)) is not None)
        names = [version.text for version in tags][:_MOST_REVISIONS]
        return f"Name a tag or a version: its newest tags are {', '.join(names)}." if names else ""


def _near(name: str, names: list[str]) -> str:
    """Return a hint that lists what exists: names like this one first, else some of all."""
    existing = sorted(set(names))
    listed = f"Known: {some(existing, _MOST_REVISIONS)}." if existing else "There is none."
    return suggest(name, existing, otherwise=listed, most=_MOST_REVISIONS)


_UNNUMBERED = -1
"""Revision of a base after its tag moved: it keeps its former name, and its commit."""

Sources = Mapping[str, tuple[RepositoryView, ...]]
"""Readable views by every URL that an upstreamLock may know them under, the most specific directory first."""


def index_sources(inventory: Inventory) -> Sources:
    """Return where to look for an upstreamLock's repository: made once, asked for every package."""
    views = sorted(inventory.repositories.values(), key=lambda v: (-len(v.directory), v.key))
    named = ((name, view) for view in views if view.is_available for name in source_names(view))
    return {name: tuple(group) for name, group in grouped(named).items()}


def find_base(
    header: KptfileHeader | None,
    pin: Pin,
    record: PackageVariantRecord | None,
    inventory: Inventory,
    sources: Sources,
) -> tuple[Pin | None, str]:
    """Return the pin that a Kptfile's upstreamLock names, or None and why it cannot be found.

    Looked up by commit, never by number; a directory is also read below the one of its
    Repository, as Porch writes it. A package without a lock has no base and nothing is wrong.
    """
    lock = header.upstream_lock if header else None
    if lock is None or not lock.commit:
        return None, ""
    commit, directory = Oid(lock.commit), lock.directory.strip("/")
    url = normalise_url(lock.repo)
    if (commit, directory) == (pin.commit.oid, pin.package.path) and url in pin.urls:
        return pin, ""
    views = sources.get(url, ())
    places = [(view, path) for view in views for path in (directory, view.full_path(directory))]
    # kpt writes a directory from the root of the repository, Porch one below spec.git.directory.
    # A view of another directory has the tree too, but not the package: its revisions, and its name.
    for view, path in sorted(places, key=lambda place: not is_within(place[1], place[0].directory)):
        if base := find_commit(view, path, commit, lock.ref, inventory):
            return base, ""
    if record is not None and record.upstream_commit == commit and record.upstream_tree:
        recorded = replace(pin, ref=lock.ref, revision=-1, commit=Commit(commit, 0))
        return replace(recorded, tree=Oid(record.upstream_tree)), ""
    return None, f"commit {commit} of {lock.repo}, which upstreamLock names, cannot be found"


def find_equal(
    header: KptfileHeader | None, pin: Pin, record: PackageVariantRecord | None, inventory: Inventory
) -> Pin | None:
    """Return the revision of the resources on main, None if its Kptfile names that one.

    A rollout proposes nothing where a revision changes nothing, so the Kptfile may name an earlier one (D42).
    """
    lock = header.upstream_lock if header else None
    if record is None or lock is None or not record.equal_commit:
        return None
    if lock.commit != record.equal_commit or lock.commit == pin.commit.oid:
        return None
    commit = Oid(record.upstream_commit)
    if (commit, record.upstream_tree) == (pin.commit.oid, pin.tree):
        return pin
    view, package = recorded_upstream(record, inventory)
    return find_commit(view, package.path, commit, "", inventory) if view and view.is_available else None


def recorded_upstream(
    record: PackageVariantRecord, inventory: Inventory
) -> tuple[RepositoryView | None, PackageKey]:
    """Return the repository and the package that a variant was made from; no repository if it is gone."""
    upstream = record.spec.get("upstream") or {}
    view = inventory.repositories.get(ObjectName(record.namespace, str(upstream.get("repo") or "")))
    path = str(upstream.get("package") or "")
    return view, PackageKey(view.url, view.full_path(path)) if view else PackageKey("", path)


def source_names(view: RepositoryView) -> set[str]:
    """Return the normalised URLs under which an upstreamLock may know a repository."""
    git = view.manifest.spec.git
    return {view.url, normalise_url(view.remote), normalise_url(git.repo if git else "")}


def find_commit(view: RepositoryView, path: str, commit: Oid, name: str, inventory: Inventory) -> Pin | None:
    """Return the pin of a package at a commit that was taken under `name`, None if it cannot be found."""
    package = view.upstream_at(path) or PackageState(path)
    # Several refs may name the commit: the one in upstreamLock comes first.
    for ref, revision, at, tree in sorted(_states(view, package), key=lambda s: s[0] != name):
        if at.oid == commit:
            # kpt writes the ref that was asked for: the same commit may have a number under another tag.
            number = revision if ref == name or not name else _UNNUMBERED
            return pin_at(view, path, at, tree, ref=name or ref, revision=number)
    tree_there = inventory.trees.get(TreeAt(view.url, commit, path))
    at = Commit(commit, inventory.times.get(commit, 0))
    return pin_at(view, path, at, tree_there, ref=name) if tree_there else None


def _states(view: RepositoryView, package: PackageState) -> Iterator[tuple[str, int, Commit, Oid]]:
    for revision in package.published:
        yield short_tag(revision.ref), revision.revision, revision.commit, revision.tree
    for draft in package.drafts:
        yield short_branch(draft.ref), 0, draft.tip, draft.tree
    for state in package.unpublished:
        yield view.branch, -1, state.commit, state.tree
    if view.head and package.main_tree:
        yield view.branch, -1, view.head, package.main_tree


def find_candidates(pin: Pin, inventory: Inventory) -> tuple[Pin, ...]:
    """Return the revisions that a package without upstreamLock may have been made from, the newest first.

    Those are the newest published revisions of the pinned package, as many as `limits.baseCandidates`, and
    the pin.
    """
    path = pin.package.path
    views = inventory.views_of(pin.package.url)
    view, package = next(((view, there) for view in views if (there := view.upstream_at(path))), (None, None))
    if view is None or package is None:
        return (pin,)
    published = (
        revision
        for revision in package.published
        if not find_fault(view.url, short_tag(revision.ref), revision.commit.oid, inventory)
    )
    newest = sorted(published, key=lambda r: (-r.revision, r.ref))
    newest = newest[: inventory.policy.limits.base_candidates]
    pins = [pin_at(view, path, r.commit, r.tree, ref=short_tag(r.ref), revision=r.revision) for r in newest]
    contents = {pin.tree: pin} if all(pin.tree != candidate.tree for candidate in pins) else {}
    for candidate in pins:
        contents.setdefault(candidate.tree, pin if candidate.tree == pin.tree else candidate)
    return tuple(contents.values())
