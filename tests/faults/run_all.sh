#!/usr/bin/env bash
# Saves that are killed and lied to at every system call that changes something in the checkpoint folder: after each, the former
# step must load to the same digest, or the new one must be there whole. Ranks are processes, of which one meets the fault; with
# threads the same fault meets the same call of every rank. Prints how many faults were injected and how many ended badly.
#   run_all.sh PROGRAM SHORT_WRITES_LIBRARY [EVERY]     EVERY: only every so many-th fault
# Exit code 77: skipped (no strace, or it may not trace).
set -euo pipefail
program=$(realpath "$1")
preload=$(realpath "$2")
every=${3:-1}
calls=openat,mkdir,write,pwrite64,fsync,ftruncate,fallocate,rename,renameat2,unlink,unlinkat,rmdir
ranks=4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v strace >/dev/null || { echo "SKIPPED: no strace (Debian: strace)"; exit 77; }
strace -o /dev/null true 2>/dev/null || { echo "SKIPPED: strace may not trace here"; exit 77; }
"$program" prepare "$work/probe" 2>/dev/null
export RATION_POSTMORTEM_DIR=$work

port=$((20000 + $$ % 20000))
# job ROOT RANK COMMAND...: the save by processes, RANK started by COMMAND; -1: by threads, all of it. Its output in $work/out.*
job() {
  local root=$1 faulty=$2 rank pids=() pid
  shift 2
  port=$((port + 1))
  if [ "$faulty" -lt 0 ]; then
    timeout -k 1 30 "$@" "$program" save "$root" >"$work/out.0" 2>&1 || true
    return
  fi
  for ((rank = 0; rank < ranks; ++rank)); do
    local prefix=()
    [ $rank -eq "$faulty" ] && prefix=("$@")
    RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      timeout -k 1 30 "${prefix[@]}" "$program" save "$root" >"$work/out.$rank" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    local status=0
    wait "$pid" || status=$?
    if [ $status -eq 124 ]; then echo "hung" >>"$work/out.0"; fi
  done
}

injected=0
bad=0
# check WHAT ROOT: exactly one of the two steps, as it should be; and a save that meets no fault goes on from there.
check() {
  local what=$1 root=$2 found saved
  injected=$((injected + 1))
  found=$("$program" check "$root" 2>&1 | tail -n 1) || true
  saved=$(timeout 30 "$program" save "$root" 2>&1 | tail -n 1) || true
  case "$found" in
    "$former") [ "$saved" = "$newer_saved" ] && ! grep -q hung "$work"/out.* && return ;;
    "$newer") [ "${saved%% *}" = saved ] && ! grep -q hung "$work"/out.* && return ;;
  esac
  bad=$((bad + 1))
  echo "BAD: $what: found \"$found\", then \"$saved\": $(cat "$work"/out.* | tail -n 3 | cut -c1-300)"
}

"$program" prepare "$work/base"
former=$("$program" check "$work/base")
cp -r "$work/base" "$work/whole"
newer_saved=$("$program" save "$work/whole")
newer=${newer_saved/saved/found}
if ! "$program" check "$work/whole" | grep -qx "$newer"; then echo "FAILED: no save without faults"; exit 1; fi
modes=(-1)
# Processes need gloo.
rm -rf "$work/root"; cp -r "$work/base" "$work/root"
job "$work/root" 0 env
if grep -q "^$newer_saved" "$work/out.0"; then modes+=(0 1 2 3); else echo "threads only: $(tail -n 1 "$work/out.0")"; fi

start=$SECONDS
number=0
for mode in "${modes[@]}"; do
  # Which calls of which number touch the folder, in any thread.
  rm -rf "$work/root"; cp -r "$work/base" "$work/root"
  job "$work/root" "$mode" strace -f -y -e "trace=$calls" -o "$work/trace"
  mapfile -t places < <(
    awk -v root="$work/root" '{
      name = $2; sub(/\(.*/, "", name); ++count[$1, name]
      if (index($0, root) && !($0 ~ /openat/ && $0 !~ /O_CREAT/)) print name, count[$1, name] }' "$work/trace" | sort -u)
  for place in "${places[@]}"; do
    read -r name when <<<"$place"
    for fault in signal=SIGKILL error=ENOSPC error=EIO error=EINTR; do
      number=$((number + 1))
      [ $((number % every)) -eq 0 ] || continue
      rm -rf "$work/root"; cp -r "$work/base" "$work/root"
      job "$work/root" "$mode" strace -f -qq -e "trace=$name" -e "inject=$name:$fault:when=$when" -o /dev/null 2>/dev/null
      check "rank $mode, $name number $when, $fault" "$work/root"
    done
  done
  for often in 1 2 3 5 7 11; do
    number=$((number + 1))
    [ $((number % every)) -eq 0 ] || continue
    rm -rf "$work/root"; cp -r "$work/base" "$work/root"
    job "$work/root" "$mode" env LD_PRELOAD="$preload" RATION_FAULT_ROOT="$work/root" RATION_FAULT_EVERY=$often
    check "rank $mode, every write number $often short" "$work/root"
  done
  [ "$every" -gt 1 ] || echo "rank $mode done: $injected faults so far, $bad bad outcomes"
done
echo "$injected faults injected, $bad bad outcomes, $((SECONDS - start)) s"
[ $bad -eq 0 ]
