"""Expand a PackageVariantSet: unroll, render, name and validate its variants, all or nothing."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from reconciler.api.meta import LabelSelector, compile_selector
from reconciler.api.porch import PackageVariantSet, PackageVariantSpec
from reconciler.base.reasons import Reason
from reconciler.base.text import plural, verb
from reconciler.cel import EXTENSIONS as KNOWN_EXTENSIONS
from reconciler.cel import Environment
from reconciler.expand.authored import DEFAULTS, is_paused, normal_upstream
from reconciler.expand.findings import ExpansionError, Finding
from reconciler.expand.own_checks import check_context, check_downstream, check_labels, check_name, check_set
from reconciler.expand.porch_checks import validate_set, validate_variant
from reconciler.expand.targets import Context, TargetScope, named_clusters, unroll
from reconciler.expand.template import RenderedSpec, Renderer, missing_repository
from reconciler.expand.upstream import describe_missing, existing_upstreams, find_upstream, single_sets
from reconciler.expand.variants import (
    CEL_EXTENSIONS,
    DesiredVariant,
    OwnerExpansion,
    VariantCandidate,
    set_key,
    stable_uid,
    variant_identifier,
    variant_name,
)
from reconciler.inventory.inventory import FieldPath, Inventory, RepositoryView, Sourced
from reconciler.names.ids import NamedObject, ObjectName, PackageKey
from reconciler.policy import Limits

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
    """Return the expansion of a set from those of its upstreams."""
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
        metadata = find_upstream(normal, view) if normal else None
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
            defaults=DEFAULTS,
            trace=self.trace,
        )
        return self.render(contexts, renderer)

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
        if findings:
            return self.stall(*findings[:_MAX_TARGETS], *_remaining(findings))
        return OwnerExpansion(self.owner, self.pvs.source, tuple(candidates))

    def candidate(self, context: Context, rendered: RenderedSpec) -> VariantCandidate:
        downstream = rendered.spec.downstream
        repo, package = (downstream.repo or "", downstream.package or "") if downstream else ("", "")
        name = variant_name(variant_identifier(self.pvs.key.name, repo, package))
        self.check(name, rendered.spec, context)
        view = self.repositories.get(repo)
        if view is None:
            raise ExpansionError(missing_repository(repo, context))
        for finding in check_downstream(
            view, package, self.inventory.policy.instance, _package_field(context)
        ):
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
            path = ("spec", "targets", context.number)
            raise ExpansionError(
                replace(finding, path=path, message=f"the variant is invalid: {finding.message}")
            )

    def missing_upstream(self, view: RepositoryView | None) -> Finding:
        path = ("spec", "upstream")
        upstream = self.spec.upstream
        if view is not None and view.problem is not None:
            reason, hint = Reason.REPOSITORY_UNAVAILABLE, view.problem.hint
            return Finding((*path, "repo"), view.unread_message, reason, hint, repository=view.key)
        hint = "Register the repository in the namespace of the set."
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
    path = ("metadata", "annotations", CEL_EXTENSIONS)
    finding = Finding(
        path, f"unknown CEL extension: {unknown}", hint=f"Known: {', '.join(sorted(KNOWN_EXTENSIONS))}."
    )
    return requested & KNOWN_EXTENSIONS, (finding,)


def _remaining(findings: list[Finding]) -> Iterator[Finding]:
    if len(findings) > _MAX_TARGETS:
        last, more = findings[-1], len(findings) - _MAX_TARGETS
        fail = f"{plural(more, 'more target')} {verb(more, 'fails', 'fail')}"
        yield replace(last, message=f"{fail}; the last one: {last.message}")


def _package_field(context: Context) -> FieldPath:
    """Return the field of a set that names the downstream package of a target."""
    downstream = context.template.downstream if context.template else None
    at = ("spec", "targets", context.number, "template", "downstream")
    if downstream is not None and downstream.package_expr:
        return (*at, "packageExpr")
    return (*at, "package") if downstream is not None and downstream.package else context.path
