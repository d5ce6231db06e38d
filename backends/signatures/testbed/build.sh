#!/usr/bin/env bash
# Builds cosign, and the authority that signs for it offline, into ~/.cache/rollhook-tools; with `all`, also the version before, which
# writes the older forms. It may be repeated; what is there already costs nothing. Some minutes with 2 cores.
set -euo pipefail
cd "$(dirname "$0")"
COSIGN_3=3.1.3 COSIGN_2=2.6.5
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-tools

build() { # NAME MODULE VERSION: cosign as cosign-NAME
  local stamp=$cache/cosign-$1-$3 draft
  [ ! -e "$stamp" ] || return 0
  draft=$(mktemp -d)
  (
    cd "$draft"
    printf 'module tools\n\ngo 1.26.0\n' > go.mod
    go get "$2/cmd/cosign@v$3"
    CGO_ENABLED=0 GOFLAGS=-mod=mod go build -trimpath -ldflags '-s -w' -o cosign "$2/cmd/cosign"
  )
  mkdir -p "$cache/bin"
  mv "$draft/cosign" "$cache/bin/cosign-$1"
  touch "$stamp"
  rm -rf "$draft"
}

build 3 github.com/sigstore/cosign/v3 $COSIGN_3
[ "${1:-}" != all ] || build 2 github.com/sigstore/cosign/v2 $COSIGN_2
mkdir -p "$cache/bin"
if ! cmp -s authority.go "$cache/authority.go"; then
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$cache/bin/signing-authority" authority.go
  cp authority.go "$cache/authority.go"
fi
