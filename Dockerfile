# The command in an image: non-root, with git and ssh, and nothing that only a build needs.
#
#   docker build -t reconciler .
#   docker run --rm --read-only --tmpfs /tmp reconciler --help
#
# The base is Debian or derived from it; renovate.json adds and updates its digest.
# No step depends on the architecture: amd64 and arm64 are built from the same lines.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update -qq \
 && apt-get install -qq -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/reconciler
COPY requirements-run.lock /src/
RUN /opt/reconciler/bin/python -m pip install --no-cache-dir --disable-pip-version-check --quiet \
      --require-hashes --only-binary :all: -r /src/requirements-run.lock
COPY pyproject.toml README.md LICENSE CHANGELOG.md requirements-build.lock /src/
COPY reconciler /src/reconciler
COPY templates /src/templates
COPY docs/schemas /src/docs/schemas
COPY .github/examples /src/.github/examples
COPY deploy/gitlab /src/deploy/gitlab
COPY deploy/gitea /src/deploy/gitea
COPY deploy/azure /src/deploy/azure
COPY deploy/bitbucket /src/deploy/bitbucket
RUN python3 -m venv /opt/build \
 && /opt/build/bin/python -m pip install --no-cache-dir --disable-pip-version-check --quiet \
      --require-hashes --only-binary :all: -r /src/requirements-build.lock \
 && /opt/build/bin/python -m pip wheel --no-cache-dir --disable-pip-version-check --quiet \
      --no-deps --no-build-isolation --wheel-dir /wheel /src \
 && /opt/reconciler/bin/python -m pip install --no-cache-dir --disable-pip-version-check --quiet \
      --no-deps --no-index /wheel/*.whl \
 && /opt/reconciler/bin/python -m pip freeze > /opt/reconciler/requirements.txt \
 && /opt/reconciler/bin/python -m pip uninstall --quiet --yes pip setuptools \
 && /opt/reconciler/bin/python -I -c "import reconciler.run, reconciler.cli.main"

FROM ${BASE_IMAGE}
ARG VERSION=0
ARG REVISION=unknown
ARG SOURCE=
LABEL org.opencontainers.image.title="reconciler" \
      org.opencontainers.image.description="Stateless GitOps batch reconciler for package fleets on plain Git" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
# ssh asks for the name of its user, so there is one; it owns nothing.
RUN apt-get update -qq \
 && apt-get install -qq -y --no-install-recommends ca-certificates git openssh-client python3 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 65532 reconciler \
 && useradd --uid 65532 --gid 65532 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin reconciler
COPY --from=build /opt/reconciler /opt/reconciler
ENV PATH=/opt/reconciler/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
# Isolated: neither the working directory nor PYTHON* variables of a pod add modules.
ENTRYPOINT ["/opt/reconciler/bin/python", "-I", "-m", "reconciler.cli.main"]
CMD ["--help"]
