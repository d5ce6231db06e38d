#!/usr/bin/env bash
# service.sh STATE_DIR NAME stop|start|pause|resume: an outage of one process of a test bed that is up, where NAME is
# apiserver, etcd, controller-manager, scheduler; kwok in cluster/; kubelet, containerd, registry in node/.
# `stop` kills it, and connections are refused; `start` starts it again on the same port with the same data, and returns
# when the API server is ready; controllers notice that after their own back-off, some up to 30 s later. `pause` leaves
# connections open and unanswered, until `resume`.
set -euo pipefail
. "$(dirname "$0")/lib.sh"; D=$(realpath "$1"); name=$2; . "$D/env"
[ -f "$D/$name.cmd" ] || { echo "service.sh: no $name in $D" >&2; exit 1; }
case $3 in
  stop) stop "$name" ;;
  start) runs "$name" || restart "$name" ;;
  pause) kill -STOP "$(cat "$D/$name.pid")" ;;
  resume) kill -CONT "$(cat "$D/$name.pid")" ;;
  *) echo "service.sh: $3?" >&2; exit 1 ;;
esac
# An API server that ends while it starts, as on a port that is not free yet, is started again. One that has just been
# started does not work in its directory yet.
api_is_up() { kill -0 "$(cat "$D/apiserver.pid")" || restart apiserver; api_ready; }
case $name/$3 in
  apiserver/start | apiserver/resume | etcd/start | etcd/resume)
    until_true 180 api_is_up || { tail -n 20 "$D/apiserver.log" >&2; exit 1; } ;;
esac
