# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it: installs what is missing on Debian by apt, and reports phases and their times.
#   set_up build          what the library, the command, the examples and their tests need
#   set_up build checks   and what tools/check.sh needs besides
# As root or with `sudo -n`; otherwise prints the line to run and exits with 1. Once all is there it calls nothing but dpkg.
# RATION_SETUP=off skips it, for machines where the tools come from elsewhere.

packages_build=(g++ cmake ninja-build ccache pkg-config
  libfmt-dev nlohmann-json3-dev libxxhash-dev libhdf5-dev libasio-dev libcli11-dev libeigen3-dev libgtest-dev libgmock-dev)
packages_checks=(clang libclang-rt-dev clang-format clang-tidy libgloo-dev libopenmpi-dev openmpi-bin liburing-dev iproute2 strace)

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

set_up() {
  [ "${RATION_SETUP:-on}" = off ] && return
  local wanted=() missing=() list as_root=()
  for list in "$@"; do
    local -n packages=packages_$list
    wanted+=("${packages[@]}")
  done
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "set-up: no apt-get here; install the equivalents of: ${wanted[*]}, then run again with RATION_SETUP=off" >&2
    exit 1
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      echo "set-up: packages are missing; run this, then start again:" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "set-up: installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends \
      -o DPkg::Lock::Timeout=120 "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    rm -f "$log"
    echo "set-up: apt-get failed" >&2
    exit 1
  fi
  rm -f "$log"
}

# A compiler cache that cannot be written would fail every compilation.
if [ -z "${CCACHE_DIR:-}" ] && ! { mkdir -p "${HOME:-/nonexistent}/.cache" && [ -w "$HOME/.cache" ]; } 2>/dev/null; then
  export CCACHE_DIR=$PWD/build/ccache
fi

jobs=$(nproc)

# phase NAME LOG COMMAND...: runs it with its output in LOG, and prints one line; on failure the log's last 60 lines.
# PHASE_TIME is the time it took, in words.
phase() {
  local name=$1 log=$2 start=$SECONDS status=0
  shift 2
  mkdir -p "${log%/*}"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  local took=$((SECONDS - start))
  PHASE_TIME="$((took / 60)) min $((took % 60)) s"
  if [ $status -eq 0 ]; then
    printf '%-22s ok      %s\n' "$name" "$PHASE_TIME"
  else
    printf '%-22s FAILED  %s, exit code %d; the end of %s:\n' "$name" "$PHASE_TIME" $status "$log"
    tail -n 60 "$log"
  fi
  return $status
}
