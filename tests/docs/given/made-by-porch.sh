# What a Porch made in two clusters: web at revision 1, by a variant in the east, with a hotfix, and by a set in the west.
reconciler demo --layout tutorial world > /dev/null && cd world && rm -rf fleet
for cluster in east west; do
  git clone -q $cluster.git $cluster 2> /dev/null && mkdir $cluster/web && cd $cluster
  git -C ../blueprints show web/v1:web/deployment.yaml > web/deployment.yaml
  cat > web/Kptfile <<END
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web
upstream:
  type: git
  git:
    repo: $HOME/world/blueprints
    directory: web
    ref: web/v1
  updateStrategy: resource-merge
upstreamLock:
  type: git
  git:
    repo: $HOME/world/blueprints
    directory: web
    ref: web/v1
    commit: $(git -C ../blueprints rev-parse web/v1)
END
  cat > web/package-context.yaml <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: kptfile.kpt.dev
  annotations:
    config.kubernetes.io/local-config: "true"
data:
  name: web
END
  git add . && git commit -q -m "Approve web" && git tag web/v1 && git push -q origin HEAD:main web/v1
  cd ..
done
cd east && sed -i 's/replicas: 1/replicas: 5/' web/deployment.yaml
git commit -q -a -m "The east serves more people" && git push -q origin HEAD:main && cd ..
