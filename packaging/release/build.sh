#!/usr/bin/env bash
# Packs the programs of a release for this machine's architecture: build.sh VERSION OUT
# OUT then has rollhook-VERSION-linux-{amd64,arm64}.tar.gz. The same sources give the same archive.
# BINARIES=DIR packs programs that were built already.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:?usage: build.sh VERSION OUT} out=${2:?usage: build.sh VERSION OUT}
case $(uname -m) in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) echo "build.sh: releases are for x86_64 and aarch64, not for $(uname -m)" >&2; exit 1 ;;
esac
programs=(rollhook rollhook-server rollhook-build)
if [ -z "${BINARIES:-}" ]; then
  cargo build --locked --profile dist -p rollhook-cli -p rollhook-server -p rollhook-command
  BINARIES=${CARGO_TARGET_DIR:-$PWD/target}/dist
fi

name=rollhook-$version-linux-$architecture
draft=$(mktemp -d)
trap 'rm -rf "$draft"' EXIT
mkdir "$draft/$name"
for program in "${programs[@]}"; do install -m 755 "$BINARIES/$program" "$draft/$name/"; done
install -m 644 LICENSE-APACHE LICENSE-MIT CHANGELOG.md "$draft/$name/"
mkdir -p "$out"
# One time, one owner and one order for all files.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" \
  -C "$draft" -cf - "$name" | gzip -9n > "$out/$name.tar.gz"
echo "$out/$name.tar.gz"
