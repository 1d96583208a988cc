#!/usr/bin/env bash
# Installs what the build needs, or says what to type: `make deps`; with --dev also what the checks
# of .ci/run need: `make dev-deps`; with --test what the tests of the Python package need:
# `make test-deps`; with --bench the peers that the benchmarks compare with: `make bench-deps`; with
# --docs what the site of documents needs: `make docs-deps`. Does nothing, quickly, when all is there.
#
# UNISONO_TORCH_DIR  a LibTorch to use: then no torch is installed
# PYTHON             the Python for .venv; one that has the pinned torch already is used as it is
set -euo pipefail
cd "$(dirname "$0")/.."

readonly packages=(
  g++ cmake ninja-build ccache libfmt-dev libhwy-dev libssl-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev
  libsndfile1-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev nlohmann-json3-dev
  python3 python3-dev python3-venv dataset-fashion-mnist)
readonly dev_packages=(
  clang-16 libclang-rt-16-dev clang-tidy-19 clustershell gdb git iproute2 libmpich-dev libopenmpi-dev libpmix-dev libucx-dev man-db
  mandoc
  mold mpich munge openmpi-bin openssh-client openssh-server pdsh python3-yaml slurm-client slurmctld
  slurmd zsh)
readonly bench_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev iperf3 iproute2)
readonly docs_packages=(doxygen)
readonly python=${PYTHON:-python3}
readonly log=$PWD/build/deps.log
dev=no
tests=no
bench=no
docs=no

say() { printf 'deps: %s\n' "$*" >&2; }

die() {
  say "$@"
  exit 1
}

# run_logged WHAT COMMAND...: quiet unless it fails.
run_logged() {
  local what=$1
  shift
  say "$what (log: build/deps.log)"
  printf '\n$ %s\n' "$*" >>"$log"
  if ! "$@" >>"$log" 2>&1 </dev/null; then
    say "the end of build/deps.log:"
    tail -n 15 "$log" >&2
    die "failed: $what. Is the network reachable? The command was: $*"
  fi
}

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

install_packages() {
  local wanted=("${packages[@]}") missing sudo=()
  [[ $dev == no ]] || wanted+=("${dev_packages[@]}")
  [[ $bench == no ]] || wanted+=("${bench_packages[@]}")
  [[ $docs == no ]] || wanted+=("${docs_packages[@]}")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt here; the build needs these Debian packages' counterparts: ${wanted[*]}"
    return
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      die "system packages are missing. Run this, then make again:

  sudo apt-get update && sudo apt-get install -y ${missing[*]}
"
    fi
    sudo=(sudo -n)
  fi
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  run_logged "updating the package lists" "${apt[@]}" update
  run_logged "installing ${missing[*]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

# The pinned torch is in the Python that PYTHON names.
python_has_torch() {
  local wanted
  wanted=$(sed -n 's/^torch==//p' tools/requirements.txt)
  [[ -n ${PYTHON:-} ]] && "$python" - "$wanted" <<'PY' 2>/dev/null
import importlib.metadata as metadata
import sys

sys.exit(metadata.version("torch").split("+")[0] != sys.argv[1])
PY
}

check_torch_dir() {
  [[ -e $UNISONO_TORCH_DIR/lib/libtorch_cpu.so && -d $UNISONO_TORCH_DIR/include/ATen ]] ||
    die "UNISONO_TORCH_DIR=$UNISONO_TORCH_DIR is no LibTorch: it has no lib/libtorch_cpu.so or no" \
      "include/ATen. Set it to an unpacked LibTorch or to the torch folder of a Python's site-packages."
}

check_python() {
  "$python" -c '' 2>/dev/null || die "the Python '$python' does not exist, or does not start"
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 15))' ||
    die "$("$python" --version) ($python) cannot take the pinned torch, which needs Python 3.10 to 3.14." \
      "Set PYTHON to one of those, or UNISONO_TORCH_DIR to a LibTorch."
}

# Brings .venv to the state that the Python and the requirements files given ask for.
install_venv() {
  local stamp=.venv/requirements.sha256 version file key wanted=() names=() keys=()
  (($#)) || return 0
  check_python
  version=$("$python" -c 'import sys; print(sys.version.split()[0])')
  if [[ $(.venv/bin/python3 -c 'import pip, sys; print(sys.version.split()[0])' 2>/dev/null) != "$version" ]]; then
    [[ ! -L .venv ]] || die ".venv is a link to $(readlink .venv), which has no Python $version: remove the link," \
      "or set PYTHON to the Python that it was made with"
    run_logged "making .venv with Python $version" "$python" -m venv --clear .venv
  fi
  for file in "$@"; do
    key=$(sha256sum "$file")
    grep -qxF "$key" $stamp 2>/dev/null && continue
    wanted+=(-r "$file")
    names+=("$file")
    keys+=("$key")
  done
  ((${#wanted[@]})) || return 0
  run_logged "installing ${names[*]} into .venv" .venv/bin/python3 -m pip install \
    --disable-pip-version-check --no-input --progress-bar off "${wanted[@]}"
  { grep -vF -f <(printf '%s\n' "${keys[@]##* }") $stamp 2>/dev/null || true
    printf '%s\n' "${keys[@]}"; } >$stamp.new
  mv $stamp.new $stamp
}

main() {
  case ${1:-} in
    "") ;;
    --dev) dev=yes ;;
    --test) tests=yes ;;
    --bench) bench=yes ;;
    --docs) docs=yes ;;
    *) die "unknown option $1; there are --dev, --test, --bench and --docs" ;;
  esac
  mkdir -p build
  exec 9>build/deps.lock
  flock 9
  : >"$log"
  install_packages
  local requirements=()
  if [[ -n ${UNISONO_TORCH_DIR:-} ]]; then
    check_torch_dir
  elif ! python_has_torch; then
    requirements+=(tools/requirements.txt)
  fi
  [[ $tests == no ]] || requirements+=(tools/requirements-test.txt)
  [[ $dev == no ]] || requirements+=(tools/requirements-dev.txt)
  [[ $docs == no ]] || requirements+=(tools/requirements-docs.txt)
  install_venv "${requirements[@]}"
}

main "$@"
