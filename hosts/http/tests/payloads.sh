#!/usr/bin/env bash
# Fetches real payloads of GitHub's webhooks into a cache outside of the checkout, and prints the file's path.
set -euo pipefail
version=7.6.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-tools/webhooks-examples-$version
file=$cache/node_modules/@octokit/webhooks-examples/api.github.com/index.json
if [ ! -f "$file" ]; then
  # Beside, then moved: two tests that come here at once do not see each other's halves.
  mkdir -p "$(dirname "$cache")"
  fresh=$(mktemp -d "$cache.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$fresh" "@octokit/webhooks-examples@$version" >&2
  mv -T "$fresh" "$cache" 2> /dev/null || [ -f "$file" ]
fi
echo "$file"
