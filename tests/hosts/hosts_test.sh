#!/usr/bin/env bash
# Jobs over several hosts: network namespaces joined by a bridge, each with a host name of its own, so that the library sees
# hosts that share no memory. Digests must be those of threads; a cable that is cut must be an error that names who is missing.
#   hosts_test.sh CHARGPT [MPIRUN]      exit code 77: skipped (not root, or no namespaces here)
set -euo pipefail
chargpt=$1
mpirun=${2:-}
work=$(mktemp -d)
prefix=rt$$          # of everything made here
subnet=10.78.$(($$ % 250))

skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }

# shellcheck disable=SC2317  # by trap
leave() {
  local pids
  pids=$(jobs -p)
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -9 $pids 2>/dev/null || true
  for i in 1 2 3; do
    ip link del "${prefix}v$i" 2>/dev/null || true
    ip netns del "$prefix-$i" 2>/dev/null || true
  done
  ip link del "${prefix}b" 2>/dev/null || true
  rm -rf "$work"
}

[ "$(id -u)" -eq 0 ] || skip "hosts are made by root only"
command -v ip >/dev/null || skip "no ip here (Debian: iproute2)"
ip netns add "$prefix-1" 2>/dev/null || skip "no network namespaces here"
trap leave EXIT
ip netns exec "$prefix-1" true 2>/dev/null || skip "no commands in network namespaces here, as in a chroot"
ip link add "${prefix}b" type bridge 2>/dev/null || skip "no bridges here"
ip addr add "$subnet.254/24" dev "${prefix}b"
ip link set "${prefix}b" up
for i in 1 2 3; do
  [ $i -eq 1 ] || ip netns add "$prefix-$i"
  ip link add "${prefix}v$i" type veth peer name eth0 netns "$prefix-$i"
  ip link set "${prefix}v$i" master "${prefix}b" up
  ip -n "$prefix-$i" addr add "$subnet.$i/24" dev eth0
  ip -n "$prefix-$i" link set eth0 up
  ip -n "$prefix-$i" link set lo up
done

# on HOST COMMAND...
on() {
  local i=$1
  shift
  ip netns exec "$prefix-$i" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$prefix-$i" "$@"
}

export RATION_TIMEOUT=60 RATION_POSTMORTEM_DIR=$work
model=(--batch 12 --steps 6 --layers 2 --width 64)

# by_hand NAME HOST_OF_RANK... -- ARGUMENTS: a job of processes that gloo joins; each rank's output in $work/NAME.RANK.
by_hand() {
  local name=$1 rank=0 hosts=() pids=()
  shift
  while [ "$1" != -- ]; do hosts+=("$1"); shift; done
  shift
  for rank in "${!hosts[@]}"; do
    RANK=$rank WORLD_SIZE=${#hosts[@]} MASTER_ADDR=$subnet.${hosts[0]} MASTER_PORT=29500 \
      on "${hosts[$rank]}" "$chargpt" "$@" >"$work/$name.$rank" 2>&1 &
    pids+=($!)
  done
  job_pids=("${pids[@]}")
}

expect_digest() {
  local what=$1 wanted=$2 got=$3
  [ "$wanted" = "$got" ] || fail "$what: \"$got\", threads give \"$wanted\""
  echo "ok: $what: $got"
}

for stage in 0 3; do
  wanted=$("$chargpt" --ranks 3 --stage $stage "${model[@]}" --quiet | tail -n 1)
  by_hand hand 1 1 2 -- --stage $stage "${model[@]}" --quiet
  for pid in "${job_pids[@]}"; do wait "$pid" || fail "by hand: $(cat "$work"/hand.*)"; done
  expect_digest "gloo, stage $stage, two ranks on one host and one on another" "$wanted" "$(tail -n 1 "$work/hand.0")"
  by_hand hand 3 1 2 -- --stage $stage "${model[@]}" --quiet
  for pid in "${job_pids[@]}"; do wait "$pid" || fail "by hand: $(cat "$work"/hand.*)"; done
  expect_digest "gloo, stage $stage, three hosts" "$wanted" "$(tail -n 1 "$work/hand.0")"

  if [ -n "$mpirun" ]; then
    agent=$work/agent
    cat >"$agent" <<AGENT
#!/bin/sh
host=\${1##*.}; shift
exec ip netns exec "$prefix-\$host" unshare --uts sh -c "hostname $prefix-\$host; \$*"
AGENT
    chmod +x "$agent"
    for hosts in "$subnet.1:2,$subnet.2:1" "$subnet.1:1,$subnet.2:1,$subnet.3:1"; do
      got=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 "$mpirun" -n 3 --host "$hosts" --oversubscribe \
        --mca plm_rsh_agent "$agent" --mca btl tcp,self,vader --mca btl_tcp_if_include "$subnet.0/24" \
        --mca oob_tcp_if_include "$subnet.0/24" "$chargpt" --stage $stage "${model[@]}" --quiet 2>"$work/mpi.err" |
        tail -n 1) || fail "mpirun: $(cat "$work/mpi.err")"
      expect_digest "MPI, stage $stage, $hosts" "$wanted" "$got"
    done
  fi
done

# A cable is cut: both sides say who is missing, within the deadline and 5 s.
deadline=3
RATION_TIMEOUT=$deadline by_hand cut 1 1 2 -- --stage 3 --batch 12 --steps 1000000
for _ in $(seq 600); do
  grep -q "^step" "$work/cut.0" && break
  sleep 0.05
done
grep -q "^step" "$work/cut.0" || fail "the job to be cut did not begin: $(cat "$work"/cut.*)"
ip -n "$prefix-2" link set eth0 down
cut_at=$(date +%s)
for rank in 0 1 2; do
  status=0
  wait "${job_pids[$rank]}" || status=$?
  [ $status -eq 1 ] || fail "rank $rank ended with $status after the cable was cut: $(tail -n 3 "$work/cut.$rank")"
done
took=$(($(date +%s) - cut_at))
[ $took -le $((deadline + 5)) ] || fail "the ranks took $took s to end after the cable was cut"
for rank in 0 1; do
  grep -Eq "rank 2 has not been heard of|waiting for rank 2|rank 2 was lost|rank 2 has died" "$work/cut.$rank" ||
    fail "rank $rank does not name rank 2: $(tail -n 1 "$work/cut.$rank")"
done
grep -Eq "rank 0 |ranks 0, 1|rank 1 " "$work/cut.2" || fail "rank 2 does not say who is missing: $(tail -n 1 "$work/cut.2")"
for rank in 0 1 2; do echo "ok: cut: $(grep "^ration:" "$work/cut.$rank" | cut -c1-200)"; done
