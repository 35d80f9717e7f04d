#!/bin/bash
# Builds a release and runs the benchmarks on it: bench/run.sh [seconds, default 5] [what bench/run.py takes]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=5
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
scripts/setup build
if [ ! -f build-bench/build.ninja ]; then
  meson setup build-bench --buildtype=debugoptimized -Djemalloc=enabled -Dtests=false -Dbench=true \
    -Dwerror=false >/dev/null
fi
ninja -C build-bench --quiet
echo "build: $(git describe --always --dirty 2>/dev/null || echo unknown), $(gcc --version | head -n 1)"
exec python3 bench/run.py --seconds "$seconds" "$@"
