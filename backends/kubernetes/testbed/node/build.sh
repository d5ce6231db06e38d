#!/usr/bin/env bash
# Builds the small static programs that run in the node's pods, and its git server (src/). Needs Go; seconds. Prints the directory of the
# binaries, which is named by the sources' content, so that an edited program is built again.
set -euo pipefail
cd "$(dirname "$0")/src"
key=$(find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-12)
DIR=${NODE_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-cluster/node-$key}
mkdir -p "$DIR"; exec 9> "$DIR/.lock"; flock 9
if [ ! -e "$DIR/.done" ]; then
  export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"
  for program in pause crash dies gitd forward; do go build -ldflags '-s -w' -o "$DIR/$program" ./$program; done
  for v in v1 v2 v3; do go build -ldflags "-s -w -X main.version=$v" -o "$DIR/app-$v" ./app; done
  touch "$DIR/.done"
fi
echo "$DIR"
