# Shared by the scripts of this test bed; sourced, never run. D is the state directory; in it lie
#   docker.sock   the engine's socket     env   NETWORK=… REGISTRY=… (host:port)     *.log   the output of the processes

#   engine   which engine it is, as up.sh was told by the environment; the other scripts, and later starts, are of the same one
if [ -e "$D/engine" ]; then . "$D/engine"; fi
[ -z "${ROLLHOOK_DOCKER_BIN:-}" ] || PATH=$ROLLHOOK_DOCKER_BIN:$PATH

# As in the test beds of Kubernetes: what Go collects less often takes less of the processors.
export GOGC=${GOGC:-400}

# An engine that hangs must not hang what waits for it.
api() { DOCKER_HOST=unix://$D/docker.sock DOCKER_CONFIG=$D/config timeout -k 5 120 "$(client)" "$@"; }
# Debian's client fits Debian's engine; another one may lie before it in $PATH.
client() {
  if [ -z "${ROLLHOOK_DOCKER_BIN:-}" ] && [ -x /usr/bin/docker ]; then echo /usr/bin/docker; else command -v docker; fi
}
daemon() { command -v dockerd || { [ -x /usr/sbin/dockerd ] && echo /usr/sbin/dockerd; }; }

answers() { api version > /dev/null 2>&1; }
until_true() { # SECONDS COMMAND...
  local left=$(($1 * 10)); shift
  until "$@"; do left=$((left - 1)); [ $left -gt 0 ] || { echo "$* stays false" >&2; return 1; }; sleep .1; done
}
# The number alone may be another process's by now, so it must also have been started from here.
pid_of() { # NAME
  local pid; pid=$(cat "$D/$1.pid" 2> /dev/null) || return 1
  grep -qF -- "$D/" "/proc/$pid/cmdline" 2> /dev/null && echo "$pid"
}
gone() { ! [ -d "/proc/$1" ]; }
kill_and_wait() { # NAME SIGNAL
  local pid; pid=$(pid_of "$1") || return 0
  kill -"$2" "$pid" 2> /dev/null; until_true 30 gone "$pid"
}

# The default network's bridge, which up.sh makes: BuildKit's steps are attached to that network, whichever others there are.
bridge() { echo "rh$(printf %s "$D" | cksum | cut -d' ' -f1)"; }
subnet() { echo "10.$((64 + RANDOM % 128)).$((RANDOM % 256))"; } # its first three numbers

start_daemon() {
  # No firewall rule and no bridge of the machine's: only networks of its own. What stores images copies each layer, and
  # runs anywhere.
  local store=(--storage-driver vfs)
  [ "${ROLLHOOK_DOCKER_STORE:-}" != containerd ] || store=(--feature containerd-snapshotter --storage-driver native)
  rm -f "$D/dockerd.pid"
  PATH=$PATH:/usr/sbin:/sbin setsid "$(daemon)" --data-root "$D/data" --exec-root "$D/exec" --pidfile "$D/dockerd.pid" \
    --host "unix://$D/docker.sock" "${store[@]}" --iptables=false --ip6tables=false --ip-masq=false --bridge "$(bridge)" \
    --live-restore=false --shutdown-timeout 5 >> "$D/dockerd.log" 2>&1 < /dev/null &
  until_true 180 answers
}
