#!/bin/bash
# Runs the benchmarks on a release build: bench/run.sh [seconds for each, default 5]
#
# Prints the machine first: figures of different machines do not compare. The data goes where TMPDIR says; it
# should be a disk, not a tmpfs.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
scripts/setup build
if [ ! -f build-bench/build.ninja ]; then
  meson setup build-bench --buildtype=debugoptimized -Djemalloc=enabled -Dtests=false -Dbench=true \
    -Dwerror=false >/dev/null
fi
ninja -C build-bench --quiet

echo "machine: $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r)"
echo "build:   $(git describe --always --dirty 2>/dev/null || echo unknown), $(gcc --version | head -n 1)"
dir=$(mktemp -d "${TMPDIR:-/tmp}/queen-bench.XXXXXX")
echo "disk:    $(df --output=source,fstype,avail -h "$dir" | tail -n 1)"
broker=
trap '[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null; rm -rf "$dir"' EXIT

# connections, records a request, bytes a record
for load in "1 1 200" "16 1 200" "16 10 1024" "64 100 1024"; do
  rm -rf "$dir/data" "$dir/log"
  env PORT=0 QUEEN_BIND_ADDR=127.0.0.1 QUEEN_RAFT_DIR="$dir/data" build-bench/queen >"$dir/log" &
  broker=$!
  until grep -qs " boot: listening " "$dir/log"; do
    kill -0 "$broker" 2>/dev/null || { tail "$dir/log" >&2 && exit 1; }
    sleep 0.05
  done
  port=$(sed -n 's/.* boot: listening .* port=\([0-9]*\).*/\1/p' "$dir/log")
  # shellcheck disable=SC2086
  (cd "$dir" && "$OLDPWD/build-bench/bench/push_bench" "$port" $load "$seconds")
  sed -n 's/^Vm\(HWM\|RSS\):[[:space:]]*/memory: \1 /p' "/proc/$broker/status"
  echo "cpu:    $(awk -v hz="$(getconf CLK_TCK)" '{printf "%.2f s", ($14 + $15) / hz}' "/proc/$broker/stat")"
  kill -TERM "$broker"
  wait "$broker"
  broker=
done
