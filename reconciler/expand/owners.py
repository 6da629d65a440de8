"""Expand one manifest: validate, give defaults, unroll, render and name its variants, all or nothing."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.api.meta import LabelSelector, ObjectMeta, compile_selector
from reconciler.api.porch import (
    PLACEHOLDER,
    PLAIN_PACKAGES,
    PackageVariant,
    PackageVariantSet,
    PackageVariantSpec,
    Pipeline,
    Upstream,
)
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural, verb
from reconciler.cel import EXTENSIONS as KNOWN_EXTENSIONS
from reconciler.cel import Environment
from reconciler.expand.checks import (
    check_context,
    check_downstream,
    check_labels,
    check_name,
    check_set,
    check_variant,
    validate_set,
    validate_variant,
)
from reconciler.expand.findings import ExpansionError, Finding
from reconciler.expand.targets import Context, TargetScope, named_clusters, unroll
from reconciler.expand.template import REGISTER, RenderedSpec, Renderer, missing_repository
from reconciler.expand.variants import (
    CEL_EXTENSIONS,
    MUTATORS,
    PAUSED,
    DesiredVariant,
    OwnerExpansion,
    VariantCandidate,
    set_key,
    stable_uid,
    variant_identifier,
    variant_key,
    variant_name,
)
from reconciler.inventory.inventory import (
    Draft,
    FieldPath,
    Inventory,
    PackageRevision,
    PackageState,
    RepositoryView,
    Sourced,
    TreeAt,
    declared_upstreams,
)
from reconciler.names.ids import Lifecycle, NamedObject, ObjectName, Oid, PackageKey
from reconciler.names.objects import Commit
from reconciler.names.refs import TAGS, is_within, object_name, parent_directories, relative_package
from reconciler.policy import Limits

_DOWNSTREAM: FieldPath = ("spec", "downstream", "repo")
DEFAULTS: Mapping[str, str] = {"adoption_policy": "adoptNone", "deletion_policy": "delete"}


def expand_variant(
    variant: Sourced[PackageVariant], repositories: Mapping[str, RepositoryView], inventory: Inventory
) -> OwnerExpansion:
    """Return the candidate of an authored PackageVariant, or all findings."""
    owner, spec, source = variant_key(variant.key), variant.manifest.spec, variant.source
    findings = check_declared_variant(variant)
    if findings:
        return OwnerExpansion(owner, source, findings=findings, valid=False)
    downstream = spec.downstream
    repo, package = (downstream.repo or "", downstream.package or "") if downstream else ("", "")
    view = repositories.get(repo)
    if view is None:
        # The manifest stays valid: the Repository may be registered later.
        hint = "Register it as a Repository object in the same namespace."
        hint = inventory.unregistered_hint(ObjectName(variant.key.namespace, repo), hint)
        return OwnerExpansion(owner, source, findings=(missing_repository(repo, _DOWNSTREAM, hint),))
    instance = inventory.policy.instance
    if invalid := tuple(check_downstream(view, package, instance)):
        return OwnerExpansion(owner, source, findings=invalid, valid=False)
    metadata = variant.manifest.metadata
    desired = DesiredVariant(
        key=variant.key,
        uid=metadata.uid or stable_uid(instance, *variant.key),
        spec=with_defaults(spec, repositories.get((spec.upstream and spec.upstream.repo) or "")),
        source=source if spec.mutators is None else source.moved(*MUTATORS),
        paused=is_paused(metadata) or is_paused(view.manifest.metadata),
        times=(source.time,),
        annotations=metadata.annotations or {},
    )
    home = PackageKey(view.url, view.full_path(package))
    candidate = VariantCandidate(desired, owner, source, ("spec", "downstream"), home)
    return OwnerExpansion(owner, source, (candidate,))


def check_declared_variant(variant: Sourced[PackageVariant]) -> tuple[Finding, ...]:
    """Return what is wrong with a PackageVariant whatever the fleet holds."""
    spec = variant.manifest.spec
    return (*validate_variant(spec), *check_variant(variant.key.name, spec))


def with_defaults(
    spec: PackageVariantSpec, upstream_view: RepositoryView | None = None
) -> PackageVariantSpec:
    """Fill in Porch's defaults and normalize aliases.

    `spec.mutators` moves to `spec.pipeline.mutators` (D18), and the upstream is a `normal_upstream`.
    """
    changes: dict[str, object] = {name: value for name, value in DEFAULTS.items() if not getattr(spec, name)}
    if spec.mutators is not None:
        validators = spec.pipeline.validators if spec.pipeline else None
        changes["pipeline"] = Pipeline(mutators=spec.mutators, validators=validators)
        changes["mutators"] = None
    if spec.upstream is not None:
        upstream = normal_upstream(spec.upstream, upstream_view)
        changes |= {"upstream": upstream} if upstream != spec.upstream else {}
    return spec.model_copy(update=changes) if changes else spec


def normal_upstream(upstream: Upstream, view: RepositoryView | None) -> Upstream:
    """Return an upstream without its empty selectors, which Porch ignores.

    What Porch calls the revision of a Repository's branch, -1 or the workspace with its name, is that branch.
    """
    names = ("workspace_name", "tag", "version", "branch")
    empty: dict[str, str | None] = {name: None for name in names if getattr(upstream, name) == ""}
    is_branch = upstream.revision == PLACEHOLDER
    if view is not None and upstream.workspace_name == view.branch and not upstream.revision:
        state = view.upstream_at(view.full_path(upstream.package or ""))
        made: tuple[PackageRevision | Draft, ...] = (*state.published, *state.drafts) if state else ()
        is_branch = not any(revision.workspace == view.branch for revision in made)
    if view is not None and is_branch:
        empty |= {"revision": None, "workspace_name": None, "branch": view.branch}
    return upstream.model_copy(update=empty) if empty else upstream


def is_paused(metadata: ObjectMeta) -> bool:
    """Tell whether an object is paused by annotation."""
    return (metadata.annotations or {}).get(PAUSED) == "true"


INHERITED = (
    "reconciler.dev/retry",
    "reconciler.dev/on-conflict",
    "reconciler.dev/on-conflict-fields",
    "reconciler.dev/follow-moved-tag",
)
"""Annotations of a set that apply to all of its variants, which have no manifest to annotate."""
ORDERS = (
    "reconciler.dev/rollout-paused",
    "reconciler.dev/rollout-go",
    "reconciler.dev/rollout-start",
    "reconciler.dev/rollout-skip",
    "reconciler.dev/rollout-rollback",
)
"""Annotations of a set that order something about its rollout."""

_MAX_TARGETS = 10
"""Invalid targets of one set that are listed before the rest is counted."""


def expand_set(
    pvs: Sourced[PackageVariantSet],
    repositories: Mapping[str, RepositoryView],
    inventory: Inventory,
    *,
    trace: bool = False,
) -> OwnerExpansion:
    """Return the candidates of a set, or its findings and no candidate.

    Source: porch packagevariantset_controller.go, Reconcile.
    """
    expressions, findings = check_declared_set(pvs, inventory.policy.limits)
    if findings:
        return OwnerExpansion(set_key(pvs.key), pvs.source, findings=findings, valid=False)
    singles = (_Set(single, repositories, inventory, trace=trace) for single in single_sets(pvs))
    return _joined(pvs, [single.expand(expressions) for single in singles], inventory.policy.limits)


def _joined(
    pvs: Sourced[PackageVariantSet], singles: Sequence[OwnerExpansion], limits: Limits
) -> OwnerExpansion:
    findings: list[Finding] = []
    for index, single in enumerate(singles):
        for finding in single.findings:
            is_listed = pvs.manifest.spec.upstreams is not None and finding.path[:2] == ("spec", "upstream")
            path = ("spec", "upstreams", index, *finding.path[2:]) if is_listed else finding.path
            # A fault of a target is found again for every upstream.
            if (path, finding.message) not in ((other.path, other.message) for other in findings):
                findings.append(replace(finding, path=path))
    candidates = tuple(candidate for single in singles for candidate in single.candidates)
    if not findings and len(candidates) > limits.targets_per_set:
        message = f"the set has {plural(len(candidates), 'target')}, more than {limits.targets_per_set}"
        findings = [Finding(("spec", "targets"), message)]
    return OwnerExpansion(set_key(pvs.key), pvs.source, () if findings else candidates, tuple(findings))


class _Set:
    def __init__(
        self,
        pvs: Sourced[PackageVariantSet],
        repositories: Mapping[str, RepositoryView],
        inventory: Inventory,
        *,
        trace: bool,
    ) -> None:
        self.pvs = pvs
        self.spec = pvs.manifest.spec
        self.owner = set_key(pvs.key)
        self.repositories = repositories
        self.inventory = inventory
        self.trace = trace
        self.paused = is_paused(pvs.manifest.metadata)
        self.times = (pvs.source.time,)
        annotations = pvs.manifest.metadata.annotations or {}
        self.inherited = {key: annotations[key] for key in INHERITED if key in annotations}

    def expand(self, expressions: Environment) -> OwnerExpansion:
        if orders := tuple(self.orders_without_rollout()):
            return self.stall(*orders)
        upstream = self.spec.upstream
        view = self.repositories.get((upstream and upstream.repo) or "")
        normal = normal_upstream(upstream, view) if upstream else None
        metadata = find_upstream(normal, view, self.inventory.trees) if normal else None
        if normal is None or metadata is None:
            return self.stall(self.missing_upstream(view))
        snapshot, clusters = self.inventory.snapshot, named_clusters(self.pvs.manifest)
        scope = TargetScope(self.pvs.key.namespace, self.repositories, snapshot, clusters)
        try:
            contexts = unroll(self.spec, scope)
        except ExpansionError as error:
            return self.stall(error.finding)
        if len(contexts) > (most := self.inventory.policy.limits.targets_per_set):
            message = f"the set has {plural(len(contexts), 'target')}, more than {most}"
            return self.stall(Finding(("spec", "targets"), message))
        renderer = Renderer(
            normal,
            metadata,
            self.repositories,
            expressions,
            self.unregistered_hint,
            defaults=DEFAULTS,
            trace=self.trace,
        )
        return self.render(contexts, renderer)

    def unregistered_hint(self, name: str) -> str:
        key = ObjectName(self.pvs.key.namespace, name)
        return self.inventory.unregistered_hint(key, REGISTER)

    def orders_without_rollout(self) -> Iterator[Finding]:
        """Yield the orders of rollouts on a set that no policy makes roll out: they have no effect."""
        metadata, rollouts = self.pvs.manifest.metadata, self.inventory.policy.rollouts
        selectors = (LabelSelector.model_validate(policy.selector) for policy in rollouts)
        if any(compile_selector(selector)(metadata.labels or {}) for selector in selectors):
            return
        lacks = "no policy in spec.rollouts selects this set" if rollouts else "spec.rollouts has no policy"
        for name, value in (metadata.annotations or {}).items():
            if name in ORDERS and value != "false":
                message = f"{name} is an order for a rollout, and {lacks}"
                hint = "Write the policy in reconciler.yaml (docs/rollouts.md), or remove the annotation."
                yield Finding(("metadata", "annotations", name), message, Reason.INVALID_ANNOTATION, hint)

    def render(self, contexts: tuple[Context, ...], renderer: Renderer) -> OwnerExpansion:
        candidates, findings = [], []
        for context in contexts:
            try:
                candidates.append(self.candidate(context, renderer.render(context)))
            except ExpansionError as error:
                message = f"target {context}: {error.finding.message}"
                findings.append(replace(error.finding, message=message))
        if more := len(findings[_MAX_TARGETS:]):
            fail = f"{plural(more, 'more target')} {verb(more, 'fails', 'fail')}"
            last = replace(findings[-1], message=f"{fail}; the last one: {findings[-1].message}")
            findings = [*findings[:_MAX_TARGETS], last]
        if findings:
            return self.stall(*findings)
        return OwnerExpansion(self.owner, self.pvs.source, tuple(candidates))

    def candidate(self, context: Context, rendered: RenderedSpec) -> VariantCandidate:
        downstream = rendered.spec.downstream
        repo, package = (downstream.repo or "", downstream.package or "") if downstream else ("", "")
        name = variant_name(variant_identifier(self.pvs.key.name, repo, package))
        self.check(name, rendered.spec, context)
        view = self.repositories.get(repo)
        if view is None:
            raise ExpansionError(
                missing_repository(repo, ("spec", "targets", context.number), self.unregistered_hint(repo))
            )
        instance, field = self.inventory.policy.instance, _package_field(context)
        for finding in check_downstream(view, package, instance, field):
            raise ExpansionError(finding)
        key = ObjectName(self.pvs.key.namespace, name)
        record = self.inventory.records.get(key)
        if record is not None:
            key = ObjectName(key.namespace, record.name)
        variant = DesiredVariant(
            key=key,
            uid=stable_uid(self.inventory.policy.instance, *key),
            spec=rendered.spec,
            source=self.pvs.source,
            set_key=self.pvs.key,
            target=self.target_object(context),
            target_cluster=context.selected.cluster if context.selected else "",
            paused=self.paused or is_paused(view.manifest.metadata),
            # Commits of the variant are as old as its newest input: the set or the selected object.
            times=(*self.times, context.selected.time) if context.selected else self.times,
            annotations=self.inherited,
            trace=rendered.trace or {},
            target_path=("spec", "targets", context.number),
        )
        home = PackageKey(view.url, view.full_path(package))
        return VariantCandidate(variant, self.owner, self.pvs.source, context.path, home, context.selected)

    def target_object(self, context: Context) -> NamedObject | None:
        """Return the object that a target selected, None for named repositories."""
        if context.selected is None:
            return None
        selector = (self.spec.targets or ())[context.number].object_selector
        kind = (selector.kind if selector else "") or "Repository"
        namespace = context.selected.namespace or ("" if selector else self.pvs.key.namespace)
        return NamedObject(kind, namespace, context.selected.name)

    def check(self, name: str, spec: PackageVariantSpec, context: Context) -> None:
        """Refuse a variant that Porch would create and then stall.

        Raises:
            ExpansionError: The spec or the name is invalid.
        """
        has_functions = spec.pipeline is not None
        # One finding per target is enough: any finding stalls the set.
        labels = (*check_labels(("spec",), spec), *check_context(("spec",), spec.package_context))
        for finding in (*validate_variant(spec), *check_name(name, has_functions=has_functions), *labels):
            path, message = ("spec", "targets", context.number), f"the variant is invalid: {finding.message}"
            raise ExpansionError(replace(finding, path=path, message=message))

    def missing_upstream(self, view: RepositoryView | None) -> Finding:
        path = ("spec", "upstream")
        upstream = self.spec.upstream
        if view is not None and view.problem is not None:
            reason, hint = Reason(view.problem.reason), view.problem.hint
            return Finding((*path, "repo"), view.unread_message, reason, hint, repository=view.key)
        key = ObjectName(self.pvs.key.namespace, (upstream and upstream.repo) or "")
        hint = self.inventory.unregistered_hint(key, "Register the repository in the namespace of the set.")
        message = describe_missing(upstream) if upstream else ""
        if view is not None and upstream is not None:
            there, hint = existing_upstreams(upstream, view, self.inventory.repositories.values())
            message = f"{message}: {there}" if there else message
        return Finding(path, message, Reason.UPSTREAM_NOT_FOUND, hint)

    def stall(self, *findings: Finding) -> OwnerExpansion:
        return OwnerExpansion(self.owner, self.pvs.source, findings=findings)


def check_declared_set(
    pvs: Sourced[PackageVariantSet], limits: Limits
) -> tuple[Environment, tuple[Finding, ...]]:
    """Return the expressions of a set, and what is wrong with it whatever the fleet holds."""
    extensions, unknown = _extensions(pvs)
    expressions, spec = Environment(limits, extensions), pvs.manifest.spec
    return expressions, (*unknown, *validate_set(spec), *check_set(spec, expressions))


def _extensions(pvs: Sourced[PackageVariantSet]) -> tuple[frozenset[str], tuple[Finding, ...]]:
    text = (pvs.manifest.metadata.annotations or {}).get(CEL_EXTENSIONS, "")
    requested = frozenset(filter(None, (name.strip() for name in text.split(","))))
    unknown = ", ".join(sorted(requested - KNOWN_EXTENSIONS))
    if not unknown:
        return requested, ()
    path, hint = ("metadata", "annotations", CEL_EXTENSIONS), f"Known: {', '.join(sorted(KNOWN_EXTENSIONS))}."
    finding = Finding(path, f"unknown CEL extension: {unknown}", hint=hint)
    return requested & KNOWN_EXTENSIONS, (finding,)


def _package_field(context: Context) -> FieldPath:
    downstream = context.template.downstream if context.template else None
    at = ("spec", "targets", context.number, "template", "downstream")
    if downstream is not None and downstream.package_expr:
        return (*at, "packageExpr")
    return (*at, "package") if downstream is not None and downstream.package else context.path


LATEST = "kpt.dev/latest-revision"
_MOST = 5
"""Revisions that a hint names."""
_NULL_OID = Oid("0" * 40)
_NULL_COMMIT = Commit(_NULL_OID, 0)


def find_upstream(
    upstream: Upstream, view: RepositoryView | None, trees: Container[TreeAt] = ()
) -> Mapping[str, Any] | None:
    """Return the metadata of the upstream's package revision object, None if there is no such revision.

    The commit is resolved later. The metadata of a version range has no name, because names of variants
    must not change when the range resolves to another revision.

    Source: porch packagevariantset_controller.go, getUpstreamPR.
    Differs: `revision` and `workspaceName` must name one revision (D9), and a workspace alone
    does not match every draft.
    """
    package = upstream.package or ""
    path = view.full_path(package) if view else ""
    state = view.upstream_at(path) if view else None
    branch = upstream.branch or ""
    if view is not None and state is None and branch in view.branches:
        # A new package may be on that branch alone.
        at = TreeAt(view.url, view.branches[branch].oid, path)
        state = PackageState(path) if at in trees else None
    if view is None or state is None:
        return None
    if upstream.version:
        return _metadata(view, None) if state.published else None
    if upstream.tag or upstream.branch:
        floating = upstream.tag or upstream.branch or ""
        branches = (view.branch, *view.branches)
        exists = _has_tag(floating, view, state) if upstream.tag else floating in branches
        return _metadata(view, _object_name(view, package, floating)) if exists else None
    return _numbered(upstream, view, state)


def single_sets(pvs: Sourced[PackageVariantSet]) -> tuple[Sourced[PackageVariantSet], ...]:
    """Return a set as one for each of its upstreams, with the fields of that upstream where they are."""
    spec = pvs.manifest.spec
    if spec.upstreams is None:
        return (pvs,)
    singles = []
    for index, upstream in enumerate(spec.upstreams):
        single = spec.model_copy(update={"upstream": upstream, "upstreams": None})
        manifest = pvs.manifest.model_copy(update={"spec": single})
        source = pvs.source.moved(("spec", "upstream"), ("spec", "upstreams", index))
        singles.append(replace(pvs, manifest=manifest, source=source))
    return tuple(singles)


def describe_missing(upstream: Upstream) -> str:
    """Return Porch's message for a missing upstream."""
    selector: object = upstream.tag or upstream.version or upstream.branch or upstream.revision or 0
    return (
        f"could not find upstream package revision '{upstream.package or ''}/{selector}'"
        f" in repo '{upstream.repo or ''}'"
    )


