#!/usr/bin/env bash
# Signs images in all ways with the programs of build.sh, and records what then lies at the registry, for the tests of reading and
# judging: one file a signature, and the keys and trust roots. The certificates in them have ended long ago.
#
#   record.sh DIRECTORY      such as ../src/recorded
set -euo pipefail
out=$(realpath "$1") here=$(realpath "$(dirname "$0")")
tools=${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-tools/bin
export COSIGN_3=$tools/cosign-3 COSIGN_2=$tools/cosign-2
directory=$(mktemp -d)
trap 'kill $(jobs -p); rm -rf "$directory"' EXIT
authority=127.0.0.1:17801 registry=127.0.0.1:17802
"$tools/signing-authority" $authority "$directory" 2> "$directory/authority.log" &
"$tools/go-containerregistry" -port=17802 2> "$directory/registry.log" &
sleep 1

image() { # REPOSITORY: pushes an image, and prints its digest
  local file=$directory/blob media=application/vnd.oci.image location config
  printf '{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]},"config":{"Env":["OF=%s"]}}' "$1" > "$file"
  config=sha256:$(sha256sum < "$file" | cut -d' ' -f1)
  location=$(curl -sS -D - -o /dev/null -X POST "http://$registry/v2/$1/blobs/uploads/" | tr -d '\r' | sed -n 's/^[Ll]ocation: //p')
  curl -sSf -o /dev/null -X PUT -H 'Content-Type: application/octet-stream' --data-binary "@$file" \
    "http://$registry/v2/${location#*/v2/}?digest=$config"
  printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json","digest":"%s","size":%s},"layers":[]}' \
    $media $media "$config" "$(stat -c %s "$file")" > "$file.manifest"
  curl -sSf -o /dev/null -X PUT -H "Content-Type: $media.manifest.v1+json" --data-binary "@$file.manifest" \
    "http://$registry/v2/$1/manifests/v1"
  printf 'sha256:%s' "$(sha256sum < "$file.manifest" | cut -d' ' -f1)"
}

base64url() { base64 -w0 | tr '+/' '-_' | tr -d =; }
claims='{"iss":"https://issuer.test","aud":"sigstore","sub":"https://git.test/shop/api/.ci/release.yml@refs/tags/v1","exp":4102444800}'
printf '%s.%s.%s' "$(printf '{"alg":"RS256"}' | base64url)" "$(printf %s "$claims" | base64url)" "$(printf x | base64url)" > "$directory/token"
printf '{"buildDefinition":{"buildType":"https://ci.test/v1"},"runDetails":{"builder":{"id":"https://ci.test/shop/builder@v1"}}}' \
  > "$directory/predicate.json"
"$here/sign.sh" new "$directory" $authority 2> "$directory/new.log"

mkdir -p "$out"
for way in key-3 attest-key-3 times-3 log-3 attest-times-3 key-2 attest-key-2 log-2 attest-log-2; do
  digest=$(image "$way")
  "$here/sign.sh" $way "$directory" "$registry/$way@$digest" > "$directory/log" 2>&1 || { cat "$directory/log"; exit 1; }
  python3 - "$registry" $way "$digest" > "$out/$way.json" << 'PYTHON'
import json, sys, urllib.error, urllib.request

registry, way, digest = sys.argv[1:]
def get(path):
    accept = {"Accept": "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"}
    try:
        return urllib.request.urlopen(urllib.request.Request(f"http://{registry}/v2/{way}/{path}", headers=accept)).read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
tag = digest.replace(":", "-")
named = [entry["digest"] for entry in json.loads(get(f"manifests/{tag}") or '{"manifests": []}')["manifests"]]
named += [tag + ending for ending in (".sig", ".att")]
layers = [layer for name in named for layer in json.loads(get(f"manifests/{name}") or '{"layers": []}')["layers"]]
[layer] = layers
body = get(f"blobs/{layer['digest']}").decode()
recorded = {"image": digest, "media_type": layer["mediaType"], "annotations": layer.get("annotations", {}), "body": body}
print(json.dumps(recorded, indent=1))
PYTHON
  echo "$way" >&2
done
cp "$directory"/{cosign.pub,other.pub,root-times.json,root-log.json} "$out"
