# A first commit in the repository of the cluster, as forges offer it.
git init -q east && cd east && echo "# East" > README.md && git add . && git commit -q -m "Initial commit"
git push -q "$FORGE_ADDRESS/acme/east.git" main && cd .. && rm -rf east
