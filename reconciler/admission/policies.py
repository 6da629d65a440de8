"""ValidatingAdmissionPolicies with bindings and parameters: what they would answer to one object.

Only a validation that is plainly false refuses. What cannot be evaluated, or matched, is not judged.

Source: apiserver pkg/admission/plugin/policy/validating; pkg/admission/plugin/policy/matching.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from reconciler.admission.cluster import NAME_LABEL, NAMESPACE, POLICY, UNASKED, Cluster
from reconciler.admission.defaults import TEMPLATES, field, items
from reconciler.admission.immutable import Fault
from reconciler.api.meta import LabelSelector, SelectorError, compile_selector
from reconciler.base.lazy import regex
from reconciler.cel.check import Failure
from reconciler.cel.kubernetes import POLICY as VARIABLES
from reconciler.cel.kubernetes import Expressions, expressions_of
from reconciler.names.ids import GroupKind

Object = Mapping[str, Any]
_VARIABLE: Final = regex(r"\bvariables\.([A-Za-z_]\w*)")


class Review(NamedTuple):
    """A request as policies see it; `old` is None for a new object, `new` for one that goes.

    `about` tells what the object of a package is judged for, where it is not itself.
    """

    operation: str
    kind: GroupKind
    version: str
    namespace: str
    name: str
    old: Object | None
    new: Object | None
    about: str = ""


class Unknown(Exception):  # noqa: N818 - it is no error
    """Raised and caught in this module: something is not known that decides."""


class PolicyFault(NamedTuple):
    """A validation that fails; `denies` tells whether its binding refuses, or only warns and audits."""

    fault: Fault
    rule: str
    denies: bool = True


def find_policy_faults(review: Review, cluster: Cluster) -> Iterator[PolicyFault]:
    """Yield what the policies of a cluster answer to a request. Total."""
    if review.kind.group == POLICY.group and review.kind.kind.startswith(POLICY.kind):
        return  # no policy applies to policies
    for policy, bindings in cluster.policies:
        try:
            if not _matches(field(policy, "spec", "matchConstraints"), review, cluster):
                continue
        except Unknown as unknown:
            yield _unjudged(policy, review, unknown)
            continue
        for binding in bindings:
            try:
                if _matches(field(binding, "spec", "matchResources"), review, cluster):
                    yield from _of_binding(policy, binding, review, cluster)
            except Unknown as unknown:
                yield _unjudged(policy, review, unknown)


def _unjudged(policy: Object, review: Review, unknown: Unknown) -> PolicyFault:
    text = f"policy {_name(policy)} cannot be judged{review.about}: {unknown}"
    return PolicyFault(Fault("", text, is_sure=False), f"{POLICY.kind} {_name(policy)}")


def may_apply(kind: GroupKind, cluster: Cluster) -> bool:
    """Tell whether any policy of a cluster may be for objects of a kind, or for the Pods that they make."""
    return any(
        _may_be_for(field(policy, "spec", "matchConstraints"), kind, cluster)
        for policy, _ in cluster.policies
    )


def find_unasked(kind: GroupKind, cluster: Cluster) -> Iterator[str]:
    """Yield the webhooks and mutating policies that only the API server asks about objects of a kind."""
    for decider in UNASKED:
        for value in cluster.objects(decider):
            hooks = [
                *items(value, "webhooks"),
                *items({"all": [field(value, "spec", "matchConstraints")]}, "all"),
            ]
            if any(
                _may_be_for({"resourceRules": hook.get("rules"), **hook}, kind, cluster) for hook in hooks
            ):
                yield f"{decider.kind} {_name(value)}"


def _may_be_for(resources: object, kind: GroupKind, cluster: Cluster) -> bool:
    """Tell whether a rule is for objects of a kind, or for the Pods that they make."""
    for rule in items(resources, "resourceRules"):
        groups, plurals = ({*(rule.get(key) or ())} for key in ("apiGroups", "resources"))
        for other in (kind, GroupKind("", "Pod")) if str(kind) in TEMPLATES else (kind,):
            if {"*", other.group} & groups and _resources(other, cluster) & plurals:
                return True
    return False


def _resources(kind: GroupKind, cluster: Cluster) -> AbstractSet[str]:
    """Return how a rule may name the objects of a kind."""
    plural = cluster.resource_of(kind)[0]
    return {"*", "*/*", plural, f"{plural}/*"}


def _name(value: Object) -> str:
    return str(field(value, "metadata", "name"))


def _of_binding(policy: Object, binding: Object, review: Review, cluster: Cluster) -> Iterator[PolicyFault]:
    expressions, name = expressions_of(VARIABLES), _name(policy)
    if expressions is None:
        raise Unknown("this platform has no CEL")
    denies = "Deny" in (field(binding, "spec", "validationActions") or ["Deny"])
    rule, named = f"{POLICY.kind} {name}", f"policy {name}{review.about}"
    for params in _params(policy, binding, review, cluster):
        if isinstance(params, str):
            # An error of the binding, whatever it does with validations; failurePolicy decides about errors.
            if field(policy, "spec", "failurePolicy") != "Ignore":
                yield PolicyFault(Fault("", f"{named}: failed to configure binding: {params}"), rule)
            continue
        evaluation = _Evaluation(expressions, policy, review, params, cluster)
        if not evaluation.is_meant(items(policy, "spec", "matchConditions")):
            continue
        for validation in items(policy, "spec", "validations"):
            expression = str(validation.get("expression"))
            try:
                if evaluation.holds(expression):
                    continue
            except Unknown as unknown:
                yield _unjudged(policy, review, unknown)
                continue
            message = evaluation.message(validation) or f"failed expression: {' '.join(expression.split())}"
            yield PolicyFault(Fault("", f"{named}: {message}"), rule, denies)


class _Evaluation:
    """Evaluates the expressions of one policy for one request and one parameter."""

    def __init__(
        self,
        expressions: Expressions,
        policy: Object,
        review: Review,
        params: Object | None,
        cluster: Cluster,
    ) -> None:
        self._expressions = expressions
        self._variables = {
            str(v.get("name")): str(v.get("expression")) for v in items(policy, "spec", "variables")
        }
        group, kind = review.kind
        resource = cluster.resource_of(review.kind)[0]
        kinds = {"group": group, "version": review.version}
        namespace = cluster.namespace(review.namespace) if review.namespace else None
        self._values = {
            "object": review.new,
            "oldObject": review.old,
            "params": params,
            "request": {
                "operation": review.operation,
                "kind": {**kinds, "kind": kind},
                "requestKind": {**kinds, "kind": kind},
                "resource": {**kinds, "resource": resource},
                "requestResource": {**kinds, "resource": resource},
                "subResource": "",
                "requestSubResource": "",
                "name": review.name,
                "namespace": review.name if review.kind == NAMESPACE else review.namespace,
                "dryRun": False,
            },
            "variables": {},
        }
        if namespace is not None or review.kind == NAMESPACE or cluster.resource_of(review.kind)[1] is False:
            self._values["namespaceObject"] = namespace
        self._activation = expressions.bind(self._values)

    def holds(self, text: str) -> bool:
        """Tell whether an expression is true.

        Raises:
            Unknown: It cannot be evaluated.
        """
        result = self._evaluate(text)
        if isinstance(result, bool):
            return result
        why = result.message if isinstance(result, Failure) else "its result is no boolean"
        raise Unknown("its namespace is not known" if '"namespaceObject"' in why else why)

    def is_meant(self, conditions: Iterator[Object]) -> bool:
        """Tell whether all conditions of a policy hold; one that is false decides whatever others are.

        Raises:
            Unknown: One cannot be evaluated, and none is false.
        """
        unknown = None
        for condition in conditions:
            try:
                if not self.holds(str(condition.get("expression"))):
                    return False
            except Unknown as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return True

    def message(self, validation: Object) -> str:
        """Return the message of a validation that fails, "" without one."""
        computed = validation.get("messageExpression")
        text = self._evaluate(computed) if isinstance(computed, str) else None
        return text if isinstance(text, str) and text.strip() else str(validation.get("message") or "")

    def _evaluate(self, text: str) -> Any:
        # Variables are bound inside of the expression: values are converted once for all of them.
        program = self._expressions.compile(self._bound(text))
        if not isinstance(program, Failure) or program.undeclared or not self._needed(text):
            return self._expressions.evaluate(program, self._activation)
        values: dict[str, Any] = {}
        for name in self._needed(text):
            activation = self._expressions.bind({**self._values, "variables": values})
            value = self._expressions.evaluate(self._expressions.compile(self._variables[name]), activation)
            if not isinstance(value, Failure):
                values[name] = value  # one that fails matters only where it is used
        activation = self._expressions.bind({**self._values, "variables": values})
        return self._expressions.evaluate(self._expressions.compile(text), activation)

    def _needed(self, text: str) -> list[str]:
        """Return the variables that an expression needs, each after those that it needs itself."""
        needed = set(_VARIABLE.findall(text))
        for name, expression in reversed(self._variables.items()):
            needed |= set(_VARIABLE.findall(expression)) if name in needed else set()
        return [name for name in self._variables if name in needed]

    def _bound(self, text: str) -> str:
        bound = _VARIABLE.sub(r"variables_\1", text)
        for name in reversed(self._needed(text)):
            value = _VARIABLE.sub(r"variables_\1", self._variables[name])
            bound = f"cel.bind(variables_{name}, {value}, {bound})"
        return bound


# Parameters


def _params(
    policy: Object, binding: Object, review: Review, cluster: Cluster
) -> Iterator[Object | str | None]:
    """Yield the parameters of a binding, None where its policy has none; a text is an error of the binding.

    Raises:
        Unknown: The snapshot may lack some.
    """
    param_kind, reference = field(policy, "spec", "paramKind"), field(binding, "spec", "paramRef")
    if not isinstance(param_kind, Mapping) or not isinstance(reference, Mapping):
        yield None
        return
    kind = GroupKind(str(param_kind.get("apiVersion")).rpartition("/")[0], str(param_kind.get("kind")))
    is_namespaced, namespace = cluster.resource_of(kind)[1], str(reference.get("namespace") or "")
    if is_namespaced is not False and not namespace:
        namespace = review.name if review.kind == NAMESPACE else review.namespace
    if is_namespaced is False and namespace:
        yield "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
        return
    if is_namespaced and not namespace and cluster.resource_of(review.kind)[1] is False:
        yield "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        return
    name, selector = reference.get("name"), reference.get("selector")
    members = [
        value
        for value in cluster.objects(kind)
        if str(field(value, "metadata", "namespace") or "") == namespace
        if (name and _name(value) == name)
        or (not name and _selects(selector, field(value, "metadata", "labels") or {}))
    ]
    if name and members:
        yield cluster.completed(members[0])
        return
    if is_namespaced is not False and not namespace:
        raise Unknown("its parameters are in its namespace, which is not known")
    if not cluster.knows(kind, namespace):
        raise Unknown(f"not all parameters of kind {kind} are known")
    yield from map(cluster.completed, members)
    if not members and reference.get("parameterNotFoundAction") == "Deny":
        yield "no params found for policy binding with `Deny` parameterNotFoundAction"


# Matching


def _matches(resources: object, review: Review, cluster: Cluster) -> bool:
    """Tell whether a request is among what a policy or binding is for.

    Raises:
        Unknown: Labels of its namespace are not known.
    """
    if not isinstance(resources, Mapping):
        return True
    rules, excluded = (list(items(resources, key)) for key in ("resourceRules", "excludeResourceRules"))
    is_exact = resources.get("matchPolicy") == "Exact"
    if rules and not _any_fits(rules, review, cluster, is_exact=is_exact):
        return False
    if _any_fits(excluded, review, cluster, is_exact=is_exact):
        return False
    sides = [side for side in (review.new, review.old) if side is not None]
    selector = resources.get("objectSelector")
    if not any(_selects(selector, field(side, "metadata", "labels") or {}) for side in sides):
        return False
    selector = resources.get("namespaceSelector")
    return not selector or _selects_namespace(selector, review, cluster)


def _selects_namespace(selector: object, review: Review, cluster: Cluster) -> bool:
    if review.kind == NAMESPACE:
        labels = field(review.new or review.old, "metadata", "labels") or {}
        return _selects(selector, {**labels, NAME_LABEL: review.name})
    if not review.namespace:
        if cluster.resource_of(review.kind)[1] is False:
            return True
        raise Unknown("it selects namespaces, and that of the object is not known")
    namespace = cluster.namespace(review.namespace)
    if namespace is None:
        raise Unknown(f"the labels of namespace {review.namespace} are not known")
    return _selects(selector, namespace["metadata"]["labels"])


def _any_fits(rules: Sequence[Object], review: Review, cluster: Cluster, *, is_exact: bool) -> bool:
    """Tell whether any rule is for a request; by default one for another version of its kind is as well.

    Raises:
        Unknown: One is, if the object as that version.
    """
    rules = [rule for rule in rules if _fits(rule, review, cluster)]
    if any({"*", review.version} & {*(rule.get("apiVersions") or ())} for rule in rules):
        return True
    if not rules or is_exact:
        return False
    definition = cluster.definition(review.kind)
    if definition is None or not definition.converts_nothing:
        raise Unknown(f"it is for another version of {review.kind.kind}")
    return True


def _fits(rule: Object, review: Review, cluster: Cluster) -> bool:
    """Tell whether a rule is for a request, versions apart."""
    is_namespaced = cluster.resource_of(review.kind)[1]
    names, scope = rule.get("resourceNames") or (), rule.get("scope") or "*"
    values = {
        "apiGroups": {"*", review.kind.group},
        "operations": {"*", review.operation},
        "resources": _resources(review.kind, cluster),
    }
    return (
        all(named & {*(rule.get(key) or ())} for key, named in values.items())
        and (not names or review.name in names)
        and (scope == "*" or is_namespaced is None or is_namespaced is (scope == "Namespaced"))
    )


def _selects(selector: object, labels: Mapping[str, str]) -> bool:
    if not selector:
        return True
    try:
        model = LabelSelector.model_validate(selector, by_alias=True, by_name=False)
        return compile_selector(model)({str(key): str(value) for key, value in labels.items()})
    except (SelectorError, ValueError) as error:
        raise Unknown("a selector of it is none") from error
