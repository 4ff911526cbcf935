#!/usr/bin/env bash
# Every check, from nothing: installs what is missing, then formatting, the release build and all tests, the multi-rank tests
# under the sanitizers (AddressSanitizer by clang++, ThreadSanitizer by g++), a minute of each fuzz target, clang-tidy.
# Ends with a summary of the stages, then ctest's own of the release run.
#   tools/check.sh           everything: about 30 minutes on 2 cores
#   tools/check.sh --quick   the release build and its tests
# Logs: build/check/*.log. Exit code 1 if a stage failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

quick=no
case "${1:-}" in
  "") ;;
  --quick) quick=yes ;;
  *) echo "usage: tools/check.sh [--quick]" >&2; exit 2 ;;
esac

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
logs=build/check
summary=()
failed=no

# stage NAME COMMAND...: a phase with its log, kept for the summary.
stage() {
  local name=$1
  shift
  if phase "$name" "$logs/${name// /_}.log" "$@"; then
    summary+=("$(printf '%-22s ok      %s' "$name" "$PHASE_TIME")")
  else
    summary+=("$(printf '%-22s FAILED  %s' "$name" "$PHASE_TIME")")
    failed=yes
    return 1
  fi
}

off() {
  summary+=("$(printf '%-22s off     %s' "$1" "$2")")
}

# configure_and_build FOLDER CMAKE_OPTIONS...   ($target: what to build, by default everything)
configure_and_build() {
  local folder=build/$1
  shift
  cmake -S . -B "$folder" -G Ninja "$@" &&
    "${without_aslr[@]}" cmake --build "$folder" --parallel "$jobs" --target "${target:-all}"
}

# ThreadSanitizer of today's compilers cannot map its shadow where the kernel randomizes addresses widely.
without_aslr=()
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then without_aslr=(setarch "$(uname -m)" -R); fi
}

run_tests() {
  "${without_aslr[@]}" ctest --test-dir "$1" --parallel "$jobs" --output-on-failure --no-label-summary --no-tests=error "${@:2}"
}

# The tests in which several ranks run.
run_rank_tests() {
  run_tests "$1" -L '^ranks$'
}

# The compilation database of a build, which is only configured, says what is ours and how it is compiled; a folder is one file
# of it. Tests are left out: formatting, two compilers and running them say enough.
tidy() {
  cmake -S . --preset release -B build/tidy -DRATION_UNITY=ON -DRATION_TESTS=OFF &&
    sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/tidy/compile_commands.json | sort -u |
    xargs -d '\n' -n 1 -P "$jobs" clang-tidy -p build/tidy --quiet --warnings-as-errors='*' --checks=-bugprone-suspicious-include
}

fuzz() {
  configure_and_build fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ -DRATION_FUZZ=ON "${flags[@]}" &&
    tests/fuzz/run.sh build/fuzz 60
}

start=$SECONDS
if [ $quick = yes ]; then set_up build; else set_up build checks; fi
rm -rf $logs
mkdir -p $logs
summary+=("$(printf '%-22s ok      %d s' "set-up" $((SECONDS - start)))")

if [ $quick = no ]; then stage "format" bash tools/format.sh --check || true; fi

if stage "release build" configure_and_build release --preset release -DRATION_WERROR=ON -DRATION_UNITY=TESTS -DRATION_TESTS=ON \
  -DRATION_EXAMPLES=ON -DRATION_TOOLS=ON; then
  stage "release tests" run_tests build/release || true
  while read -r line; do off "${line%%  *}" "${line##*  off }"; done < <(
    sed -n 's/^-- *\(.*  off .*\)$/\1/p' $logs/release_build.log)
fi

if [ $quick = no ]; then
  # LibTorch 1.13's headers are not for clang++ in C++20, and it is not built for the sanitizers: it is compared in the release
  # build. clang++ sees other warnings than g++. Most of the time here is the compilers': hence -O1.
  flags=(-DRATION_WERROR=ON -DRATION_UNITY=ON -DRATION_EXAMPLES=OFF -DRATION_TORCH=OFF "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1")
  if target=rank_tests stage "clang++ asan+ubsan" configure_and_build asan --preset asan -DCMAKE_CXX_COMPILER=clang++ "${flags[@]}"; then
    stage "asan+ubsan tests" run_rank_tests build/asan || true
  fi

  fixed_addresses
  if target=rank_tests stage "tsan build" configure_and_build tsan --preset tsan "${flags[@]}"; then
    stage "tsan tests" run_rank_tests build/tsan || true
  fi
  without_aslr=()

  target=fuzz stage "fuzzing" fuzz || true
  stage "clang-tidy" tidy || true
fi

echo
printf '%s\n' "${summary[@]}"
echo "total $((SECONDS / 60)) min $((SECONDS % 60)) s; logs in $logs"
if [ $failed = yes ]; then echo "FAILED"; fi
echo
if [ -e $logs/release_tests.log ]; then sed -n '/^[0-9]*% tests passed/,$p' $logs/release_tests.log; fi
[ $failed = no ]
