"""Judge one object of a change: what its cluster would answer to the request that deploys it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec import field as struct_field

from reconciler.admission.cluster import BUILT_IN, CRD, Cluster, Definition, identity_of
from reconciler.admission.defaults import TEMPLATES, field
from reconciler.admission.immutable import Fault, find_faults, is_forced, is_hook
from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict
from reconciler.admission.policies import PolicyFault, Review, find_policy_faults, may_apply
from reconciler.admission.served import find_unserved, find_unstored
from reconciler.admission.structural import Structural
from reconciler.names.ids import GroupKind, NamedObject

Object = Mapping[str, Any]


class ObjectChange(Struct, frozen=True):
    """An object as main has it (None where it has not) and as the change has it (None where it goes)."""

    old: Object | None
    new: Object | None


class Judge(Struct, frozen=True):
    """Judges the objects of one package for one cluster.

    `proposed` are the definitions in the same change. They govern nothing (D25), but a version that
    they serve is not missing.
    """

    cluster: Cluster
    proposed: Mapping[GroupKind, Definition] = struct_field(default_factory=dict)

    def governs(self, kind: GroupKind) -> bool:
        """Tell whether anything but Kubernetes itself decides about objects of a kind."""
        is_defined = kind.group not in BUILT_IN and (
            kind in self.proposed or self.cluster.knows(CRD) or self.cluster.definition(kind) is not None
        )
        return is_defined or self._has_policy(kind)

    def _has_policy(self, kind: GroupKind) -> bool:
        kinds = self.cluster.kinds_of_policies
        if kind not in kinds:
            kinds[kind] = may_apply(kind, self.cluster)
        return kinds[kind]

    def judge_stored(self, definition: Object) -> Iterator[AdmissionJudgement]:
        """Yield the stored versions that a definition leaves out."""
        if (identity := identity_of(definition)) is not None:
            for fault in find_unstored(definition, identity[0], self.cluster):
                named = str(NamedObject(identity[0].kind, "", identity[2]))
                yield self._judgement(fault, identity[0], named, is_old=False)

    def judge(self, request: ObjectChange) -> Iterator[AdmissionJudgement]:
        """Yield what the cluster would answer; nothing where it takes the object. Total."""
        value = request.new if request.new is not None else request.old
        identity = identity_of(value) if value is not None else None
        if value is None or identity is None:
            return
        kind, namespace, name = identity
        named = str(NamedObject(kind.kind, namespace, name))
        # Its deployer deletes a hook before it creates the next one.
        old, new = None if is_hook(value) else request.old, request.new
        if new is not None:
            yield from self._without_policies(old, new, kind, named)
        for answer in dict.fromkeys(self._policy_faults(old, new, identity)):
            verdict = AdmissionVerdict.REFUSED if answer.denies else AdmissionVerdict.WARNED
            verdict = verdict if answer.fault.is_sure else AdmissionVerdict.NOT_JUDGED
            is_same = bool(old and new) and answer in self._policy_faults(old, old, identity)
            is_old = is_same and answer.fault.is_sure
            reason = answer.fault.reason
            yield AdmissionJudgement(verdict, answer.rule, reason, self.cluster.name, named, is_old)

    def _without_policies(
        self, old: Object | None, new: Object, kind: GroupKind, named: str
    ) -> Iterator[AdmissionJudgement]:
        """Yield what Kubernetes itself, and the definition of the kind, answer."""
        version = self.cluster.version
        if (unserved := find_unserved(new, kind, self.cluster, self.proposed)) is not None:
            is_old = old is not None and old.get("apiVersion") == new.get("apiVersion")
            verdict = AdmissionVerdict.REFUSED if unserved.is_sure else AdmissionVerdict.NOT_JUDGED
            yield self._judgement(unserved, kind, named, verdict, is_old=is_old and unserved.is_sure)
            return
        yield from self.judge_stored(new)
        faults = list(find_faults(old, new, str(kind), version))
        before = frozenset(find_faults(None, old, str(kind), version) if old is not None and faults else ())
        for fault in faults:
            is_recreated = fault.is_update and is_forced(new)
            verdict = AdmissionVerdict.RECREATED if is_recreated else AdmissionVerdict.REFUSED
            if (
                fault.is_update
                and kind.kind == "Job"
                and field(new, "spec", "ttlSecondsAfterFinished") is not None
            ):
                verdict = AdmissionVerdict.NOT_JUDGED
            unless = "its time to live is over" if verdict is AdmissionVerdict.NOT_JUDGED else ""
            yield self._judgement(fault, kind, named, verdict, is_old=fault in before, unless=unless)
        yield from self._by_schema(old, new, kind, named)

    def _policy_faults(
        self, old: Object | None, new: Object | None, identity: tuple[GroupKind, str, str]
    ) -> Iterator[PolicyFault]:
        """Yield what policies answer to an object, and to the Pods that its controller would make of it."""
        value = new if new is not None else old
        if value is None or not self._has_policy(identity[0]):
            return
        kind, namespace, name = identity
        operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
        proposed = self.proposed.get(kind)
        before, after = (s if s is None else self.cluster.completed(s, proposed) for s in (old, new))
        version = str(value.get("apiVersion")).rpartition("/")[2]
        about = " for its deletion" if new is None else ""
        review = Review(operation, kind, version, namespace, name, before, after, about)
        yield from find_policy_faults(review, self.cluster)
        template = field(after, *TEMPLATES[str(kind)]) if str(kind) in TEMPLATES else None
        if isinstance(template, Mapping):
            metadata = {**(field(template, "metadata") or {}), "namespace": namespace}
            metadata["generateName"] = f"{name}-"
            pod = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            review = Review("CREATE", GroupKind("", "Pod"), "v1", namespace, "", None, pod, " for its Pods")
            yield from find_policy_faults(review, self.cluster)

    def _by_schema(
        self, old: Object | None, new: Object, kind: GroupKind, named: str
    ) -> Iterator[AdmissionJudgement]:
        """Yield faults by the definition that governs, which that of the change may mend."""
        version = str(new.get("apiVersion")).rpartition("/")[2]
        if kind.group in BUILT_IN:
            return
        governing = _schema(self.cluster.definition(kind), version)
        schema = governing or _schema(self.proposed.get(kind), version)
        if schema is None:
            return
        # How a webhook converts one version to another one is not known.
        is_sure = old is None or old.get("apiVersion") == new.get("apiVersion")
        places = () if is_sure else (self.cluster.definition(kind), self.proposed.get(kind))
        is_sure = all(definition.converts_nothing for definition in places if definition is not None)
        try:
            faults = list(schema.find_faults(old, new))
            before = frozenset(schema.find_faults(None, old) if faults and old is not None else ())
            mends = _schema(self.proposed.get(kind), version) if faults and governing is not None else None
            is_mended = mends is not None and not any(mends.find_faults(old, new))
        except ValueError as error:
            faults, before, is_mended = [Fault("", str(error), is_sure=False)], frozenset(), False
        for fault in faults:
            is_refused = fault.is_sure and is_sure and not is_mended
            verdict = AdmissionVerdict.REFUSED if is_refused else AdmissionVerdict.NOT_JUDGED
            unless = "its new definition comes first" if is_mended else ""
            yield self._judgement(fault, kind, named, verdict, is_old=fault in before, unless=unless)

    def _judgement(
        self,
        fault: Fault,
        kind: GroupKind,
        named: str,
        verdict: AdmissionVerdict = AdmissionVerdict.REFUSED,
        *,
        is_old: bool,
        unless: str = "",
    ) -> AdmissionJudgement:
        rule, text = f"{kind.kind} {fault.path}".strip(), ": ".join(filter(None, (fault.path, fault.reason)))
        text = f"{text}, unless {unless}" if unless else text
        return AdmissionJudgement(verdict, rule, text, self.cluster.name, named, is_old)


def _schema(definition: Definition | None, version: str) -> Structural | None:
    return definition.schemas.get(version) if definition is not None else None
