#!/usr/bin/env bash
# down.sh STATE_DIR: stops what up.sh started there (by recorded process id), its containers, mounts, bridge and control
# groups, puts kernel settings back, and removes the directory. It asks nothing of containerd, so that it also clears
# up after a bed that was killed or came up halfway, and may be repeated.
set -u
. "$(dirname "$0")/../lib.sh"; D=$(realpath -m "$1"); BRIDGE=rollhook0

for name in buildkitd forward kubelet scheduler controller-manager apiserver etcd registry private-registry gitd containerd; do stop $name; done
for process in /proc/[0-9]*; do # the shims outlive containerd on purpose; ours name its socket
  tr '\0' ' ' < "$process/cmdline" | grep -q "containerd-shim.* -address $D/containerd.sock" && kill -KILL "${process#/proc/}"
done 2> /dev/null
for address in "$D"/containerd/state/io.containerd.runtime.v2.task/k8s.io/*/address; do # and leave their sockets behind
  [ ! -f "$address" ] || rm -f "$(sed 's,^unix://,,' "$address")"
done
if [ "$(cat /sys/class/net/$BRIDGE/ifalias 2> /dev/null)" = "$D" ]; then # else the control groups are not ours
  for _ in $(seq 50); do # all processes in our control groups are of our pods
    pids=$(find /sys/fs/cgroup/*/rollhook -name cgroup.procs -exec cat {} + 2> /dev/null | sort -u)
    [ -n "$pids" ] || break
    kill -KILL $pids 2> /dev/null; sleep .1
  done
  find /sys/fs/cgroup/*/rollhook -depth -type d -exec rmdir {} + 2> /dev/null
fi
for _ in 1 2 3; do # a mount may lie below another: the deepest first, and again
  awk -v d="$D/" 'index($2, d) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mount; do
    umount -l "$(printf %b "$mount")" 2> /dev/null
  done
done
[ ! -f "$D/sysctl.saved" ] || sysctl -q -p "$D/sysctl.saved"
# Fixed paths of the kubelet and CNI plugins.
find /var/log/containers -lname "$D/*" -delete 2> /dev/null
grep -lsF "$D/" /var/lib/cni/results/* | xargs -r rm -f
rm -f /var/lib/kubelet/device-plugins/kubelet.sock
rm -rf "$D"
if [ "$(cat /sys/class/net/$BRIDGE/ifalias 2> /dev/null)" = "$D" ]; then ip link del $BRIDGE; fi
