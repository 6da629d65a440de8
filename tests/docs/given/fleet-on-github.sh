# What the guide to GitHub made: the control repository acme/fleet, applied and merged.
reconciler init fleet --forge github --upstream-url https://github.com/acme/blueprints.git \
  --downstream-url https://github.com/acme/east.git
cat >> fleet/reconciler.yaml <<'EOF'
  credentials:
  - prefix: https://github.com/acme/
    appId: "1"
    installationId: "2"
    appKeyEnv: RECONCILER_APP_KEY
EOF
cd fleet && git init -q && git add . && git commit -q -m "Describe the fleet"
git remote add origin https://github.com/acme/fleet.git && git push -q -u origin main
elsewhere workflow .github/workflows/reconciler-apply.yml apply
elsewhere merge acme/east web
elsewhere workflow .github/workflows/reconciler-apply.yml apply
