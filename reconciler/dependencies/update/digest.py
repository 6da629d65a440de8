"""The digest of what the resolution of a cluster depends on, from listed facts by wire name."""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from reconciler.dependencies.lock.format import SOLVER
from reconciler.dependencies.model.cluster import (
    Catalogue,
    ClusterInputs,
    ObservedInstallation,
    ResolverSettings,
)
from reconciler.dependencies.model.packages import (
    DEFAULT_REVISION_POLICY,
    Actions,
    ActivationRequest,
    ApiNeed,
    Candidate,
    Install,
    InstallationType,
    Interface,
    InterfaceNeed,
    Need,
    Override,
    PackageId,
    PackageNeed,
    Requirement,
    RevisionPolicy,
    Sharing,
    VersionRange,
)
from reconciler.dependencies.versions.version import VersionPolicy

DIGEST_VERSION = 3
"""To be raised when an old fact is written differently: every lock is resolved once more then.

A new field of a model is one more fact, and is left out while it has its default: no digest changes.
"""

Facts = dict[str, Any]


class InputDigests:
    """Digests of the inputs of clusters; what the clusters of one run share is written once."""

    def __init__(self) -> None:
        self._installs: dict[Install, str] = {}
        self._candidates: dict[Candidate, str] = {}
        self._reachable: dict[tuple[int, frozenset[PackageId]], tuple[Catalogue, str]] = {}

    def of(self, inputs: ClusterInputs) -> str:
        """Return the SHA-256 of what a resolution depends on, apart from lock and cluster name.

        Of the catalogue only what can be reached by name from the installs counts, so that a new version of
        one package touches only the clusters that can use it. Order-free; places do not matter.
        """
        facts = _given(
            version=DIGEST_VERSION,
            solver=SOLVER,
            installs=sorted(self._install(install) for install in inputs.installs),
            cluster=_given(
                apis=sorted(inputs.presence.apis),
                owners=inputs.presence.owners,
                platforms=[[platform, str(version)] for platform, version in inputs.presence.platforms],
                installations=list(map(_installation, inputs.presence.installations)),
            ),
            settings=_settings(inputs.choices),
            activations=sorted(map(_text, map(_activation, inputs.activations))),
            catalogue=self._catalogue(inputs),
        )
        return f"sha256:{hashlib.sha256(_text(facts).encode()).hexdigest()}"

    def _install(self, install: Install) -> str:
        if install not in self._installs:
            self._installs[install] = _text(_install(install))
        return self._installs[install]

    def _catalogue(self, inputs: ClusterInputs) -> str:
        catalogue = inputs.catalogue
        roots = frozenset(
            [
                *(catalogue.find(install.need.id) for install in inputs.installs),
                *(catalogue.find(id_) for _, id_ in inputs.choices.defaults),
                *(catalogue.packages if inputs.choices.discovery else ()),
            ]
        )
        key = (id(catalogue), roots)
        if key not in self._reachable:
            texts = [self._candidate(candidate) for candidate in _reachable(catalogue, roots)]
            # The catalogue is held, or another one could get its id.
            self._reachable[key] = catalogue, hashlib.sha256("\n".join(texts).encode()).hexdigest()
        return self._reachable[key][1]

    def _candidate(self, candidate: Candidate) -> str:
        if candidate not in self._candidates:
            self._candidates[candidate] = _text(_candidate(candidate))
        return self._candidates[candidate]


def _reachable(catalogue: Catalogue, roots: Iterable[PackageId]) -> list[Candidate]:
    """Return the versions of the packages that can be needed, sorted by name."""
    queue, seen = list(roots), set[PackageId]()
    while queue:
        id_ = queue.pop()
        if id_ in seen:
            continue
        seen.add(id_)
        for candidate in catalogue.candidates(id_):
            for requirement in candidate.requires:
                needs = (*requirement.alternatives, *([requirement.default] if requirement.default else []))
                queue += [catalogue.find(need.id) for need in needs if isinstance(need, PackageNeed)]
    return [candidate for id_ in sorted(seen) for candidate in catalogue.candidates(id_)]


def _text(facts: Facts) -> str:
    return msgspec.json.encode(facts, order="deterministic").decode()


def _given(**facts: Any) -> Facts:
    """Return the facts that are not empty: a default is written as nothing."""
    return {name: fact for name, fact in facts.items() if fact not in (None, False, "", (), [], {})}


def _install(install: Install) -> Facts:
    return _given(
        namespace=install.namespace,
        name=install.name,
        dialect=install.dialect,
        package=_need(install.need),
        kind=install.kind,
        apiVersion=install.api_version,
        labels=install.labels,
        external=install.external,
        interfaces=list(map(_interface, install.interfaces)),
        withoutDependencies=not install.install_dependencies,
        skipDependencies=install.skip_dependencies,
        overrides=list(map(_override, install.overrides)),
        bindings=install.bindings,
        values=[[value.name, value.secret, value.key] for value in install.values],
        inherit=install.inherit,
        policy=install.policy if install.policy is not VersionPolicy.HIGHEST else "",
        origin=str(install.origin or ""),
        allowDowngrade=install.allow_downgrade,
        ignorePlatforms=sorted(install.ignore_platforms),
        revisions=_revisions(install.revisions),
        orphanDependencies=not install.prune_dependencies,
        gives=install.gives,
        givesCredentials=install.gives_credentials,
        requested=install.requested and _need(install.requested),
    )


