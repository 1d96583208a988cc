#!/usr/bin/env bash
# Compares the committed corpus with the seeds that the encoders write; options of diff(1) leave some
# out: compare_seeds.sh FUZZ_SEEDS CORPUS [OPTION...]
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder"
if ! diff -r "${@:3}" "$folder" "$2"; then
  echo "the corpus differs from the seeds of the encoders; to write it anew: $1 $2" >&2
  exit 1
fi
