#!/usr/bin/env bash
# engine.sh STATE_DIR stop|kill|start|pause|resume: an outage of the engine of a test bed that is up. `stop` is orderly and
# ends the containers; `kill` is not, and leaves them; `start` starts it again, as after a reboot of the machine;
# `pause` leaves connections open and unanswered, until `resume`.
set -euo pipefail
D=$(realpath "$1"); . "$(dirname "$0")/lib.sh"
case $2 in
  stop) kill_and_wait dockerd TERM ;;
  kill) kill_and_wait dockerd KILL ;;
  start) pid_of dockerd > /dev/null || start_daemon ;;
  pause) kill -STOP "$(pid_of dockerd)" ;;
  resume) kill -CONT "$(pid_of dockerd)" ;;
  *) echo "engine.sh: $2?" >&2; exit 1 ;;
esac
