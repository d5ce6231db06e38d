#!/usr/bin/env bash
# pack.sh ROLLHOOK_BUILD NAME:TAG (--tar FILE | --push): packs the builder image where there is no image builder: from this
# machine's programs (Debian: git, openssh-client, ca-certificates, runc, uidmap, busybox-static), from build.sh's, and
# from ROLLHOOK_BUILD, the program `rollhook-build`. Prints NAME:TAG@DIGEST. The same programs make the same digest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); program=$1 name=$2; shift 2
binaries=$("$here/build.sh")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
root=$work/root
"$here/../../../packaging/image/root.sh" builder "$root" "$program" "$here/buildkit-build" \
  "$binaries"/{buildkitd,buildctl,rootlesskit}
# Not setuid: as root without the capabilities of a whole machine's root, the two may not do what they are for.
python3 "$here/mkimage.py" "$name" "$root" --entrypoint /usr/bin/rollhook-build "$@" \
  --env PATH=/usr/bin:/bin --env HOME=/var/lib/rollhook \
  --capability usr/bin/newuidmap=setuid --capability usr/bin/newgidmap=setgid
