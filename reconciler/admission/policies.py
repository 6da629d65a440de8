"""ValidatingAdmissionPolicies with bindings and parameters: what they would answer to one object.

Only a validation that is plainly false refuses. What cannot be evaluated, or matched, is not judged.

Source: apiserver pkg/admission/plugin/policy/validating; pkg/admission/plugin/policy/matching.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from reconciler.admission.cluster import NAME_LABEL, NAMESPACE, POLICY, UNASKED, Cluster
from reconciler.admission.defaults import TEMPLATES, field, items
from reconciler.admission.immutable import Fault
from reconciler.api.meta import LabelSelector, SelectorError, compile_selector
from reconciler.cel.check import Failure
from reconciler.cel.kubernetes import POLICY as VARIABLES
from reconciler.cel.kubernetes import Expressions
from reconciler.names.ids import GroupKind

Object = Mapping[str, Any]
_VARIABLE: Final = re.compile(r"\bvariables\.([A-Za-z_]\w*)")


class Review(NamedTuple):
    """A request as policies see it; `old` is None for a new object, `new` for one that goes."""

    operation: str
    kind: GroupKind
    version: str
    namespace: str
    name: str
    old: Object | None
    new: Object | None


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
        rule = f"{POLICY.kind} {_name(policy)}"
        try:
            if not _matches(field(policy, "spec", "matchConstraints"), review, cluster):
                continue
            for binding in bindings:
                if _matches(field(binding, "spec", "matchResources"), review, cluster):
                    yield from _of_binding(policy, binding, review, cluster)
        except Unknown as unknown:
            text = f"policy {_name(policy)} cannot be judged: {unknown}"
            yield PolicyFault(Fault("", text, is_sure=False), rule)


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
            if {"*", other.group} & groups and {"*", "*/*", cluster.resource_of(other)[0]} & plurals:
                return True
    return False


def _name(value: Object) -> str:
    return str(field(value, "metadata", "name"))


@cache
def _expressions() -> Expressions | None:
    try:
        return Expressions(VARIABLES)
    except ImportError:
        return None


def _of_binding(policy: Object, binding: Object, review: Review, cluster: Cluster) -> Iterator[PolicyFault]:
    expressions, name = _expressions(), _name(policy)
    if expressions is None:
        raise Unknown("this platform has no CEL")
    denies, rule = (
        "Deny" in (field(binding, "spec", "validationActions") or ["Deny"]),
        f"{POLICY.kind} {name}",
    )
    for params in _params(policy, binding, review, cluster):
        if isinstance(params, str):
            # A missing parameter is an error of the policy, and its failurePolicy decides about errors.
            if field(policy, "spec", "failurePolicy") != "Ignore":
                yield PolicyFault(Fault("", f"policy {name}: {params}"), rule, denies)
            continue
        evaluation = _Evaluation(expressions, policy, review, params, cluster)
        if not all(
            evaluation.holds(str(c.get("expression"))) for c in items(policy, "spec", "matchConditions")
        ):
            continue
        for validation in items(policy, "spec", "validations"):
            expression = str(validation.get("expression"))
            if not evaluation.holds(expression):
                message = (
                    evaluation.message(validation) or f"failed expression: {' '.join(expression.split())}"
                )
                yield PolicyFault(Fault("", f"policy {name}: {message}"), rule, denies)


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
    """Yield the parameters of a binding, None where its policy has none; a text is why it denies.

    Raises:
        Unknown: The snapshot may lack some.
    """
    param_kind, reference = field(policy, "spec", "paramKind"), field(binding, "spec", "paramRef")
    if not isinstance(param_kind, Mapping) or not isinstance(reference, Mapping):
        yield None
        return
    kind = GroupKind(str(param_kind.get("apiVersion")).rpartition("/")[0], str(param_kind.get("kind")))
    namespace = str(reference.get("namespace") or "")
    is_namespaced = cluster.resource_of(kind)[1]
    if not namespace and is_namespaced is not False:
        namespace = review.namespace
    name, selector = reference.get("name"), reference.get("selector")
    members = [
        value
        for value in cluster.objects(kind)
        if str(field(value, "metadata", "namespace") or "")
        in ({namespace} if is_namespaced is not False else {""})
        if (name and _name(value) == name)
        or (not name and _selects(selector, field(value, "metadata", "labels") or {}))
    ]
    if name and members:
        yield cluster.completed(members[0])
        return
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
    if rules and not any(_fits(rule, review, cluster, is_exact=is_exact) for rule in rules):
        return False
    if any(_fits(rule, review, cluster, is_exact=is_exact) for rule in excluded):
        return False
    sides = [side for side in (review.new, review.old) if side is not None]
    selector = resources.get("objectSelector")
    if not any(_selects(selector, field(side, "metadata", "labels") or {}) for side in sides):
        return False
    selector = resources.get("namespaceSelector")
    return not selector or _selects_namespace(selector, review, cluster)


def _selects_namespace(selector: object, review: Review, cluster: Cluster) -> bool:
    if review.kind == NAMESPACE:
        sides = [side for side in (review.new, review.old) if side is not None]
        return any(_selects(selector, _space_labels(side, review.name)) for side in sides)
    if not review.namespace:
        if cluster.resource_of(review.kind)[1] is False:
            return True
        raise Unknown("it selects namespaces, and that of the object is not known")
    namespace = cluster.namespace(review.namespace)
    if namespace is None:
        raise Unknown(f"the labels of namespace {review.namespace} are not known")
    return _selects(selector, _space_labels(namespace, review.namespace))


def _space_labels(namespace: Object, name: str) -> Mapping[str, str]:
    return {**(field(namespace, "metadata", "labels") or {}), NAME_LABEL: name}


def _fits(rule: Object, review: Review, cluster: Cluster, *, is_exact: bool) -> bool:
    resource, is_namespaced = cluster.resource_of(review.kind)
    names, scope = rule.get("resourceNames") or (), rule.get("scope") or "*"
    values = {
        "apiGroups": (review.kind.group,),
        "operations": (review.operation,),
        "resources": (resource, "*/*"),
    }
    is_for = (
        all({"*", *named} & {*(rule.get(key) or ())} for key, named in values.items())
        and (not names or review.name in names)
        and (scope == "*" or is_namespaced is None or is_namespaced is (scope == "Namespaced"))
    )
    if not is_for or {"*", review.version} & {*(rule.get("apiVersions") or ())}:
        return is_for
    # By default a rule for one version of a kind is for all of them, and the policy sees that version.
    definition = cluster.definition(review.kind)
    if not is_exact and (definition is None or not definition.converts_nothing):
        raise Unknown(f"it is for another version of {review.kind.kind}")
    return not is_exact


def _selects(selector: object, labels: Mapping[str, str]) -> bool:
    if not selector:
        return True
    try:
        model = LabelSelector.model_validate(selector, by_alias=True, by_name=False)
        return compile_selector(model)({str(key): str(value) for key, value in labels.items()})
    except (SelectorError, ValueError) as error:
        raise Unknown("a selector of it is none") from error
