#!/usr/bin/env bash
# up.sh STATE_DIR: a real one-node cluster on this machine, as root, in about 10 s: control plane, containerd, kubelet,
# and registries and a git server on its pods' bridge, reachable from this machine alone. Prints the kubeconfig's
# path; STATE_DIR/env exports KUBECONFIG, KUBECTL, REGISTRY (host:port), PRIVATE_REGISTRY, GIT_URL and PROGRAMS. One at a
# time on a machine (bridge, cgroup). Stop it with down.sh STATE_DIR.
# In the registry: app:v1 app:v2 app:v3 (HTTP on :8080, /healthz, and a gate: src/app), app:crash (exits 1), app:dies
# (serves, and exits 1 after 3 s). app:nosuch does not exist. push.sh adds images and moves tags; builder-image.sh adds
# what builds git apps; image.sh adds rollhook's own images. The private registry is empty, and accepts only ada with the password hunter2. A bare repository in
# STATE_DIR/git is served as GIT_URL/<name>, and takes pushes; those below private/ are ada's too.
# Pods reach each other and the node, nothing else; there is no DNS, and no Service address but the API server's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); . "$here/../lib.sh"
NODE=node-1 BRIDGE=rollhook0 GATEWAY=10.77.0.1 SUBNET=10.77.0.0/24 API_SERVICE=10.96.0.1

[ "$(id -u)" = 0 ] || { echo "up.sh: a real node needs root" >&2; exit 1; }
for c in containerd runc ctr docker-registry git ip; do
  command -v $c > /dev/null || { echo "up.sh: $c is not installed (.ci/setup does it)" >&2; exit 1; }
done
[ -d /sys/fs/cgroup/memory ] || { echo "up.sh: this bed knows control groups of version 1 only" >&2; exit 1; }
bin=$("$here/../cluster/build.sh"); programs=$("$here/build.sh")
if [ -e /sys/class/net/$BRIDGE ]; then # the bridge's alias names the bed it belongs to
  other=$(cat /sys/class/net/$BRIDGE/ifalias)
  ! (D=$other; runs kubelet) || { echo "up.sh: a bed is up already: $other" >&2; exit 1; }
  "$here/down.sh" "$other" # what a run that was killed left behind
fi
claim "$1"; mkdir cni git manifests; : > resolv.conf
read -r registry_port private_port git_port kubelet_port health_port < <(ports 5)
REGISTRY=$GATEWAY:$registry_port PRIVATE_REGISTRY=$GATEWAY:$private_port
# A hardware address of its own: a bridge has the lowest of its ports' else, and a pod that goes would cut off the others.
ip link add $BRIDGE address 0a:58:0a:4d:00:01 type bridge; ip link set $BRIDGE alias "$D"; ip addr add $GATEWAY/24 dev $BRIDGE
ip addr add $API_SERVICE/32 dev $BRIDGE; ip link set $BRIDGE up
for key in vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys \
  kernel.keys.root_maxbytes net.ipv4.ip_forward; do # the kubelet changes these, and down.sh puts them back
  echo "$key=$(sysctl -n $key)"
done > sysctl.saved

cat > containerd.toml <<X
version = 2
root = "$D/containerd/root"
state = "$D/containerd/state"
[grpc]
  address = "$D/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$D/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "rollhook.local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$D/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$D/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$D/runc"
X
cat > cni/10-node.conflist <<X
{"cniVersion": "0.4.0", "name": "rollhook", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$D/cni-ipam", "ranges": [[{"subnet": "$SUBNET"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
X
# serve_registry NAME ADDRESS [FURTHER CONFIGURATION]: without encryption, which the node is told.
serve_registry() {
  mkdir -p "$1" "registries/$2"; echo "[host.\"http://$2\"]" > "registries/$2/hosts.toml"
  cat > "$1.yaml" <<X
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $D/$1}, delete: {enabled: true}}
http: {addr: "$2"}
${3:-}
X
  start "$1" docker-registry serve "$1.yaml"
}
start containerd containerd -c containerd.toml
serve_registry registry "$REGISTRY"
echo 'ada:$2b$04$7dbBmg/hD.cVYHshuWAYguQ9oSTkQT5ASS2qgs1b/nHvfL7jOe1g2' > htpasswd # hunter2
serve_registry private-registry "$PRIVATE_REGISTRY" "auth: {htpasswd: {realm: private, path: $D/htpasswd}}"
start gitd "$programs/gitd" $GATEWAY:$git_port "$D/git"

# The kubelet's own login, and the certificate by which it knows the API server that asks it for logs.
token=$(openssl rand -hex 16); echo "$token,system:node:$NODE,node,system:nodes" > tokens.csv
openssl req -x509 -newkey rsa:2048 -nodes -keyout client.key -out client.crt -days 30 \
  -subj /O=system:masters/CN=apiserver-kubelet-client 2>/dev/null
control_plane "$bin" --advertise-address=$GATEWAY --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --allow-privileged=true --kubelet-client-certificate=client.crt --kubelet-client-key=client.key --kubelet-preferred-address-types=InternalIP
start forward "$programs/forward" $API_SERVICE:443 "127.0.0.1:$API_PORT" # what kube-proxy does, for this one Service
printf 'export REGISTRY=%q PRIVATE_REGISTRY=%q GIT_URL=%q PROGRAMS=%q\n' "$REGISTRY" "$PRIVATE_REGISTRY" \
  "http://$GATEWAY:$git_port" "$programs" >> env
write_kubeconfig kubelet.kubeconfig "$API_PORT" "$token"

until_true 30 ctr -a containerd.sock version
python3 "$here/../../builder-image/mkimage.py" rollhook.local/pause:1 "$programs/pause" --tar pause.tar > /dev/null
ctr -a containerd.sock -n k8s.io images import pause.tar > /dev/null
for v in v1 v2 v3; do "$here/push.sh" "$D" app:$v app-$v; done > /dev/null
for p in crash dies; do "$here/push.sh" "$D" app:$p $p; done > /dev/null

for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
  [ ! -d /sys/fs/cgroup/$controller ] || mkdir -p /sys/fs/cgroup/$controller/rollhook
done
for f in cpuset.cpus cpuset.mems; do cat /sys/fs/cgroup/cpuset/$f > /sys/fs/cgroup/cpuset/rollhook/$f; done
cat > kubelet.yaml <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$D/containerd.sock
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /rollhook
enforceNodeAllocatable: []
oomScoreAdj: 0
makeIPTablesUtilChains: false
address: $GATEWAY
port: $kubelet_port
healthzPort: $health_port
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $D/client.crt}}
authorization: {mode: AlwaysAllow}
resolvConf: $D/resolv.conf
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
staticPodPath: $D/manifests
podLogsDir: $D/pods.log.d
volumePluginDir: $D/volume-plugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
registryPullQPS: 0
X
start kubelet "$bin/kubelet" --config=kubelet.yaml --kubeconfig=kubelet.kubeconfig --hostname-override=$NODE \
  --node-ip=$GATEWAY --root-dir="$D/kubelet" --cert-dir="$D/kubelet/pki"
until_true 30 "$KUBECTL" get node $NODE
"$KUBECTL" wait --for=condition=Ready node/$NODE --timeout=60s > /dev/null
echo "$KUBECONFIG"
