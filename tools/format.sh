#!/usr/bin/env bash
# Formats all sources in place; with --check only says what is not formatted, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "${1:-}" = --check ] && mode=(--dry-run -Werror) || mode=(-i)
folders=()
for folder in include src offload tools examples tests; do [ -d $folder ] && folders+=("$folder"); done
find "${folders[@]}" \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -n 16 -P "$(nproc)" clang-format --style=file "${mode[@]}"