def existing_upstreams(
    upstream: Upstream, view: RepositoryView, views: Iterable[RepositoryView]
) -> tuple[str, str]:
    """Return a description of the thing in place of a missing upstream, or "", and the hint."""
    package = upstream.package or ""
    state = view.upstream_at(view.full_path(package))
    if state is None:
        existing = (relative_package(path, view.directory) for path in view.packages)
        return find_in_place(package, view, views) or ("", missing_package(package, existing))
    numbers = sorted(revision.revision for revision in state.published if revision.revision > 0)
    if not numbers:
        tag = f"{view.full_path(package)}/v1"
        ways = "or set spec.upstream.workspaceName or branch"
        return "", f"Publish a revision of it, such as the tag {tag}, {ways}."
    published = ", ".join(f"v{number}" for number in numbers[-_MOST:])
    return "", f"Ask for one that is published: {published}.{untagged_chart(state, upstream.revision)}"


def find_in_place(
    package: str, view: RepositoryView, views: Iterable[RepositoryView]
) -> tuple[str, str] | None:
    """Describe the thing at the path of a package that a Repository does not have, with the next step.

    Of `views` a more specific one of the same Git repository may have the package.
    """
    path = view.full_path(package)
    inner = [other for other in views if other.url == view.url and is_within(path, other.directory)]
    closest = max((view, *inner), key=lambda candidate: len(candidate.directory))
    if path in closest.packages:
        name = relative_package(path, closest.directory)
        home = f"Repository {closest.key}, which has the directory {closest.directory}"
        what = f"{package} is a package of {home}"
        return what, f"Set spec.upstream.repo to {closest.key.name} and spec.upstream.package to {name}."
    if view.directory and (wrong := _wrong_directory(view)):
        return wrong
    for above in parent_directories(path):
        if above in closest.packages:
            what = f"{package} is inside of package {relative_package(above, closest.directory)}"
            return what, "Name that package: what is inside of it is a part of it, and has no revisions."
    if view.root is not None and not view.packages:
        return f"{KPTFILE} makes the whole repository one package", 'Set spec.upstream.package to ".".'
    if package and path in closest.directories:
        hint = (
            f"Make it one: `kpt pkg init {path}` in a clone of that repository, commit and tag;"
            f' or annotate Repository {closest.key} with {PLAIN_PACKAGES}: "true", and name a branch or tag.'
        )
        return f"{package} is a directory without a Kptfile, and so no package", hint
    return None


