"""Expand authored PackageVariants: validation, defaults, downstream package."""

from collections.abc import Mapping

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import PLACEHOLDER, PackageVariant, PackageVariantSpec, Pipeline, Upstream
from reconciler.base.reasons import Reason
from reconciler.expand.checks import check_downstream, check_variant, validate_variant
from reconciler.expand.findings import Finding
from reconciler.expand.variants import (
    PAUSED,
    DesiredVariant,
    OwnerExpansion,
    VariantCandidate,
    stable_uid,
    variant_key,
)
from reconciler.inventory.inventory import Draft, PackageRevision, RepositoryView, Sourced
from reconciler.names.ids import PackageKey
from reconciler.policy import Policy

DEFAULTS: Mapping[str, str] = {"adoption_policy": "adoptNone", "deletion_policy": "delete"}


def expand_variant(
    variant: Sourced[PackageVariant], repositories: Mapping[str, RepositoryView], policy: Policy
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
        return OwnerExpansion(owner, source, findings=(_missing_repository(repo),))
    if invalid := tuple(check_downstream(view, package, policy.instance)):
        return OwnerExpansion(owner, source, findings=invalid, valid=False)
    metadata = variant.manifest.metadata
    desired = DesiredVariant(
        key=variant.key,
        uid=metadata.uid or stable_uid(policy.instance, *variant.key),
        spec=with_defaults(spec, repositories.get((spec.upstream and spec.upstream.repo) or "")),
        source=source,
        paused=is_paused(metadata) or is_paused(view.manifest.metadata),
        times=(source.time,),
        annotations=metadata.annotations or {},
    )
    package_key = PackageKey(view.url, view.full_path(package))
    return OwnerExpansion(
        owner, source, (VariantCandidate(desired, owner, source, ("spec", "downstream"), package_key),)
    )


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
    empty: dict[str, str | None] = {
        name: None for name in ("workspace_name", "tag", "version", "branch") if getattr(upstream, name) == ""
    }
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


def _missing_repository(name: str) -> Finding:
    path = ("spec", "downstream", "repo")
    hint = "Register it as a Repository object in the same namespace."
    return Finding(path, f'repository "{name}" could not be loaded', Reason.REPOSITORY_NOT_FOUND, hint)
