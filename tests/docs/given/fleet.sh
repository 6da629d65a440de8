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
reconciler init fleet --upstream-url "$HOME/blueprints" --downstream-url "$HOME/east.git" \
  --downstream-url "$HOME/west.git" && cd fleet
git init -q && git add . && git commit -q -m "Describe the fleet"
reconciler apply && reconciler approve --all && reconciler apply
