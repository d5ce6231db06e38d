# Shared by the two test beds; sourced, never run. The caller sets D, the state directory, and works inside it.
# For each process NAME the directory holds NAME.pid, NAME.log and NAME.cmd (the command line, to start it again).

# The parts of a cluster are Go programs, whose collections of garbage take a tenth of a test run's processor time if memory
# is kept as scarce as it is by default.
export GOGC=${GOGC:-400}

# ports N: N free loopback ports. They lie below the range from which the kernel assigns ports, and below the blocks that
# test programs claim (`free_address`): a stopped API server finds its port free when it comes back.
ports() {
  python3 - "$1" <<'PY'
import random, socket, sys
held = []
while len(held) < int(sys.argv[1]):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randrange(12000, 20000)))
        held.append(s)
    except OSError:
        pass
print(*[s.getsockname()[1] for s in held])
PY
}

# start NAME COMMAND...: in a session of its own, so that ctrl-C in the terminal leaves the order of stopping to down.sh.
start() { local name=$1; shift; printf '%q ' "$@" > "$D/$name.cmd"; restart "$name"; }
restart() { setsid bash -c "cd '$D' && exec $(cat "$D/$1.cmd")" >> "$D/$1.log" 2>&1 < /dev/null & echo $! > "$D/$1.pid"; }

# runs NAME: whether the recorded process is still ours. Its number may belong to another process by now, so the process
# must also work in our directory.
runs() { local pid; pid=$(cat "$D/$1.pid" 2>/dev/null) && [ "/proc/$pid/cwd" -ef "$D" ]; }

# stop NAME [SIGNAL]: signal it, wait for its end, and kill it after 5 s.
stop() {
  runs "$1" || return 0
  local pid; pid=$(cat "$D/$1.pid")
  kill "-${2:-KILL}" "$pid" 2>/dev/null
  for _ in $(seq 100); do runs "$1" || break; sleep .05; done
  runs "$1" && kill -KILL "$pid" 2>/dev/null
  rm -f "$D/$1.pid"
}

# claim STATE_DIR: an empty directory to work in. From here on, a failing up.sh shows the last lines of each log and
# takes down what it had started.
claim() {
  D=$(realpath -m "$1"); mkdir -p "$D"; cd "$D"
  [ -z "$(ls -A)" ] || { echo "up.sh: $D is not empty" >&2; exit 1; }
  trap 'code=$?; [ $code = 0 ] || { tail -n 5 "$D"/*.log >&2; "$here/down.sh" "$D"; exit $code; }' EXIT
}

# until_true SECONDS COMMAND...: repeat it until it succeeds.
until_true() {
  local end=$((SECONDS + $1)); shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "never came true: $*" >&2; return 1; }
    sleep .2
  done
}
api_ready() { runs apiserver && "$KUBECTL" --request-timeout=2s get --raw /readyz; }

# write_kubeconfig FILE PORT TOKEN
write_kubeconfig() {
  cat > "$1" <<X
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$2", certificate-authority: $D/certs/apiserver.crt}}]
users: [{name: user, user: {token: $3}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
X
}

# control_plane BIN_DIR [API SERVER FLAG...]: etcd, API server (Secrets encrypted at rest, RBAC), controller manager
# and scheduler on loopback; an administrator's `kubeconfig`; `env`, a file of exports for tests, already read here.
control_plane() {
  local bin=$1 api etcd peer admin; shift
  read -r api etcd peer < <(ports 3); admin=$(openssl rand -hex 16); API_PORT=$api
  openssl genrsa -out sa.key 2048 2>/dev/null; openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  echo "$admin,admin,admin,system:masters" >> tokens.csv
  write_kubeconfig kubeconfig "$api" "$admin"
  printf 'export KUBECONFIG=%q KUBECTL=%q KUBECACHEDIR=%q\n' "$D/kubeconfig" "$bin/kubectl" "$D/kubectl-cache" > env
  . ./env
  cat > encryption.yaml <<X
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{secretbox: {keys: [{name: k1, secret: $(head -c32 /dev/urandom | base64)}]}}, {identity: {}}]
X
  # Without fsync etcd still survives being killed, only not a power cut, and a shared disk does not slow the tests.
  start etcd "$bin/etcd" --data-dir etcd --unsafe-no-fsync --listen-client-urls "http://127.0.0.1:$etcd" \
    --advertise-client-urls "http://127.0.0.1:$etcd" --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer"
  start apiserver "$bin/kube-apiserver" --etcd-servers="http://127.0.0.1:$etcd" --secure-port="$api" --bind-address=127.0.0.1 \
    --cert-dir=certs --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=sa.pub \
    --service-account-signing-key-file=sa.key --token-auth-file=tokens.csv --service-cluster-ip-range=10.96.0.0/16 \
    --encryption-provider-config=encryption.yaml "$@"
  until_true 180 api_ready
  # A generous grace for nodes: a test that takes the API server away must not find its pods evicted afterwards.
  start controller-manager "$bin/kube-controller-manager" --kubeconfig=kubeconfig --service-account-private-key-file=sa.key \
    --root-ca-file=certs/apiserver.crt --leader-elect=false --secure-port=0 --node-monitor-grace-period=10m \
    --kube-api-qps=200 --kube-api-burst=400
  start scheduler "$bin/kube-scheduler" --kubeconfig=kubeconfig --leader-elect=false --secure-port=0
}
