#!/usr/bin/env bash
# builder-image.sh STATE_DIR ROLLHOOK_BUILD: puts the builder image (../../builder-image), with this `rollhook-build` in it,
# into the bed's registry, and busybox:1, an image with a shell that Dockerfiles may begin with. Prints the builder image
# by digest. Only tests that build need it, so that up.sh leaves it to them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); image=$here/../../builder-image; . "$1/env"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,dev,etc,proc,sys,tmp}; chmod 1777 "$work/tmp"
cp "$(command -v busybox)" "$work/bin/busybox"
for command in sh cat echo id mkdir sleep tr; do ln -s busybox "$work/bin/$command"; done
python3 "$image/mkimage.py" "$REGISTRY/busybox:1" "$work" --entrypoint /bin/sh --env PATH=/bin --push > /dev/null
"$image/pack.sh" "$2" "$REGISTRY/rollhook-build:1" --push | sed 's/:1@/@/'