def _wrong_directory(view: RepositoryView) -> tuple[str, str] | None:
    """Describe a directory of a Repository that can have no packages, with the next step."""
    where = f"directory {view.directory}, which Repository {view.key} names"
    if view.directory in view.packages:
        hint = 'Correct spec.git.directory there, or set spec.upstream.package to "." for that package.'
        return f"the {where}, is a package itself", hint
    if view.packages or view.directory in view.directories:
        return None
    hint = "Correct spec.git.directory there, or publish the package first."
    return f"branch {view.branch} has no {where}", hint


def untagged_chart(state: PackageState, revision: int | None) -> str:
    """Return what gives a package of a chart its next revision, "" where another one is asked for."""
    header, latest = state.main_header, state.latest
    if header is None or not header.has_charts or latest is None or revision != latest.revision + 1:
        return ""
    return " What was merged of a chart gets its tag by `reconciler index sync --pull-request`."


def missing_package(name: str, existing: Iterable[str]) -> str:
    """Return the hint for a package that is not there, which the plan itself may still make."""
    suggestion = suggest(name, existing)
    return f"Correct the name, or publish it first: there is no package {name} yet. {suggestion}".rstrip()


def _numbered(upstream: Upstream, view: RepositoryView, state: PackageState) -> Mapping[str, Any] | None:
    package, workspace = upstream.package or "", upstream.workspace_name
    revisions: tuple[PackageRevision | Draft, ...] = (*state.published, *state.drafts)
    for revision in revisions if upstream.revision or workspace else ():
        number = revision.revision if isinstance(revision, PackageRevision) else 0
        if upstream.revision in (None, 0, number) and (not workspace or workspace == revision.workspace):
            name = _object_name(view, package, revision.workspace)
            return _metadata(view, name, latest=revision == state.latest)
    # Porch names the package revision of the main branch after that branch.
    if workspace and workspace == view.branch and not upstream.revision:
        return _metadata(view, _object_name(view, package, view.branch))
    return None


