#!/usr/bin/env bash
# up.sh STATE_DIR [PID]: starts a Docker engine and a registry of its own, in about 5 s, as root, and prints the engine's
# socket. The engine has a network (STATE_DIR/env) and these images, each of 2 MB, by what their containers do:
#   app:v1 app:v2  get ready and serve their version on port 8080     app:crash  log a line and exit with 1
#   app:hang       start, and never get ready                         app:dies   get ready, and exit with 1 after 4 s
#   app:loops      get ready, and exit with 7 after 14 s
#   app:heals      exit with 1 five times, and then get ready and stay so
# A container is ready once its health check finds /tmp/ready. The registry holds none: tests push there.
# The engine is the one in $PATH. ROLLHOOK_DOCKER_BIN is a directory with another one: dockerd, docker, containerd and
# what they start. ROLLHOOK_DOCKER_STORE=containerd has it keep images in containerd, as new engines do by default.
# Stop it with down.sh STATE_DIR; with a PID, it also goes down once that process has ended.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); D=$(realpath -m "$1"); . "$here/lib.sh"
mkdir -p "$D/config"
[ "$(id -u)" = 0 ] || { echo 'up.sh: run it as root' >&2; exit 1; }
[ -n "$(daemon)" ] || { echo 'up.sh: no dockerd: install Debian'"'"'s package docker.io' >&2; exit 1; }
[ ! -e "$D/docker.sock" ] || { echo "up.sh: there is an engine in $D" >&2; exit 1; }
declare -p ROLLHOOK_DOCKER_BIN ROLLHOOK_DOCKER_STORE > "$D/engine" 2> /dev/null || true
trap 'code=$?; [ $code = 0 ] || { tail -n 5 "$D"/*.log >&2 || true; "$here/down.sh" "$D"; exit $code; }' EXIT
busybox ip link add "$(bridge)" type bridge
busybox ip addr add "$(subnet).1/24" dev "$(bridge)"
busybox ip link set "$(bridge)" up
start_daemon

network=rollhook-test
for attempt in 1 2 3 4 5; do
  api network create --subnet "$(subnet).0/24" "$network" > /dev/null 2>> "$D/network.log" && break
  [ $attempt != 5 ] || { echo 'up.sh: no subnet is free' >&2; exit 1; }
done

for attempt in 1 2 3 4 5; do
  port=$((12000 + RANDOM % 8000)) # as in the other test beds
  printf '%s\n' 'version: 0.1' 'storage:' '  filesystem:' "    rootdirectory: $D/registry" '  delete: {enabled: true}' \
    'http:' "  addr: 127.0.0.1:$port" '  debug: {addr: ""}' > "$D/registry.yml"
  setsid docker-registry serve "$D/registry.yml" > "$D/registry.log" 2>&1 < /dev/null & echo $! > "$D/registry.pid"
  until_true 5 curl -sf -o /dev/null "http://127.0.0.1:$port/v2/" && break
  [ $attempt != 5 ] || { echo 'up.sh: the registry does not start' >&2; exit 1; }
done

image() { # TAG VERSION SCRIPT
  local root; root=$(mktemp -d "$D/image.XXXXXX")
  mkdir -p "$root/bin" "$root/tmp" "$root/www" "$root/data"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for tool in sh sleep httpd test touch cat echo rm wget; do ln -s busybox "$root/bin/$tool"; done
  echo "$2" > "$root/www/version"
  printf '#!/bin/sh\nrm -f /tmp/ready\nend() { %s; }\ntrap end TERM\n%s\n' "$end" "$3" > "$root/app"; chmod +x "$root/app"
  tar -C "$root" -c . | api import --change 'CMD ["/app"]' --change "ENV VERSION=$2" --change 'ENV PATH=/bin' \
    --change 'HEALTHCHECK --interval=1s --timeout=5s --retries=3 CMD ["test", "-f", "/tmp/ready"]' - "app:$1" > /dev/null
  rm -rf "$root"
}
# Who serves ends as a good server does: it takes no more connections, and answers the requests that it has.
end='[ -z "$listener" ] || { kill $listener; sleep .3; }; exit 0'
serve='httpd -f -p 8080 -h /www & listener=$!
  until wget -q -O /dev/null http://127.0.0.1:8080/version; do sleep .02; done; touch /tmp/ready; wait'
image v1 v1 "$serve"
image v2 v2 "$serve"
image crash crash 'echo "no database"; exit 1'
image hang hang 'sleep 100000 & wait'
image heals heals 'echo x >> /data/starts; n=0; while read -r line; do n=$((n + 1)); done < /data/starts
  [ $n -gt 5 ] || exit 1; '"$serve"
image loops loops 'touch /tmp/ready; sleep 14; echo "loops: exiting 7"; exit 7'
image dies dies 'touch /tmp/ready; sleep 4; echo "dies: exiting 1"; exit 1'

printf '%s\n' "NETWORK=$network" "REGISTRY=127.0.0.1:$port" "CLIENT=$(client)" > "$D/env"
if [ -n "${2:-}" ]; then
  setsid bash -c 'while [ -d "/proc/$1" ] && [ -e "$2/env" ]; do sleep .5; done; [ ! -e "$2/env" ] || exec "$3/down.sh" "$2"' watch "$2" "$D" "$here" \
    > /dev/null 2>&1 < /dev/null &
fi
echo "$D/docker.sock"
