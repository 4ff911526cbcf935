#!/usr/bin/env bash
# Installs the library, or builds and runs a consumer of it, from outside:
#   run.sh prefix BUILD_DIR WORK            installs BUILD_DIR to WORK/prefix
#   run.sh find_package PREFIX WORK         a CMake consumer of the installed package
#   run.sh pkg_config PREFIX WORK           a consumer compiled by hand with pkg-config's flags
#   run.sh add_subdirectory SOURCE WORK     a CMake consumer that builds the library inside itself
# ctest sets the environment: CMAKE GENERATOR CXX LAUNCHER BUILD_TYPE SANITIZE SHARED VERSION.
set -euo pipefail
way=$1 from=$2 work=$3
consumer=$(cd "$(dirname "${BASH_SOURCE[0]}")/consumer" && pwd)

fail() { echo "install.$way: $*" >&2; exit 1; }

expect_version() {
  local said
  said=$("$@") || fail "the consumer failed with exit code $?"
  [ "${said%%$'\n'*}" = "ration $VERSION" ] || fail "the consumer says \"$said\", expected \"ration $VERSION\""
  echo "$said"
}

cmake_consumer() {
  rm -rf "${work:?}/$way"
  "$CMAKE" -S "$consumer" -B "$work/$way" -G "$GENERATOR" -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$LAUNCHER" -DCMAKE_BUILD_TYPE="$BUILD_TYPE" "$@"
  "$CMAKE" --build "$work/$way" --parallel 2
}

case $way in
  prefix)
    rm -rf "${work:?}/prefix"
    "$CMAKE" --install "$from" --prefix "$work/prefix" >"$work/prefix.log" || { cat "$work/prefix.log"; exit 1; }
    (cd "$work/prefix" && find . -type f -o -type l | sort)
    [ -f "$work/prefix/include/ration/ration.hpp" ] || fail "no header include/ration/ration.hpp"
    # Installed headers must not reach back into the source tree.
    if grep -rnE '#include "' "$work/prefix/include"; then fail "an installed header includes a private one"; fi
    if [ -x "$work/prefix/bin/ration" ]; then "$work/prefix/bin/ration" --version; fi
    ;;
  find_package)
    cmake_consumer -DCMAKE_PREFIX_PATH="$from" -DWANTED="$VERSION"
    expect_version "$work/$way/consumer"
    ;;
  pkg_config)
    pc=$(find "$from" -name ration.pc)
    [ -n "$pc" ] || fail "no ration.pc under $from"
    export PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    mkdir -p "$work/$way"
    for mode in "" --static; do
      [ -n "$mode" ] && [ "$SHARED" = 1 ] && continue
      flags=$(pkg-config ${mode:+"$mode"} --cflags --libs ration) || fail "pkg-config $mode does not know ration"
      eval "words=($flags)"  # it quotes spaces for a shell
      # shellcheck disable=SC2154
      "$CXX" -std=c++20 ${SANITIZE:+-fsanitize=$SANITIZE} "$consumer/consumer.cpp" "${words[@]}" \
        -o "$work/$way/consumer" || fail "pkg-config $mode does not link: $flags"
      LD_LIBRARY_PATH=$(pkg-config --variable=libdir ration) expect_version "$work/$way/consumer"
    done
    ;;
  add_subdirectory)
    cmake_consumer -DRATION_SOURCE="$from" -DRATION_SANITIZE="$SANITIZE" -DRATION_UNITY=ON
    expect_version "$work/$way/consumer"
    "$CMAKE" --install "$work/$way" --prefix "$work/$way/installed" >/dev/null
    [ -e "$work/$way/installed/include/ration" ] && fail "the library installed itself with its user"
    exit 0
    ;;
  *) fail "unknown way" ;;
esac
