#!/usr/bin/env bash
# Starts a program on N ranks as processes of this host, without a launcher; fails if one fails.
#   by_hand.sh N PROGRAM [ARGUMENTS]
set -euo pipefail
ranks=$1
shift
pids=()
for rank in $(seq 0 $((ranks - 1))); do
  RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000)) "$@" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
