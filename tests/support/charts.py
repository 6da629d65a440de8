"""Charts that tests write, packages that render them, and whether Helm's engine is here."""

from importlib.util import find_spec
from typing import Any, Final

import pytest

from reconciler.krm.yaml import emit
from reconciler.names.objects import File, Files

needs_helm: Final = pytest.mark.skipif(
    find_spec("helm_python") is None, reason="The extra `helm` is not installed"
)

KPTFILE: Final = """\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web
pipeline:
  mutators:
  - image: render-helm-chart:v0.3
    configPath: chart.yaml
"""
DEPLOYMENT: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas }}
"""


def chart(name: str = "web", version: str = "1.0.0", **templates: str) -> dict[str, str]:
    """Return the files of a chart below `charts/`; the names of `templates` have `__` for a slash."""
    files = {path.replace("__", "/") + ".yaml": text for path, text in templates.items()}
    return {
        f"charts/{name}/Chart.yaml": f"apiVersion: v2\nname: {name}\nversion: {version}\n",
        f"charts/{name}/values.yaml": "replicas: 1\n",
        **{f"charts/{name}/templates/{path}": text for path, text in files.items()},
    }


def config(name: str = "web", chart_args: dict[str, Any] | None = None, **options: Any) -> str:
    """Return a RenderHelmChart for one chart."""
    given = {
        "apiVersion": "fn.kpt.dev/v1alpha1",
        "kind": "RenderHelmChart",
        "metadata": {"name": name, "annotations": {"config.kubernetes.io/local-config": "true"}},
        "helmCharts": [{"chartArgs": {"name": name, **(chart_args or {})}, "templateOptions": options}],
    }
    return emit(given) + "\n"


def package(files: dict[str, str], configuration: str | None = None) -> Files:
    """Return a package with a chart and its configuration."""
    texts = {"Kptfile": KPTFILE, "chart.yaml": configuration or config(), **files}
    return {path: File.of(text.encode()) for path, text in texts.items()}
