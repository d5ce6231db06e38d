#!/usr/bin/env bash
# Packs the Helm chart of a release, with the release's image by its digest: chart.sh VERSION IMAGE DIGEST OUT
# Prints the file. Needs helm.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage='usage: chart.sh VERSION IMAGE DIGEST OUT'
version=${1:?$usage} image=${2:?$usage} digest=${3:?$usage} out=${4:?$usage}
draft=$(mktemp -d)
trap 'rm -rf "$draft"' EXIT
cp -r packaging/helm/rollhook "$draft/"
sed -i -e "s|^  repository: registry\.example\.com/rollhook-server$|  repository: $image|" \
  -e "s|^  digest: \"\"$|  digest: $digest|" "$draft/rollhook/values.yaml"
for line in "  repository: $image" "  digest: $digest"; do
  grep -qxF "$line" "$draft/rollhook/values.yaml" || { echo "chart.sh: values.yaml has no place for $line" >&2; exit 1; }
done
helm package "$draft/rollhook" --version "$version" --app-version "$version" -d "$out" > /dev/null
echo "$out/rollhook-$version.tgz"
