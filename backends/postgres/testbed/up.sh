#!/usr/bin/env bash
# up.sh STATE_DIR [PID]: starts a PostgreSQL of its own on loopback, in about 2 s, and prints the URL to connect with, which
# STATE_DIR/url holds too; where there is PgBouncer, STATE_DIR/pooler-url leads through one in transaction mode. All settings
# that matter for what survives a crash are the defaults. Several may be up side by side. Stop it with down.sh STATE_DIR; with
# a PID, it also goes down once that process has ended.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); . "$here/lib.sh"
D=$(realpath -m "$1"); mkdir -p "$D"
[ -z "$(ls -A "$D")" ] || { echo "up.sh: $D is not empty" >&2; exit 1; }
trap 'code=$?; [ $code = 0 ] || { tail -n 5 "$D/home/server.log" >&2 || true; "$here/down.sh" "$D"; exit $code; }' EXIT

# Outside of the state directory, which may lie where only root gets to; so may $TMPDIR.
for place in "${TMPDIR:-/tmp}" /tmp /dev/shm ''; do
  [ -n "$place" ] || { echo 'up.sh: set TMPDIR to a directory that the user nobody can enter' >&2; exit 1; }
  home=$(mktemp -d "$place/rollhook-postgres.XXXXXX") || continue
  [ "$(id -u)" != 0 ] || chown nobody:nogroup "$home"
  (cd / && as_server test -w "$home") && break
  echo "up.sh: the server, which runs as nobody, cannot enter $place: taking another directory" >&2
  rmdir "$home"
done
ln -s "$home" "$D/home"
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n'); echo "$password" > "$home/password"
[ "$(id -u)" != 0 ] || chown -R nobody:nogroup "$home"
(cd / && as_server "$(bin initdb)" -D "$home/data" -U postgres -E UTF8 --locale=C --no-sync --auth-local=trust \
  --auth-host=password --pwfile="$home/password") > /dev/null

for attempt in 1 2 3 4 5; do
  port=$((12000 + RANDOM % 8000)) # below what the kernel and test programs (`free_address`) hand out: it stays free meanwhile
  printf '%s\n' "listen_addresses = '127.0.0.1'" "port = $port" "unix_socket_directories = '$home'" \
    'max_connections = 400' >> "$home/data/postgresql.conf"
  start 2> /dev/null && break
  [ $attempt != 5 ] || { echo 'up.sh: the server does not start' >&2; exit 1; }
done
url() { echo "postgres://postgres:$password@127.0.0.1:$1/postgres"; }
if pooler > /dev/null 2>&1; then
  for attempt in 1 2 3 4 5; do
    pooled=$((12000 + RANDOM % 8000)) # no setting is there for our sake; few sessions, so that they change hands
    printf '%s\n' '[databases]' "* = host=127.0.0.1 port=$port" '[pgbouncer]' 'listen_addr = 127.0.0.1' "listen_port = $pooled" \
      'pool_mode = transaction' 'default_pool_size = 3' 'max_client_conn = 2000' 'auth_type = plain' \
      "auth_file = $home/users" "pidfile = $home/pooler.pid" "logfile = $home/pooler.log" 'unix_socket_dir =' > "$home/pooler.ini"
    echo "\"postgres\" \"$password\"" > "$home/users"
    (cd / && as_server "$(pooler)" -q -d "$home/pooler.ini") 2> /dev/null || continue
    url "$pooled" > "$D/pooler-url"
    break
  done
fi
url "$port" | tee "$D/url"

if [ -n "${2:-}" ]; then
  setsid bash -c 'while [ -d "/proc/$1" ] && [ -e "$2/url" ]; do sleep .5; done; exec "$3/down.sh" "$2"' watch "$2" "$D" "$here" \
    > /dev/null 2>&1 < /dev/null &
fi
