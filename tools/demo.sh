#!/usr/bin/env bash
# The main job from nothing: installs what is missing, builds, and trains the character-level GPT of examples/chargpt on real
# text, by 4 ranks at stage 3. Arguments go on to chargpt:   tools/demo.sh --stage 2 --dtype bf16
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

set_up build
phase "demo: configure" build/demo/configure.log cmake --preset release
phase "demo: build" build/demo/build.log cmake --build --preset release --parallel "$jobs" --target chargpt ration_command

# Defaults that the arguments may override.
given=" $* "
arguments=()
[[ $given == *" --ranks"[\ =]* ]] || arguments+=(--ranks 4)
[[ $given == *" --stage"[\ =]* ]] || arguments+=(--stage 3)
arguments+=("$@")
echo "demo: train             chargpt ${arguments[*]}"
start=$SECONDS
build/release/examples/chargpt "${arguments[@]}"
echo "demo: trained in $((SECONDS - start)) s" >&2
