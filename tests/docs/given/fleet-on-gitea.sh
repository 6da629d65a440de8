# What the guide to Gitea made: the control repository acme/fleet.
reconciler init fleet --forge gitea --upstream-url https://gitea.example.com/acme/blueprints.git \
  --downstream-url https://gitea.example.com/acme/east.git
cd fleet && git init -q && git add . && git commit -q -m "Describe the fleet"
git push -q https://gitea.example.com/acme/fleet.git main && cd .. && rm -rf fleet
