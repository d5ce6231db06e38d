#!/usr/bin/env bash
# down.sh STATE_DIR: stops what up.sh started there with all containers, and removes the directory.
set -uo pipefail
D=$(realpath -m "$1"); . "$(dirname "$0")/lib.sh"
rm -f "$D/env" # which a watching up.sh looks at
# One that was killed has left its containers: it is started once more, to end them.
[ ! -d "$D/data" ] || pid_of dockerd > /dev/null || start_daemon
if pid_of dockerd > /dev/null; then
  if answers; then
    api ps -aq | while read -r id; do api rm -f "$id"; done > /dev/null 2>&1
    api network prune -f > /dev/null 2>&1 # its bridge is the machine's otherwise
  fi
  kill_and_wait dockerd TERM || kill_and_wait dockerd KILL
fi
busybox ip link del "$(bridge)" 2> /dev/null
kill_and_wait registry TERM
# A killed engine leaves processes of containers that it was starting; no engine ends them.
for process in /proc/[0-9]*; do
  if { tr "\0" " " < "$process/cmdline"; } 2> /dev/null | grep -qF -- "$D/exec/"; then kill -KILL "${process#/proc/}"; fi
done
while read -r _ mounted _; do [[ $mounted != "$D"/* ]] || umount -l "$mounted"; done < <(tac /proc/mounts)
rm -rf "$D"
