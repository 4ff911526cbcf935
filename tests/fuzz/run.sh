#!/usr/bin/env bash
# Runs every fuzz target for a while, as many at a time as there are processors; exit code 1 where one found something.
#   tests/fuzz/run.sh BUILD_FOLDER [SECONDS]
# What was found lies in BUILD_FOLDER/fuzz/NAME.
set -euo pipefail
targets=$(cd "$1/tests/fuzz" && pwd)
seconds=${2:-60}
seeds=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
mkdir -p "$1/fuzz"
cd "$1/fuzz"
# libhdf5 leaks, asks for any amount of memory and crashes when a file is damaged: what breaks inside of it is only counted.
export ASAN_OPTIONS=allocator_may_return_null=1

run() {
  local name=$1 begin
  rm -rf "$name"
  mkdir -p "$name/corpus"
  begin=("$name/corpus")
  if [ -d "$seeds/${name}_seeds" ]; then begin+=("$seeds/${name}_seeds"); fi
  local options=(-max_total_time="$seconds" -artifact_prefix="$name/" -print_final_stats=1 -timeout=30 -rss_limit_mb=4096)
  if [ "$name" = hdf5_import ]; then
    export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
    options+=(-fork=1 -ignore_crashes=1 -ignore_timeouts=1 -malloc_limit_mb=1048576 -rss_limit_mb=0)
  fi
  if fuzz "$name" "${options[@]}" "${begin[@]}" && crashes_are_of_hdf5 "$name"; then
    echo "$name: nothing found in $(runs_of "$name") runs"
  else
    tail -n 40 "$name/log"
    echo "$name: FAILED; see $PWD/$name"
    return 1
  fi
}
# Where crashes are looked at one by one, the exit code says only how the last job has ended.
fuzz() {
  local name=$1
  shift
  "$targets/fuzz_$name" "$@" >"$name/log" 2>&1 && return
  [ "$name" = hdf5_import ] && grep -q '^INFO: fuzzed for' "$name/log"
}
runs_of() {
  sed -n -e 's/^stat::number_of_executed_units: *//p' -e 's/^#\([0-9]*\): cov:.*/\1/p' "$1/log" | tail -n 1
}
# Whether in each of them libhdf5 comes before us on the stack.
crashes_are_of_hdf5() {
  local crash of=0
  for crash in "$1"/crash-*; do
    [ -e "$crash" ] || continue
    "$targets/fuzz_$1" -malloc_limit_mb=1048576 -rss_limit_mb=0 "$crash" >"$crash.log" 2>&1 && continue
    if ! grep -E -m 1 'libhdf5|ration::' "$crash.log" | grep -q libhdf5; then
      cat "$crash.log" >>"$1/log"
      return 1
    fi
    of=$((of + 1))
  done
  if [ $of -gt 0 ]; then echo "$1: $of files crash libhdf5"; fi
}
export -f run fuzz runs_of crashes_are_of_hdf5
export targets seconds seeds

find "$targets" -maxdepth 1 -name 'fuzz_*' -type f -executable -printf '%f\n' | sed 's/^fuzz_//' | sort |
  xargs -n 1 -P "$(nproc)" bash -c 'run "$0"'
