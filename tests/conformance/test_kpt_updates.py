"""What kpt makes of packages with sub-packages: equal in `compatible` mode, else as is documented."""

from typing import Any

import pytest
import yaml

from reconciler.names.objects import Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from tests.support.conformance import OWN, load_yaml
from tests.support.merges import attempt, difference, files_of

CASES = load_yaml(OWN / "kpt-updates.yaml")
ROWS = [
    (case, strategy, mode)
    for case in CASES
    for strategy in Strategy
    for mode in MergeMode
    if strategy in case or (mode is MergeMode.DEFAULT and strategy in case.get("default", ()))
]
RESOURCES = {
    "C": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  key: {}\n",
    "D": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: {}\n",
    "S": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ntype: {}\n",
}
CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stores.example.com}
spec:
  group: example.com
  names: {kind: Store, plural: stores}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              items:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, properties: {name: {type: string}, amount: {type: integer}}}
"""
STORE = "apiVersion: example.com/v1\nkind: Store\nmetadata:\n  name: store\nspec:\n  items:"
UPSTREAM = "upstream: {{type: git, git: {{repo: 'https://x.example/{0}', directory: /, ref: v{1}}}{2}}}\n"
LOCK = """\
upstreamLock: {{type: git, git: {{repo: 'https://x.example/{0}', directory: /, ref: v{1}, commit: {0}{1}}}}}
"""
STRATEGIES = {"replaced": ", updateStrategy: force-delete-replace"}
CONDITIONS = {
    "failed": "  - {type: Rendered, status: 'False', reason: RenderFailed, message: it failed}\n",
    "ready": "  - {type: Ready, status: 'True', reason: AllReady}\n",
    "rendered": "  - {type: Rendered, status: 'True', reason: RenderSuccess}\n",
}
STEPS = "  renderStatus:\n    mutationSteps:\n    - {image: set-labels, exitCode: 0}\n"
NO_FUNCTIONS = {"named", "unfetched", *STRATEGIES, *CONDITIONS}


def kptfile(directory: str, upstream: str, parts: list[str]) -> str:
    """Return the text of a Kptfile."""
    name = "other" if "named" in parts else directory.strip("/") or "pkg"
    text = f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\n"
    strategy = "".join(STRATEGIES.get(part, "") for part in parts)
    text += UPSTREAM.format(*upstream, strategy) if upstream else ""
    text += LOCK.format(*upstream) if upstream and "unfetched" not in parts else ""
    functions = "".join(f"  - image: {part}:v1\n" for part in parts if part not in NO_FUNCTIONS)
    text += f"pipeline:\n  mutators:\n{functions}" if functions else ""
    conditions = "".join(CONDITIONS[part] for part in parts if part in CONDITIONS)
    text += f"status:\n  conditions:\n{conditions}" if conditions else ""
    return text + (STEPS if {"rendered", "failed"} & set(parts) else "")


def side(words: str) -> Files:
    """Return the files that words stand for."""
    files = {} if "-K" in words.split() else {"Kptfile": kptfile("", "", [])}
    for word in words.replace("-K", "").split():
        path, _, value = word.partition("=")
        directory, slash, name = path.rpartition("/")
        start = directory + slash
        kind, *parts = name.split("+")
        if kind == "K":
            files[f"{start}Kptfile"] = kptfile(directory, value, parts)
        elif kind == "X":
            files[f"{start}crd.yaml"] = CRD
        elif kind == "L":
            items = "".join(
                "\n  - name: {}\n    amount: {}".format(*i.split(":")) for i in value.split(",") if i
            )
            files[f"{start}l.yaml"] = f"{STORE}{items or ' []'}\n"
        elif kind in RESOURCES:
            files[f"{start}{kind.lower()}.yaml"] = RESOURCES[kind].format(value or 1)
        else:
            files[f"{start}{kind}"] = f"{value}\n"
    return files_of(files)


def test_sides_are_read_as_they_are_meant() -> None:
    assert list(side("-K a/D=5 notes=x")) == ["a/d.yaml", "notes"]
    assert b"replicas: 5" in side("D=5")["d.yaml"].data
    assert b"ref: v2" in side("s/K=a2")["s/Kptfile"].data


def in_order(files: Files) -> Files:
    """Return files with the lists of stores sorted, whose order is not decided."""
    stores = {path: file for path, file in files.items() if path.endswith("l.yaml")}
    items = {path: yaml.safe_load(file.data)["spec"]["items"] for path, file in stores.items()}
    return {**files, **files_of({p: str(sorted(i, key=str)) for p, i in items.items()})}


@pytest.mark.parametrize(
    ("case", "strategy", "mode"), ROWS, ids=lambda v: v["shows"] if isinstance(v, dict) else v
)
def test_update_is_as_kpt_makes_it(case: dict[str, Any], strategy: Strategy, mode: MergeMode) -> None:
    names = ("base", "upstream", "local")
    texts = {name: case.get(name, case["base"]) for name in names}
    others = case.get("here", {}) | (case.get("default", {}) if mode is MergeMode.DEFAULT else {})
    wanted = others.get(strategy) or case[strategy]
    winner = OnConflict.ASK if wanted == "asks" else OnConflict.UPSTREAM
    options = {"strategy": strategy, "mode": mode, "on_conflict": winner}

    files, conflicts, refused = attempt(*(side(texts[name]) for name in names), **options)

    assert refused == (wanted == "refused")
    if wanted == "asks":
        assert conflicts
    if wanted not in ("refused", "asks"):
        assert difference(in_order(files), in_order(side(texts.get(wanted, wanted))), loose=True) == {}
