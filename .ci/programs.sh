# shellcheck shell=bash
# Sourced by .ci/test: runs items, several at once. An item is a test program, or a check such as clippy.
#
# Tests of real processes wait most of the time, for leases, rollouts and time-outs. Items of the lane `waiting` therefore
# run in more slots than there are processors, one for each of their tests that run at once. The lane `node` is the same,
# but for one item at a time: they share a machine's only kubelet. Items of the lane `busy` need a processor all the
# time and no clock: they run one by one with a low priority, on what the waiting ones leave of the processors.
# The items that took longest in the last run begin first.

target=${CARGO_TARGET_DIR:-$PWD/target} logs=$target/test-logs measures=$target/test-seconds
rm -rf "$logs"; mkdir -p "$logs"; touch "$measures"
all_slots=${ROLLHOOK_SLOTS:-$((3 * $(nproc)))}
declare -A lane=() slots=() seconds=() directory=() command=() ended=() groups=()
items=()

item() { # NAME LANE SLOTS SECONDS DIRECTORY COMMAND: the seconds are those of a run that nobody has measured yet
  local name=$1 measured
  [[ $name =~ ${ROLLHOOK_ONLY:-} ]] || return 0
  measured=$(awk -v name="$name" '$1 == name { print $2 }' "$measures" 2> /dev/null)
  items+=("$name") lane[$name]=$2 slots[$name]=$3 seconds[$name]=${measured:-$4} directory[$name]=$5 command[$name]=$6
}
log_of() { printf '%s/%s.log' "$logs" "$1"; } # NAME

# Reads cargo's messages about a build, and prints each test program that it made: name, directory, program.
built_programs() {
  local manifest kind target program name
  grep -E '"reason":"compiler-artifact".*"profile":\{[^}]*"test":true\}.*"executable":"' |
    sed -E 's/.*"manifest_path":"([^"]*)","target":\{"kind":\["([^"]*)"[^]]*\][^}]*"name":"([^"]*)".*"executable":"([^"]*)".*/\1\t\2\t\3\t\4/' |
    while IFS=$'\t' read -r manifest kind target program; do
      name=$(sed -n '0,/^name = /s/^name = "\(.*\)"$/\1/p' "$manifest")
      case $kind in
        test | bench | example) name+=/$target ;;
        bin) name+=/bin-$target ;;
        *) name+=/lib ;;
      esac
      printf '%s\t%s\t%s\n' "$name" "$(dirname "$manifest")" "$program"
    done
}

run_items() { # returns whether all ended well; leaves each one's log, and its exit code in `ended`
  local name pid code free=$all_slots all=0 taken later queue
  declare -A running=() begun=() held=()
  mapfile -t queue < <(for name in "${items[@]}"; do printf '%s\t%s\n' "${seconds[$name]}" "$name"; done | sort -rn | cut -f 2)
  while [ $((${#queue[@]} + ${#running[@]})) -gt 0 ]; do
    later=()
    for name in "${queue[@]}"; do
      taken=${lane[$name]}
      if [ "$taken" != waiting ] && [ -n "${held[$taken]:-}" ]; then
        later+=("$name")
      elif [ "$taken" = busy ] || [ "${slots[$name]}" -le "$free" ] || [ "$free" = "$all_slots" ]; then
        begin_item "$name"
        pid=$! running[$pid]=$name begun[$pid]=$SECONDS held[$taken]=$pid groups[$pid]=1
        [ "$taken" = busy ] || free=$((free - slots[$name]))
      else
        later+=("$name")
      fi
    done
    queue=("${later[@]}")
    wait -n -p pid "${!running[@]}"; code=$?
    name=${running[$pid]} taken=${lane[$name]}
    kill -- "-$pid" 2> /dev/null # what a program that was stopped has left
    unset "running[$pid]" "held[$taken]" "groups[$pid]"
    [ "$taken" = busy ] || free=$((free + slots[$name]))
    # shellcheck disable=SC2034 # .ci/test reads it
    ended[$name]=$code
    report_item "$name" "$code" $((SECONDS - begun[$pid]))
    [ "$code" = 0 ] || all=1
  done
  return $all
}
begin_item() { # NAME: in a process group of its own, by which it is ended when this script is
  local log; log=$(log_of "$1"); mkdir -p "${log%/*}"
  set -m
  (
    [ "${lane[$1]}" != busy ] || renice -n 10 -p "$BASHPID" > /dev/null
    cd "${directory[$1]}" || exit
    export RUST_TEST_THREADS=${slots[$1]}
    eval "${command[$1]}"
    code=$?
    times > "$log.times"
    exit $code
  ) > "$log" 2>&1 < /dev/null &
  set +m
}
report_item() { # NAME CODE SECONDS
  local result=ok
  [ "$2" = 0 ] || { result=FAILED; printf '\n'; cat "$(log_of "$1")"; }
  printf '%-6s %5d s %6d s of a processor  %s\n' $result "$3" "$(processor_seconds "$(log_of "$1").times")" "$1"
  sed -i "\\|^$1 |d" "$measures"; printf '%s %s\n' "$1" "$3" >> "$measures"
}
processor_seconds() { # FILE: of a process's children, as the shell's `times` has them in its second line
  awk -F '[ms ]+' 'NR == 2 { print int(60 * ($1 + $3) + $2 + $4) }' "$1" 2> /dev/null || echo 0
}
end_items() { for pid in "${!groups[@]}"; do kill -- "-$pid" 2> /dev/null; done; }
