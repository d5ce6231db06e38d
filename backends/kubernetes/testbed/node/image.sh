#!/usr/bin/env bash
# image.sh STATE_DIR TARGET BINARIES [NAME:TAG]: builds a target of ../../../../packaging/image/Dockerfile by BuildKit, of the
# programs in BINARIES (for each architecture a directory), and pushes it to the bed's registry. Prints it by digest.
# Debian's base comes from the bed's registry, in the place of the public one; apt-get uses this machine's network.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); . "$1/env"; . "$here/../lib.sh"
D=$(realpath "$1") target=$2 binaries=$(realpath "$3") name=$REGISTRY/${4:-rollhook-$2:1}
root=$(realpath "$here/../../../..") builder=$here/../../builder-image
bin=$("$builder/build.sh"); base=$("$root/packaging/image/debian.sh")
exec 9> "$D/image.lock"; flock 9
work=$(mktemp -d); address=unix://$D/buildkitd.sock
trap 'stop buildkitd TERM; rm -rf "$work"' EXIT
case $(uname -m) in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture=$(uname -m) ;; esac

if [ ! -e "$D/base.pushed" ]; then
  python3 "$builder/mkimage.py" "$REGISTRY/library/debian:bookworm-slim" "$base" --entrypoint /bin/bash \
    --env PATH=/usr/sbin:/usr/bin:/sbin:/bin --push > /dev/null
  touch "$D/base.pushed"
fi
cat > "$D/buildkitd.toml" <<X
root = "$D/buildkit"
[grpc]
  address = ["$address"]
[worker.oci]
  networkMode = "host"
[worker.containerd]
  enabled = false
[registry."docker.io"]
  mirrors = ["$REGISTRY"]
[registry."$REGISTRY"]
  http = true
X
mkdir -p "$work/buildkit/$architecture"; cp "$bin"/{buildkitd,buildctl,rootlesskit} "$work/buildkit/$architecture"
start buildkitd "$bin/buildkitd" --config "$D/buildkitd.toml" 9>&-
until_true 30 "$bin/buildctl" --addr "$address" debug workers
"$bin/buildctl" --addr "$address" build --progress plain --frontend dockerfile.v0 \
  --local "context=$root" --local "dockerfile=$root/packaging/image" --opt "target=$target" \
  --opt context:binaries=local:binaries --local "binaries=$binaries" \
  --opt context:buildkit=local:buildkit --local "buildkit=$work/buildkit" \
  --output "type=image,name=$name,push=true,compression=uncompressed" --metadata-file "$work/metadata.json" >&2
digest=$(sed -n 's/.*"containerimage\.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' "$work/metadata.json")
echo "${name%:*}@$digest"
