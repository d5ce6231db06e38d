#!/usr/bin/env bash
# up.sh STATE_DIR: starts a real Kubernetes control plane with two simulated nodes on loopback, in about 5 s, and prints
# the kubeconfig's path. STATE_DIR/env exports KUBECONFIG, KUBECTL and KUBECACHEDIR. Several may be up side by side.
# The name of a pod's image decides its behaviour: see stages.yaml. Stop it with down.sh STATE_DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); . "$here/../lib.sh"
bin=$("$here/build.sh"); claim "$1"
# Simulated containers use no token, so pods need not wait for their namespace's ServiceAccount.
control_plane "$bin" --advertise-address=127.0.0.1 --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount
stages=(); for f in "$bin"/stages/{node-initialize,node-heartbeat,pod-delete}.yaml "$here/stages.yaml"; do stages+=(-c "$f"); done
# Simulated containers write no logs: a test writes them, to STATE_DIR/logs/NAMESPACE/POD/CONTAINER.
# kwok has a server of its own, on any port: nobody calls it, since it does not serve logs of single pods.
read -r logs < <(ports 1); mkdir logs
start kubelet python3 "$here/kubelet.py" "$logs" certs/apiserver.crt certs/apiserver.key logs
start kwok "$bin/kwok" --kubeconfig=kubeconfig --manage-all-nodes=true --node-ip=127.0.0.1 \
  --node-port="$logs" --server-address=127.0.0.1:0 "${stages[@]}"
for node in node-1 node-2; do
  "$KUBECTL" create -f - > /dev/null <<X
apiVersion: v1
kind: Node
metadata: {name: $node, labels: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}}
status:
  allocatable: &size {cpu: 64, memory: 256Gi, pods: 4000}
  capacity: *size
X
done
"$KUBECTL" wait --for=condition=Ready node --all --timeout=180s > /dev/null
echo "$KUBECONFIG"
