# First files of control repositories, not committed yet.
reconciler init fleet --forge github --upstream-url https://github.com/acme/blueprints.git \
  --downstream-url https://github.com/acme/east.git
reconciler init fleet-on-gitlab --forge gitlab --upstream-url https://gitlab.com/acme/blueprints.git \
  --downstream-url https://gitlab.com/acme/east.git
