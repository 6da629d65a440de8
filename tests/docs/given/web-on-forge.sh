# The package web, revision 1, in acme/blueprints of the forge; the repositories of the clusters are empty.
mkdir -p web && cat > web/Kptfile <<'EOF'
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
git init -q blueprints && mv web blueprints/ && cd blueprints
git add . && git commit -q -m "Add web" && git tag web/v1
git remote add origin "$FORGE_ADDRESS/acme/blueprints.git" && git push -q origin main web/v1
cd .. && rm -rf blueprints
