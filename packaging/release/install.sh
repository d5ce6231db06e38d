#!/bin/sh
# Installs rollhook's programs: rollhook, rollhook-server, rollhook-build.
#   curl -fsSL URL/install.sh | sh
# They go to $ROLLHOOK_BIN, by default /usr/local/bin for root and ~/.local/bin for others. An archive whose SHA-256 is
# another than the one below is not unpacked, and nothing is replaced.
set -eu
# A release fills these in.
version=
url=
sums=

fail() {
  echo "rollhook: $*" >&2
  exit 1
}

# In a function, so that a shell that was sent half of this script runs nothing.
install() {
  [ -n "$version" ] || fail 'this installer is a template: use the one of a release'
  [ "$(uname -s)" = Linux ] || fail "releases are for Linux, not for $(uname -s): build it with cargo"
  case $(uname -m) in
    x86_64 | amd64) architecture=amd64 ;;
    aarch64 | arm64) architecture=arm64 ;;
    *) fail "releases are for x86_64 and aarch64, not for $(uname -m): build it with cargo" ;;
  esac
  if [ -n "${ROLLHOOK_BIN:-}" ]; then bin=$ROLLHOOK_BIN
  elif [ "$(id -u)" = 0 ]; then bin=/usr/local/bin
  else bin=$HOME/.local/bin; fi

  name=rollhook-$version-linux-$architecture
  draft=$(mktemp -d)
  trap 'rm -rf "$draft"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  curl -fsSL --retry 3 -o "$draft/archive" "$url/$name.tar.gz" || fail "downloading $url/$name.tar.gz failed"
  wanted=$(echo "$sums" | sed -n "s/  $architecture\$//p")
  found=$(sha256sum "$draft/archive" | cut -d ' ' -f 1)
  [ "$found" = "$wanted" ] || fail "the SHA-256 of $name.tar.gz is $found, and must be $wanted: nothing was installed"
  tar -xzf "$draft/archive" -C "$draft"
  mkdir -p "$bin"
  for program in rollhook rollhook-server rollhook-build; do
    # First beside the old one, then in its place: a program that runs goes on.
    cp "$draft/$name/$program" "$bin/.$program.new"
    chmod 755 "$bin/.$program.new"
    mv "$bin/.$program.new" "$bin/$program"
  done
  echo "rollhook $version is in $bin"
  case :$PATH: in
    *:"$bin":*) ;;
    *) echo "put $bin on your PATH: export PATH=\"$bin:\$PATH\"" ;;
  esac
}
install
