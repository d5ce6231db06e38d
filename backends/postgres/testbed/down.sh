#!/usr/bin/env bash
# down.sh STATE_DIR: stops what up.sh started there, and removes the directory with all that was stored.
set -uo pipefail
. "$(dirname "$0")/lib.sh"; D=$(realpath -m "$1")
if home=$(readlink "$D/home") && [ -d "$home" ]; then
  # The number alone may be somebody else's by now, so the process must also have been started from here.
  pid=$(cat "$home/pooler.pid" 2> /dev/null) && grep -qF -- "$home/" "/proc/$pid/cmdline" 2> /dev/null && kill "$pid"
  ! runs || control -m immediate stop
  rm -rf "$home"
fi
rm -rf "$D"
