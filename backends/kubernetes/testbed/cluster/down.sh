#!/usr/bin/env bash
# down.sh STATE_DIR: stops what up.sh started there, by the process ids it recorded, and removes the directory.
set -u
. "$(dirname "$0")/../lib.sh"; D=$(realpath -m "$1")
for name in kwok kubelet scheduler controller-manager apiserver etcd; do stop $name; done
rm -rf "$D"