def _override(override: Override) -> Facts:
    install = {None: "", True: "yes", False: "no"}[override.install]
    return _given(name=override.name, range=override.range and _range(override.range), install=install)


def _revisions(policy: RevisionPolicy) -> Facts:
    default = DEFAULT_REVISION_POLICY.history_limit
    return _given(
        manual=policy.manual,
        historyLimit=str(policy.history_limit) if policy.history_limit != default else "",
        takeOver=policy.take_over,
        pruneKinds=policy.prune_kinds,
    )


def _activation(request: ActivationRequest) -> Facts:
    return _given(
        kind=request.kind,
        name=request.name,
        active=request.active,
        package=request.package,
        image=request.image,
        digest=request.digest,
    )


def _candidate(candidate: Candidate) -> Facts:
    is_restricted = candidate.installation is not InstallationType.NO_RESTRICTIONS
    return _given(
        package=str(candidate.id),
        version=str(candidate.version),
        digest=candidate.digest,
        dependsOn=list(map(_requirement, candidate.requires)),
        provides=candidate.provides,
        interfaces=list(map(_interface, candidate.interfaces)),
        compositions=candidate.compositions,
        installationType=candidate.installation if is_restricted else "",
        platforms=[[need.platform, _range(need.range)] for need in candidate.platforms],
        names=candidate.names,
        withdrawn=candidate.withdrawn,
        unavailable=candidate.unavailable,
        source=candidate.source,
        kind=candidate.kind,
        inputs=list(map(str, candidate.inputs)),
        defaults=candidate.defaults,
        has="nothing" if candidate.has == () else candidate.has,
        labels=candidate.labels,
        keywords=candidate.keywords,
        retain=candidate.retain,
    )


def _requirement(requirement: Requirement) -> Facts:
    return _given(
        needs=list(map(_need, requirement.alternatives)),
        alias=requirement.alias,
        aliases=requirement.aliases,
        optional=requirement.optional,
        notInstalled=not requirement.install,
        share=_given(
            scope=requirement.share.scope if requirement.share.scope is not Sharing.DIALECT else "",
            group=requirement.share.group,
            labels=requirement.share.labels,
            inputs=requirement.share.inputs,
        ),
        withoutActions=_left_out(requirement.actions),
        default=requirement.default and _need(requirement.default),
        wired=requirement.wired,
        after=requirement.after,
        gives=list(map(str, requirement.gives)),
        parameters=requirement.parameters,
        uses=requirement.uses,
        declined=requirement.declined,
    )


def _left_out(actions: Actions) -> list[str]:
    reached = {"upgrade": actions.upgrade, "invoke": actions.invoke, "uninstall": actions.uninstall}
    return [name for name, reaches in reached.items() if not reaches]


def _need(need: Need) -> Facts:
    match need:
        case PackageNeed():
            return _given(package=str(need.id), range=_range(need.range))
        case ApiNeed():
            return _given(api=need.gvk, provider=need.provider and _need(need.provider))
        case InterfaceNeed():
            return _given(interface=need.id, range=_range(need.range), **_shape(need))


def _range(range_: VersionRange) -> Facts:
    admitted = range_.prereleases
    return _given(
        dialect=range_.dialect,
        text=range_.text,
        prereleases="any" if admitted == () else admitted,
        releasesOnly=range_.releases_only,
    )


def _interface(interface: Interface) -> Facts:
    version = str(interface.version or "")
    return _given(id=interface.id, version=version, declared=interface.is_declared, **_shape(interface))


def _shape(shaped: Interface | InterfaceNeed) -> Facts:
    return _given(outputs=shaped.outputs, parameters=shaped.parameters, credentials=shaped.credentials)


def _installation(installation: ObservedInstallation) -> Facts:
    return _given(
        namespace=installation.namespace,
        name=installation.name,
        package=str(installation.id),
        version=str(installation.version or ""),
        digest=installation.digest,
        labels=installation.labels,
        interfaces=list(map(_interface, installation.interfaces)),
    )


def _settings(settings: ResolverSettings) -> Facts:
    default = ResolverSettings()
    return _given(
        allowDowngrade=settings.allow_downgrade,
        discovery=settings.discovery,
        reconsider=settings.reconsider,
        upgrade=sorted(settings.upgrade),
        allowCycles=sorted(default.forbid_cycles - settings.forbid_cycles),
        forbidCycles=sorted(settings.forbid_cycles - default.forbid_cycles),
        select=settings.policies,
        defaults=settings.defaults,
        sharedNamespace=settings.shared_namespace,
        depth=str(settings.depth) if settings.depth != default.depth else "",
        steps=str(settings.budget) if settings.budget != default.budget else "",
    )
