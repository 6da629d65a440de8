# The package web, revision 1, in acme/blueprints of the forge; the repositories of the clusters are empty.
reconciler demo --layout tutorial world
git -C world/blueprints push -q "$FORGE_ADDRESS/acme/blueprints.git" web/v1~0:refs/heads/main web/v1
rm -rf world
