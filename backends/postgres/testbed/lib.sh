# Shared by the scripts of this test bed; sourced, never run. D is the state directory; in it lie
#   url   how to connect, as an administrator     home   a link to where everything else is, such as server.log

# bin NAME: where a program of PostgreSQL is. Debian keeps the server's outside of $PATH.
bin() {
  local found
  found=$(command -v "$1" || printf '%s\n' /usr/lib/postgresql/*/bin/"$1" | sort -V | tail -n 1)
  [ -x "$found" ] || { echo "no $1: install PostgreSQL, such as Debian's package postgresql" >&2; return 1; }
  realpath "$found" # its neighbours lie beside it
}

pooler() { command -v pgbouncer || { [ -x /usr/sbin/pgbouncer ] && echo /usr/sbin/pgbouncer; }; }

# The server refuses to run as root: it is nobody then, to whom its data belongs.
as_server() {
  if [ "$(id -u)" = 0 ]; then setpriv --reuid=nobody --regid=nogroup --clear-groups -- "$@"; else "$@"; fi
}

# control ACTION...: pg_ctl, which knows the server by the process id in its data directory, and waits at most 30 s.
control() { local home; home=$(readlink "$D/home"); (cd / && as_server "$(bin pg_ctl)" -s -w -t 30 -D "$home/data" "$@"); }
start() { control -l "$(readlink "$D/home")/server.log" start > /dev/null; }
runs() { control status > /dev/null 2>&1; }
