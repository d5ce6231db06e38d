#!/usr/bin/env bash
# Builds what the builder image takes from elsewhere as source: buildkitd and buildctl, and rootlesskit, at fixed versions,
# from Go modules. Needs Go; about 3 minutes on 2 cores the first time, nothing after. Prints the directory of the binaries.
set -euo pipefail
BUILDKIT=0.31.2 ROOTLESSKIT=3.0.1 # rootlesskit's version is the one that this BuildKit is tested with
DIR=${BUILDER_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-cluster/buildkit-$BUILDKIT-rootlesskit-$ROOTLESSKIT}
mkdir -p "$DIR"; exec 9> "$DIR/.lock"; flock 9
if [ ! -e "$DIR/.done" ]; then
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -mod=mod"
  # A module of our own that asks for the commands: `go install` refuses modules whose go.mod excludes or replaces others.
  module() { mkdir "$work/$1"; cd "$work/$1"; printf 'module %s\n\ngo 1.26.0\n' "$1" > go.mod; }
  module buildkit
  buildkit=github.com/moby/buildkit
  go get $buildkit/cmd/buildkitd@v$BUILDKIT $buildkit/cmd/buildctl@v$BUILDKIT >&2
  flags="-s -w -X $buildkit/version.Version=v$BUILDKIT"
  go build -ldflags "$flags" -o "$DIR/buildctl" $buildkit/cmd/buildctl >&2
  go build -ldflags "$flags" -tags 'seccomp netgo osusergo static_build' -o "$DIR/buildkitd" $buildkit/cmd/buildkitd >&2
  module rootlesskit
  rootlesskit=github.com/rootless-containers/rootlesskit/v${ROOTLESSKIT%%.*}
  go get $rootlesskit/cmd/rootlesskit@v$ROOTLESSKIT >&2
  go build -ldflags '-s -w' -tags 'netgo osusergo static_build' -o "$DIR/rootlesskit" $rootlesskit/cmd/rootlesskit >&2
  touch "$DIR/.done"
fi
echo "$DIR"
