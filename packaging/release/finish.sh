#!/usr/bin/env bash
# Makes the checksums and the installer of a release: finish.sh VERSION URL OUT
# OUT has the archives; URL is the address at which the release's files can be downloaded.
set -euo pipefail
usage='usage: finish.sh VERSION URL OUT'
version=${1:?$usage} url=${2:?$usage} out=${3:?$usage}
template=$(cd "$(dirname "$0")" && pwd)/install.sh
cd "$out"
sums=
for architecture in amd64 arm64; do
  archive=rollhook-$version-linux-$architecture.tar.gz
  [ -f "$archive" ] || { echo "finish.sh: $out has no $archive" >&2; exit 1; }
  sums+="$(sha256sum "$archive" | cut -d ' ' -f 1)  $architecture"$'\n'
done
# The sums stand in the installer itself: whoever trusts it need trust no other file.
VERSION=$version URL=$url SUMS=${sums%$'\n'} awk '
  /^version=/ { print "version=" ENVIRON["VERSION"]; next }
  /^url=/ { print "url=" ENVIRON["URL"]; next }
  /^sums=/ { print "sums='\''" ENVIRON["SUMS"] "'\''"; next }
  { print }' "$template" > install.sh
chmod 755 install.sh
rm -f SHA256SUMS
all=$(sha256sum -- *)
echo "$all" > SHA256SUMS
