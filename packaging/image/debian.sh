#!/usr/bin/env bash
# Makes Debian's slim base out of its packages, for tests, which reach no image registry: from the package sources of this
# machine. Needs mmdebstrap and root; half a minute, and nothing after. Prints the directory.
set -euo pipefail
SUITE=bookworm
DIR=${IMAGE_BASE:-${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-tools/debian-$SUITE}
mkdir -p "$(dirname "$DIR")"; exec 9> "$DIR.lock"; flock 9
if [ ! -e "$DIR" ]; then
  work=$(mktemp -d "$DIR.XXXXXX"); trap 'rm -rf "$work"' EXIT
  sources() {
    apt-get indextargets 'Created-By: Packages' 'Origin: Debian' --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' | grep " $SUITE"
  }
  [ -n "$(sources)" ] || apt-get update -qq >&2
  sources | mmdebstrap --quiet --variant=minbase --format=directory $SUITE "$work/root" - >&2
  rm -rf "$work"/root/dev/*
  mv "$work/root" "$DIR"
fi
echo "$DIR"