def _has_tag(tag: str, view: RepositoryView, state: PackageState) -> bool:
    # A tag of the package, as web/stable, or of the whole repository.
    return tag in view.tags or any(r.ref == f"{TAGS}{state.path}/{tag}" for r in state.published)


def _object_name(view: RepositoryView, package: str, workspace: str) -> str:
    directory, _, name = relative_package(view.full_path(package), view.directory).rpartition("/")
    return object_name(view.key.name, directory, name, workspace)


def _metadata(view: RepositoryView, name: str | None, *, latest: bool = False) -> Mapping[str, Any]:
    labels = {LATEST: "true"} if latest else {}
    named = {} if name is None else {"name": name}
    return {**named, "namespace": view.key.namespace, "labels": labels, "annotations": {}}


def assume_upstreams(inventory: Inventory) -> Inventory:
    """Return the inventory with every named upstream in its repository's view, so that sets can expand.

    For a check of manifests alone: the result does not prove that upstreams exist and must not be
    planned. Repositories that are not registered stay unknown.
    """
    views: dict[ObjectName, RepositoryView] = dict(inventory.repositories)
    for owner, upstream in declared_upstreams(inventory.sets, inventory.variants):
        view = views.get(ObjectName(owner.namespace, upstream.repo or ""))
        if view is not None and upstream.package:
            path = view.full_path(upstream.package)
            state = view.upstream_at(path) or PackageState(path)
            state = replace(state, published=(*state.published, _revision(path, upstream)))
            refs = dict.fromkeys([name for name in (upstream.tag, upstream.branch) if name], _NULL_COMMIT)
            views[view.key] = replace(
                view,
                packages={**view.packages, path: state} if path else view.packages,
                root=view.root if path else state,
                tags={**view.tags, **refs},
                branches={**view.branches, **refs},
            )
    return replace(inventory, repositories=views)


def _revision(path: str, upstream: Upstream) -> PackageRevision:
    number = upstream.revision or 0
    workspace = upstream.workspace_name or (f"v{number}" if number else upstream.tag or "v0")
    ref = f"refs/tags/{path}/{workspace}"
    return PackageRevision(path, workspace, number, Lifecycle.PUBLISHED, ref, _NULL_COMMIT, _NULL_OID)
