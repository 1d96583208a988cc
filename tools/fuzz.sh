#!/usr/bin/env bash
# Runs each fuzz target for a time: fuzz.sh [SECONDS [TARGET...]]; builds nothing.
#
# What they learn stays in build/fuzz/corpus for the next run. An input that a target fails on goes
# to build/fuzz/failures; the message says how to run it again.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly build=build/fuzz
readonly seconds=${1:-20}
readonly max_input_bytes=4096
readonly max_seconds_of_an_input=5
symbolizer=$(command -v llvm-symbolizer-16 addr2line | head -n 1)
export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=external_symbolizer_path=$symbolizer
failed=()

mapfile -t targets < <(
  if (($# > 1)); then printf '%s\n' "${@:2}"; else ls fuzz/corpus; fi
)

run_target() {
  local name=$1 corpus=$build/corpus/$1 log=$build/$1.log
  mkdir -p "$corpus" "$build/failures"
  if ! "$build/bin/${name}_fuzzer" -max_total_time="$seconds" -max_len=$max_input_bytes \
    -timeout=$max_seconds_of_an_input -rss_limit_mb=1024 -print_final_stats=1 -use_value_profile=1 \
    -artifact_prefix="$build/failures/$name-" "$corpus" "fuzz/corpus/$name" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log"
    printf 'fuzz: %-15s FAILED; again: %s INPUT (log: %s)\n' \
      "$name" "$build/bin/${name}_fuzzer" "$log"
    return 1
  fi
  printf 'fuzz: %-15s ok, %s inputs in %s s, %s kept\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$seconds" \
    "$(find "$corpus" -type f | wc -l)"
}

for target in "${targets[@]}"; do
  run_target "$target" || failed+=("$target")
done
if ((${#failed[@]})); then
  echo "fuzz: failed: ${failed[*]}" >&2
  exit 1
fi
