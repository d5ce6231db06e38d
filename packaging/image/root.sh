#!/usr/bin/env bash
# root.sh server|builder ROOT PROGRAM...: fills ROOT, the root directory of an image. The programs go to /usr/bin. Beside them
# are this Debian machine's own that they call, the libraries of all of these, and nothing else. The Dockerfile runs it in
# a stage; ../../backends/kubernetes/builder-image/pack.sh runs it where there is no image builder.
#   server   git, openssh-client, ca-certificates
#   builder  the same, runc, uidmap and busybox-static
set -euo pipefail
kind=$1 root=$2; shift 2
case $kind in
  server) commands=(git ssh) ;;
  builder) commands=(git ssh runc newuidmap newgidmap busybox) ;;
  *) echo "root.sh: $kind is neither server nor builder" >&2; exit 2 ;;
esac
for command in "${commands[@]}"; do
  command -v "$command" > /dev/null || { echo "root.sh: $command is not installed" >&2; exit 1; }
done
umask 022
mkdir -p "$root"/{bin,dev,etc/ssl/certs,proc,run,sys,tmp,usr/bin,usr/lib/git-core,var/lib/rollhook,var/lib/dpkg/status.d}
chmod 1777 "$root/tmp" "$root/var/lib/rollhook" # the second holds the state; any user may run the image

taken=()
put() { taken+=("$1"); mkdir -p "$root$(dirname "$2")"; cp -L "$1" "$root$2"; chmod "${3:-755}" "$root$2"; }
libraries() { # none, where a program is static
  local library
  for library in $(ldd "$1" 2> /dev/null | grep -o '/[^ ]*' | grep -v ':$'); do [ -e "$root$library" ] || put "$library" "$library"; done
}
for program in "$@"; do put "$program" "/usr/bin/$(basename "$program")"; done
for command in "${commands[@]}"; do
  [ "$command" = busybox ] || put "$(command -v "$command")" "/usr/bin/$command"
done
core=$(git --exec-path)
put "$core/git-remote-http" /usr/lib/git-core/git-remote-http
ln -s git-remote-http "$root/usr/lib/git-core/git-remote-https"
ln -s ../../bin/git "$root/usr/lib/git-core/git"
for file in "$root"/usr/bin/* "$root"/usr/lib/git-core/git-remote-http; do libraries "$file"; done
put /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt 644
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# ssh asks for its user's line, and git runs ssh by a shell.
if [ "$kind" = server ]; then
  put "$(command -v dash)" /bin/sh; libraries "$root/bin/sh"
  printf 'root:x:0:0::/:/bin/sh\nrollhook:x:65532:65532::/var/lib/rollhook:/bin/sh\n' > "$root/etc/passwd"
  printf 'root:x:0:\nrollhook:x:65532:\n' > "$root/etc/group"
else
  put "$(command -v busybox)" /bin/busybox
  for command in sh cat kill ls mkdir pwd rm sed sleep tail; do ln -s busybox "$root/bin/$command"; done
  # The user of the profile `rootless`, and the ids that it may hand out to the steps of a build.
  printf 'root:x:0:0::/root:/bin/sh\nbuild:x:1000:1000::/var/lib/rollhook:/bin/sh\n' > "$root/etc/passwd"
  printf 'root:x:0:\nbuild:x:1000:\n' > "$root/etc/group"
  for file in subuid subgid; do echo build:100000:65536 > "$root/etc/$file"; done
fi

# The packages that files were taken of, where scanners for vulnerabilities look for them.
{ echo 'ca-certificates: of which the one file is made'; for file in "${taken[@]}"; do # Debian moved /lib to /usr/lib, and remembers some files by the former path
  dpkg-query -S "$file" "${file#/usr}" "$(readlink -f "$file")" 2> /dev/null || true
done; } | sed -n 's/^\([^ ,]*\): .*/\1/p' | sort -u | while read -r package; do
  dpkg-query -s "$package" > "$root/var/lib/dpkg/status.d/${package%%:*}"
done
