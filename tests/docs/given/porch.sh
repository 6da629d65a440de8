# What Porch made in acme/east: the package web, a hotfix, and the package cache, which belongs to a set.
git clone -q "$FORGE_ADDRESS/acme/blueprints.git" && cd blueprints
cp -r web cache && sed -i 's/web/cache/g; s/nginx:1.27/redis:7/' cache/*
git add . && git commit -q -m "Add cache" && git tag cache/v1
sed -i 's/nginx:1.27/nginx:1.29/' web/deployment.yaml && git commit -q -a -m "Use nginx 1.29" && git tag web/v2
git push -q origin main cache/v1 web/v2 && cd ..
git clone -q "$FORGE_ADDRESS/acme/east.git" && cd east
for package in web cache; do
  kpt pkg get "https://gitea.example.com/acme/blueprints.git/$package@$package/v1" --for-deployment 2>/dev/null >/dev/null
  sed -i 's#directory: /#directory: #' "$package/Kptfile"
  sed -i 's#acme/blueprints$#acme/blueprints.git#' "$package/Kptfile"
  git add . && git commit -q -m "Approve $package" && git tag "$package/v1"
done
sed -i 's/replicas: 1/replicas: 5/' web/deployment.yaml && git commit -q -a -m "The east serves more people"
git push -q origin main web/v1 cache/v1 && cd .. && rm -rf blueprints east
