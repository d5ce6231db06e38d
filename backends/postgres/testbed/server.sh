#!/usr/bin/env bash
# server.sh STATE_DIR stop|kill|start: an outage of a test bed that is up. `stop` is an orderly one, `kill` one without any
# farewell, as in a crash; `start` starts the server again on the same port with the same data, and returns when it answers.
set -euo pipefail
. "$(dirname "$0")/lib.sh"; D=$(realpath "$1")
case $2 in
  stop) control -m fast stop ;;
  kill) control -m immediate stop ;;
  start) runs || start ;;
  *) echo "server.sh: $2?" >&2; exit 1 ;;
esac
