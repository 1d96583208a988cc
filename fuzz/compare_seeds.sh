#!/usr/bin/env bash
# Holds the committed corpus against what the encoders write: compare_seeds.sh FUZZ_SEEDS CORPUS
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder"
if ! diff -r "$folder" "$2"; then
  echo "the corpus is not what the encoders write; to write it anew: $1 $2" >&2
  exit 1
fi
