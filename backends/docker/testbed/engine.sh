#!/usr/bin/env bash
# engine.sh STATE_DIR stop|kill|start|pause|resume: an outage of the engine of a test bed that is up. `stop` is orderly and
# ends the containers; `kill` is not, and leaves them; `start` starts it again, as after a reboot of the machine;
# `pause` leaves connections open and unanswered, until `resume`.
# engine.sh STATE_DIR dump: changes nothing, and prints where the engine hangs.
set -euo pipefail
D=$(realpath "$1"); . "$(dirname "$0")/lib.sh"
case $2 in
  stop) kill_and_wait dockerd TERM ;;
  kill) kill_and_wait dockerd KILL ;;
  start) pid_of dockerd > /dev/null || start_daemon ;;
  pause) kill -STOP "$(pid_of dockerd)" ;;
  resume) kill -CONT "$(pid_of dockerd)" ;;
  dump)
    kill -USR1 "$(pid_of dockerd)"; sleep 5
    # Those that wait for one another come first.
    cat "$D"/exec/goroutine-stacks-*.log "$D"/data/goroutine-stacks-*.log 2> /dev/null | grep -A 12 'minutes\]' | head -n 400 >&2 || true
    tail -n 20 "$D/dockerd.log" >&2 ;;
  *) echo "engine.sh: $2?" >&2; exit 1 ;;
esac
