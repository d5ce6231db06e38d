#!/bin/sh
# Builds a git app on one machine with Docker, for rollhook-server's --build-command. The image stays on the engine, and is
# deployed from there by its id: no registry is needed. The user that runs this must be able to open the engine's socket.
# So this user is root on the machine, and everybody who can change a Dockerfile is too: build only repositories that you trust.
#   install -D -m 755 packaging/docker/build.sh /usr/local/lib/rollhook/docker-build
# Variables that Docker's client needs, such as DOCKER_HOST, go to /etc/rollhook/docker-build.env.
set -eu
settings=${ROLLHOOK_DOCKER_BUILD_ENV:-/etc/rollhook/docker-build.env}
if [ -r "$settings" ]; then
  set -a
  # shellcheck disable=SC1090
  . "$settings"
  set +a
fi
id=$(mktemp)
trap 'rm -f "$id"' EXIT
docker build --iidfile "$id" --force-rm -t "$ROLLHOOK_IMAGE" -f "$ROLLHOOK_CONTEXT/$ROLLHOOK_DOCKERFILE" "$ROLLHOOK_CONTEXT"
echo "$ROLLHOOK_IMAGE_REPOSITORY@$(cat "$id")"
