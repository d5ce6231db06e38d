#!/usr/bin/env bash
# Signs an image at a registry in one of the ways that cosign's documentation names, without internet.
#
#   sign.sh new DIRECTORY ADDRESS            makes keys, trust roots and signing configurations for the authority at the address
#   sign.sh WAY DIRECTORY IMAGE@DIGEST       signs, or attests the file predicate.json of the directory
#
# Ways: key-3 key-2 refer-key-2 attest-key-3 attest-key-2 · times-3 log-3 attest-times-3 · log-2 attest-log-2. `times` has a timestamp authority vouch for the
# time, `log` a log; both are signed by the identity that the file token of the directory names. 3 and 2 are versions of cosign: the
# first writes bundles that refer to the image, the other tags, or with `refer` what it calls experimental: the same as an artifact.
set -euo pipefail
way=$1 directory=$2 to=$3
cosign3=${COSIGN_3:-cosign-3} cosign2=${COSIGN_2:-cosign-2}
cd "$directory"
# No file of the user's, no key from the internet, no proxy, no question.
export HOME=$directory NO_PROXY='*' COSIGN_PASSWORD='' COSIGN_YES=true TUF_ROOT=$directory/tuf

case $way in
  new)
    printf %s "$to" > address
    at=http://$to since=2020-01-01T00:00:00Z
    fulcio="url=$at,api-version=1,start-time=$since,operator=test"
    "$cosign3" generate-key-pair
    "$cosign3" generate-key-pair --output-key-prefix other
    "$cosign3" signing-config create --out none.json
    "$cosign3" signing-config create --out times.json --fulcio="$fulcio" \
      --tsa="url=$at/api/v1/timestamp,api-version=1,start-time=$since,operator=test" --tsa-config=ANY
    "$cosign3" signing-config create --out log.json --fulcio="$fulcio" \
      --rekor="url=$at,api-version=1,start-time=$since,operator=test" --rekor-config=ANY
    fulcio="url=$at,certificate-chain=ca.pem,start-time=$since"
    "$cosign3" trusted-root create --out root-times.json --fulcio="$fulcio" \
      --tsa="url=$at/api/v1/timestamp,certificate-chain=tsa.pem,start-time=$since"
    "$cosign3" trusted-root create --out root-log.json --fulcio="$fulcio" \
      --rekor="url=$at,public-key=log.pub,start-time=$since"
    ;;
  key-3) "$cosign3" sign --key "${KEY:-cosign.key}" --signing-config none.json --trusted-root root-times.json \
    --allow-http-registry "$to" ;;
  key-2) "$cosign2" sign --key "${KEY:-cosign.key}" --tlog-upload=false --allow-http-registry "$to" ;;
  refer-key-2)
    COSIGN_EXPERIMENTAL=1 "$cosign2" sign --key "${KEY:-cosign.key}" --tlog-upload=false --allow-http-registry \
      --registry-referrers-mode oci-1-1 "$to"
    ;;
  attest-key-3)
    "$cosign3" attest --key cosign.key --signing-config none.json --trusted-root root-times.json --allow-http-registry \
      --type "${TYPE:-slsaprovenance1}" --predicate predicate.json "$to"
    ;;
  attest-key-2)
    "$cosign2" attest --key cosign.key --tlog-upload=false --allow-http-registry \
      --type "${TYPE:-slsaprovenance1}" --predicate predicate.json "$to"
    ;;
  times-3 | log-3)
    "$cosign3" sign --signing-config "${way%-3}.json" --trusted-root "root-${way%-3}.json" \
      --identity-token "$(cat token)" --allow-http-registry "$to"
    ;;
  attest-times-3)
    "$cosign3" attest --signing-config times.json --trusted-root root-times.json --identity-token "$(cat token)" \
      --allow-http-registry --type "${TYPE:-slsaprovenance1}" --predicate predicate.json "$to"
    ;;
  log-2 | attest-log-2)
    at=$(cat address)
    what=(sign)
    [ "$way" = log-2 ] || what=(attest --type "${TYPE:-slsaprovenance1}" --predicate predicate.json)
    SIGSTORE_ROOT_FILE=$directory/ca.pem SIGSTORE_REKOR_PUBLIC_KEY=$directory/log.pub "$cosign2" "${what[@]}" \
      --fulcio-url "http://$at" --rekor-url "http://$at" --insecure-skip-verify --identity-token "$(cat token)" \
      --allow-http-registry "$to"
    ;;
  *) echo "sign.sh: no way $way" >&2; exit 2 ;;
esac
