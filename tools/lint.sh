#!/usr/bin/env bash
# Runs the checks of the sources. --all: every file; --changed: those that differ from main (the
# default); --fix: formats every file instead. `tools/lint.sh CHECK [FILE...]` runs one check, as
# the pre-commit hooks do: clang-format, clang-tidy, ruff, gersemi, codespell, layers, house, text.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ! -d .venv/bin ]] || PATH=$PWD/.venv/bin:$PATH
unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE

readonly checks=(layers house text ruff gersemi codespell clang-format)
fix=no

die() {
  printf 'lint: %s\n' "$*" >&2
  exit 2
}

need() {
  command -v "$1" >/dev/null || die "$1 is missing: run \`make dev-deps\`"
}

# Of the files given on standard input, those whose name matches a glob.
matching() {
  local path glob
  while IFS= read -r path; do
    for glob in "$@"; do
      # shellcheck disable=SC2053 # the right side is meant as a pattern
      if [[ ${path##*/} == $glob && -f $path ]]; then
        printf '%s\n' "$path"
        break
      fi
    done
  done
}

# run_on_files COMMAND...: adds the names on standard input; does nothing if there are none.
run_on_files() {
  xargs -r -d '\n' "$@"
}

# On the core's own sources: a file that sees LibTorch takes a minute and clang builds none of them,
# and tests would double the time.
check_clang_tidy() {
  local sources
  need clang-tidy-19
  if ! cmake --preset core >build/configure-core.log 2>&1; then
    cat build/configure-core.log
    return 1
  fi
  mapfile -t sources < <(matching '*.cpp' | grep -Ev '_test\.cpp$|^(tests|examples|bench|fuzz|python|src/unisono/torch)/')
  ((${#sources[@]} == 0)) || tools/tidy.py -p build/core "${sources[@]}"
}

# run_check NAME: on the files whose names stand on standard input.
run_check() {
  case $1 in
    layers) tools/check_layers.py ;;
    house) tools/check_house.py ;;
    text) run_on_files tools/check_text.py ;;
    ruff)
      need ruff
      local files
      files=$(matching '*.py')
      if [[ $fix == yes ]]; then
        run_on_files ruff check --quiet --fix <<<"$files" &&
          run_on_files ruff format --quiet <<<"$files"
      elif [[ -n $files ]]; then
        run_on_files ruff check --quiet <<<"$files" &&
          run_on_files ruff format --quiet --diff <<<"$files"
      fi
      ;;
    gersemi)
      need gersemi
      local mode=(--check --diff)
      [[ $fix == no ]] || mode=(--in-place)
      matching CMakeLists.txt '*.cmake' | run_on_files gersemi --quiet "${mode[@]}"
      ;;
    codespell)
      need codespell
      matching '*.md' '*.h' '*.cpp' '*.py' '*.sh' '*.cmake' 'CMakeLists.txt' Makefile run |
        run_on_files codespell
      ;;
    clang-format)
      local format=clang-format mode=(--dry-run --Werror)
      command -v clang-format >/dev/null || format=clang-format-19
      need $format
      [[ $($format --version) == *" 19.1.7"* ]] || die "clang-format must be 19.1.7: run \`make dev-deps\`"
      [[ $fix == no ]] || mode=(-i)
      matching '*.h' '*.cpp' | run_on_files $format "${mode[@]}"
      ;;
    clang-tidy) check_clang_tidy ;;
    *) die "unknown check $1; there are: ${checks[*]} clang-tidy" ;;
  esac
}

all_files() {
  git ls-files --cached --others --exclude-standard
}

changed_files() {
  local base
  base=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null ||
    git rev-parse HEAD)
  { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u
}

run_checks() {
  local files=$1 failed=() check start
  for check in "${checks[@]}"; do
    start=$SECONDS
    if run_check "$check" <<<"$files"; then
      printf 'lint: %-12s ok (%d s)\n' "$check" $((SECONDS - start))
    else
      printf 'lint: %-12s FAILED (%d s)\n' "$check" $((SECONDS - start))
      failed+=("$check")
    fi
  done
  ((${#failed[@]} == 0)) || die "failed: ${failed[*]}. \`make format\` mends formatting."
}

mkdir -p build
case ${1:---changed} in
  --all) run_checks "$(all_files)" ;;
  --changed) run_checks "$(changed_files)" ;;
  --fix)
    fix=yes
    for check in ruff gersemi clang-format; do
      all_files | run_check $check
    done
    ;;
  -*) die "unknown option $1; there are --all, --changed and --fix" ;;
  *)
    check=$1
    shift
    printf '%s\n' "$@" | run_check "$check"
    ;;
esac
