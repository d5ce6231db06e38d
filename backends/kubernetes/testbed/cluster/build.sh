#!/usr/bin/env bash
# Builds a real Kubernetes control plane from Go modules: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
# kubectl, kubelet, and kwok (which plays nodes and pods). Needs Go; about 6 minutes on 2 cores the first time, nothing
# after. Prints the directory of the binaries. Each is moved there when it is complete, so what is there is usable.
set -euo pipefail
K8S=1.36.3 ETCD=3.6.8 KWOK=0.8.0
DIR=${CLUSTER_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/rollhook-cluster/k8s-$K8S-etcd-$ETCD-kwok-$KWOK}
KUBE=(kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet)
mkdir -p "$DIR"; exec 9> "$DIR/.lock"; flock 9
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; mkdir "$work/out"
export CGO_ENABLED=0 GOFLAGS=-mod=mod

missing() { local f; for f in "$@"; do [ -e "$DIR/$f" ] || return 0; done; return 1; }
module_dir() { go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'; }
# A module that only imports the packages named, so that `go` resolves what they need.
tools() { printf '//go:build tools\n\npackage tools\n\nimport (\n'; printf '\t_ "%s"\n' "$@"; echo ')'; }

if missing "${KUBE[@]}"; then
  mkdir "$work/k8s"; cd "$work/k8s"
  source=$(module_dir "k8s.io/kubernetes@v$K8S")
  { # k8s.io/kubernetes asks for its staging modules at v0.0.0: each is published as v0.<minor>.<patch>.
    printf 'module controlplane\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$K8S"
    awk '/=> .\/staging/ {print $1}' "$source/go.mod" | sort -u | sed "s/.*/  & => & v0.${K8S#1.}/"
    echo ')'
  } > go.mod
  tools "${KUBE[@]/#/k8s.io/kubernetes/cmd/}" > tools.go
  go mod tidy -e >&2
  version=k8s.io/component-base/version; IFS=. read -r major minor _ <<< "$K8S"
  go build -o "$work/out/" \
    -ldflags "-s -w -X $version.gitVersion=v$K8S -X $version.gitMajor=$major -X $version.gitMinor=$minor" \
    "${KUBE[@]/#/k8s.io/kubernetes/cmd/}" >&2
fi
if missing etcd; then
  mkdir "$work/etcd"; cd "$work/etcd"
  printf 'module etcdbuild\n\ngo 1.26.0\n' > go.mod; tools go.etcd.io/etcd/server/v3 > tools.go
  go get "go.etcd.io/etcd/server/v3@v$ETCD" >&2
  go build -ldflags '-s -w' -o "$work/out/etcd" go.etcd.io/etcd/server/v3 >&2
fi
if missing kwok; then
  GOFLAGS='' GOBIN="$work/out" go install -ldflags '-s -w' "sigs.k8s.io/kwok/cmd/kwok@v$KWOK" >&2
fi
if missing stages; then # kwok's own descriptions of how a node lives and how a pod is deleted
  stage=$(module_dir "sigs.k8s.io/kwok@v$KWOK")/kustomize/stage
  mkdir "$work/out/stages"
  cp "$stage"/node/fast/node-initialize.yaml "$stage"/node/heartbeat/node-heartbeat.yaml "$stage"/pod/fast/pod-delete.yaml "$work/out/stages/"
  chmod -R u+w "$work/out/stages"
fi
for built in "$work"/out/*; do [ ! -e "$built" ] || mv "$built" "$DIR/"; done
echo "$DIR"
