# A clone of this project, as far as the guide uses it; the project gets one more commit later.
mkdir project && cp -r "$PROJECT/action.yml" "$PROJECT/Dockerfile" "$PROJECT/requirements-run.lock" project
mkdir project/.ci && cp "$PROJECT/.ci/stamp" project/.ci && cp "$PROJECT/pyproject.toml" project
cd project && git init -q -b main && git add . && git commit -q -m "A project" && cd ..
git clone -q project reconciler
