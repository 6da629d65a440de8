"""What fuzzing starts from: small inputs of every target, with each thing that the format has."""

from reconciler.git.trees import RawEntry
from tests.support.git import format_tree
from tools.fuzz import archives, samples
from tools.fuzz.shapes import SEPARATOR

_DEPLOYMENT = b"""\
apiVersion: apps/v1
kind: Deployment # what
metadata:
  name: web
  annotations: {a: "1", 'b': two}
spec:
  replicas: 1
  template:
    spec:
      containers:
      - name: main
        image: x:v1
        args: ["--a", -b, 0777, 1e3, ~, null, 1:30]
        text: |-
          one
          two
"""
_YAML = [
    _DEPLOYMENT,
    b"a: &x {b: 1}\nc: *x\n---\n- 1\n- - 2\n  - 3\n...\n--- !!str 5\n",
    b"? a\n: b\n'c d': >+\n  folded\n\n# end\n",
    "\ufeffä: ß\r\nb: 2\r\n".encode(),
    b"[1, {a: b}, 'it''s', \"\\u00e4\\n\"]\n",
]
_KPTFILE = b"""\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: pkg
  annotations:
    config.kubernetes.io/local-config: "true" # keep
upstream: {type: git, git: {repo: https://x/y, directory: /a, ref: v1}}
pipeline:
  mutators:
  - image: set-labels:v0.2.0
    configMap: {a: b}
"""
_RESOURCES = b"""\
apiVersion: config.kubernetes.io/v1
kind: ResourceList
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: a
    annotations:
      internal.config.kubernetes.io/path: a/b.yaml
      internal.config.kubernetes.io/index: "0"
  data: {a: b}
results:
- message: no
  severity: error
  resourceRef: {apiVersion: v1, kind: ConfigMap, name: a}
  field: {path: data.a, currentValue: 1, proposedValue: 2}
  file: {path: a.yaml, index: 0}
  tags: {a: b}
"""
_CONFIGURATION = b"""\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {name: fleet}
spec:
  manifests: [manifests]
  defaultNamespace: default
  lock: {mode: reviewed}
  forges:
  - {prefix: "https://github.com/a", type: github}
  credentials:
  - {prefix: "https://github.com/a", tokenEnv: TOKEN}
  pullRequests: {groupBy: repository, writesPerMinute: 5, labels: [a]}
  limits: {packageBytes: 10Mi, readSeconds: 20}
  dashboard: true
"""
_RECORD = b"""\
{"apiVersion": "reconciler.dev/v1alpha1", "kind": "PackageVariantRecord", "namespace": "default",
 "name": "web", "uid": "u", "manifest": "web.yaml", "url": "/srv/edge", "path": "web", "repository": "edge",
 "spec": {"upstream": {"repo": "blueprints", "revision": 1}}}
"""
_OID = "1234567890abcdef1234567890abcdef12345678"
_COMMIT = f"""\
tree {_OID}
parent {_OID}
author Kim <kim@example.com> 1767225600 +0100
committer Kim <kim@example.com> 1767225600 -0000
encoding ISO-8859-1

Update web

kpt: {{"package": "web"}}
""".encode()
_TREE = format_tree(
    RawEntry(mode, name, bytes.fromhex(_OID))
    for mode, name in [
        (b"100644", b"Kptfile"),
        (b"40000", b"sub"),
        (b"120000", b"link"),
        (b"160000", b"module"),
        (b"100755", b".gi\xcc\x81t"),
    ]
)
_REFS = [
    "refs/heads/drafts/a/b/w-1",
    "refs/tags/a/v1",
    "refs/heads/proposed/a/w",
    "refs/heads/deletionProposed/a/v2",
]

SEEDS: dict[str, list[bytes]] = {
    "yaml": _YAML,
    "edit": [bytes([n, n]) + text for n, text in enumerate(_YAML)],
    "merge": [
        SEPARATOR.join(
            [_DEPLOYMENT, _DEPLOYMENT.replace(b"x:v1", b"x:v2"), _DEPLOYMENT.replace(b": 1\n", b": 3\n")]
        ),
        SEPARATOR.join([b"a: 1\nb: [1]\n", b"a: 2\nb: [1, 2]\n", b"a: 1\nb: [0, 1]\nc: # x\n"]),
    ],
    "kptfile": [_KPTFILE, _KPTFILE.replace(b"  annotations:\n", b"  annotations: {}\n  labels:\n")],
    "resource-list": [_RESOURCES],
    "configuration": [_CONFIGURATION],
    "ref": [ref.encode() for ref in _REFS],
    "record": [_RECORD],
    "commit": [_COMMIT],
    "tree": [_TREE],
    **archives.SEEDS,
    **samples.SEEDS,
}
