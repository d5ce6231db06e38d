#!/usr/bin/env bash
# pack.sh ROLLHOOK_BUILD NAME:TAG (--tar FILE | --push): packs the builder image from this machine's programs (Debian:
# git, openssh-client, ca-certificates, runc, uidmap, busybox-static), from build.sh's, and from ROLLHOOK_BUILD, the program
# `rollhook-build`. Prints NAME:TAG@DIGEST. The same programs make the same digest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); program=$1 name=$2; shift 2
needed=(git ssh runc busybox newuidmap newgidmap)
for command in "${needed[@]}"; do
  command -v "$command" > /dev/null || { echo "pack.sh: $command is not installed (see README.md)" >&2; exit 1; }
done
binaries=$("$here/build.sh")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
umask 022; root=$work/root
mkdir -p "$root"/{bin,dev,etc/ssl/certs,proc,run,sys,tmp,usr/bin,usr/lib/git-core,var/lib/rollhook}
chmod 1777 "$root/tmp" "$root/var/lib/rollhook" # the second holds a build's state; any user may run the image

put() { mkdir -p "$root$(dirname "$2")"; cp -L "$1" "$root$2"; chmod "${3:-755}" "$root$2"; }
libraries() { # none, where a program is static
  local library
  for library in $(ldd "$1" 2> /dev/null | grep -o '/[^ ]*' | grep -v ':$'); do [ -e "$root$library" ] || put "$library" "$library"; done
}
put "$program" /usr/bin/rollhook-build
put "$here/buildkit-build" /usr/bin/buildkit-build
for command in buildkitd buildctl rootlesskit; do put "$binaries/$command" /usr/bin/$command; done
for command in git ssh runc; do put "$(command -v $command)" /usr/bin/$command; done
for command in newuidmap newgidmap; do put "$(command -v $command)" /usr/bin/$command; done
core=$(git --exec-path)
put "$core/git-remote-http" /usr/lib/git-core/git-remote-http
ln -s git-remote-http "$root/usr/lib/git-core/git-remote-https"
ln -s ../../bin/git "$root/usr/lib/git-core/git"
for file in "$root"/usr/bin/* "$root"/usr/lib/git-core/git-remote-http; do libraries "$file"; done
put "$(command -v busybox)" /bin/busybox
for command in sh cat kill ls mkdir pwd rm sed sleep tail; do ln -s busybox "$root/bin/$command"; done
put /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt 644
# The user of the profile `rootless`, and the ids that it may hand out to the steps of a build.
printf 'root:x:0:0::/root:/bin/sh\nbuild:x:1000:1000::/var/lib/rollhook:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\nbuild:x:1000:\n' > "$root/etc/group"
for file in subuid subgid; do echo build:100000:65536 > "$root/etc/$file"; done
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# Not setuid: as root without the capabilities of a whole machine's root, the two may not do what they are for.
python3 "$here/mkimage.py" "$name" "$root" --entrypoint /usr/bin/rollhook-build "$@" \
  --env PATH=/usr/bin:/bin --env HOME=/var/lib/rollhook \
  --capability usr/bin/newuidmap=setuid --capability usr/bin/newgidmap=setgid
