# The fleet of the tutorial: web, revision 1, in east and west; the package has a revision 2.
mkdir -p blueprints/web && cd blueprints && cat > web/Kptfile <<'EOF'
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web
EOF
cat > web/deployment.yaml <<'EOF'
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - name: web
        image: nginx:1.27
EOF
git init -q && git add . && git commit -q -m "Add web" && git tag web/v1
sed -i 's/nginx:1.27/nginx:1.29/' web/deployment.yaml && git commit -q -a -m "Use nginx 1.29" && git tag web/v2
cd .. && git init -q --bare east.git && git init -q --bare west.git
reconciler init fleet --upstream-url "$HOME/blueprints" --downstream-url "$HOME/east.git" && cd fleet
cat > manifests/package-variant-sets.yaml <<'EOF'
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: web
spec:
  upstream:
    repo: blueprints
    package: web
    revision: 1
  targets:
  - repositorySelector:
      matchLabels:
        serves: web
EOF
cat > manifests/repositories.yaml <<EOF
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: blueprints
spec:
  type: git
  git:
    repo: $HOME/blueprints
    branch: main
EOF
for cluster in east west; do cat >> manifests/repositories.yaml <<EOF
---
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: $cluster
  labels:
    serves: web
spec:
  type: git
  deployment: true
  git:
    repo: $HOME/$cluster.git
    branch: main
    createBranch: true
EOF
done
git init -q && git add . && git commit -q -m "Describe the fleet"
reconciler apply && reconciler approve --all && reconciler apply
