#!/usr/bin/env bash
# Builds the wheel of the Python package against a torch of your choice and runs its tests there,
# PyTorch's own with two processes among them: test_wheel.sh RELEASE [CTEST ARGUMENT...].
#
# All lies in build/torch-RELEASE, up to 7 GB where pip's torch is a CUDA build; remove it at will.
# A second run goes on with what is there.
#
#   PYTHON  the Python for the environment (default: python3)
#   JOBS    how many commands at once
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! ${1:-} =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
  echo "test_wheel: which torch? Give a release, as in: test_wheel.sh 2.14.1" >&2
  exit 2
fi
readonly release=$1
readonly folder=$PWD/build/torch-$release
readonly python=$folder/venv/bin/python3
readonly jobs=${JOBS:-$(nproc)}
shift

[[ -x $python ]] || "${PYTHON:-python3}" -m venv "$folder/venv"
mapfile -t others < <(grep -v -e '^#' -e '^torch==' tools/requirements.txt)
"$python" -m pip install --disable-pip-version-check --no-input --quiet \
  "torch==$release" "${others[@]}" -r tools/requirements-test.txt

# Of the build itself only the wheel's part is built, by the first test.
env -u UNISONO_TORCH_DIR PYTHON="$python" cmake --preset release -B "$folder/build" -DUNISONO_TORCH_DIR= \
  -DUNISONO_BUILD_BENCH=OFF --log-level=WARNING
CMAKE_BUILD_PARALLEL_LEVEL=$jobs ctest --test-dir "$folder/build" --parallel "$jobs" \
  --output-on-failure -L python -LE slow "$@"
echo "test_wheel: passed with torch $release: $(ls "$folder"/build-wheel/dist/*.whl)"
