"""Upstream packages: small drawn ones, and real ones of the corpus."""

from functools import cache

from tests.support.ci import IN_CI, lacking
from tests.support.corpus import ABSENT, CORPUS, corpus_package

KPTFILE = """\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: {name}
info:
  description: The {name} package
"""
DEPLOYMENT = """\
# The main workload.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: 1
  strategy: rolling
  template:
    metadata:
      labels:
        app: {name}
    spec:
      containers:
      - name: main
        image: registry.example/{name}:v1
        env:
        - name: LEVEL
          value: info
"""
SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  tier: bronze # kpt-set: ${tier}
  color: red
  size: small
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: limits
data:
  rate: ten
  burst: twenty
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}-front
  annotations:
    example.com/note: plain
spec:
  type: ClusterIP
"""
POINT = """\
apiVersion: example.com/v1
kind: Site
metadata:
  name: site
  annotations:
    config.kubernetes.io/local-config: "true"
    kpt.dev/config-injection: {need}
spec: {{}}
"""
DRAWN = ("web", "db", "site")
CORPUS_NAMES = ("rootsync", "vlanindex", "repository", "flux-gitrepo-kustomize", "pkg-example-ric")


def drawn_package(name: str) -> dict[str, str]:
    """Return the files of a drawn package at its first revision."""
    files = {
        "Kptfile": KPTFILE.format(name=name),
        "deploy.yaml": DEPLOYMENT.format(name=name),
        "config/settings.yaml": SETTINGS,
        "service.yaml": SERVICE.format(name=name),
        "README.md": f"# {name}\n\nA package.\n\nThe end.\n",
    }
    if name == "site":
        files["point.yaml"] = POINT.format(need="optional")
    return files


@cache
def corpus_names() -> tuple[str, ...]:
    """Return the real packages that are here; without the corpus none, and in CI that is a fault."""
    if not CORPUS.is_dir():
        if IN_CI:
            lacking(ABSENT)
        return ()
    present = {kptfile.parent.name for kptfile in CORPUS.rglob("Kptfile")}
    return tuple(name for name in CORPUS_NAMES if name in present)


def package_files(name: str) -> dict[str, bytes]:
    """Return the files of an upstream package at its first revision."""
    if name in DRAWN:
        return {path: text.encode() for path, text in drawn_package(name).items()}
    return corpus_package(name)
