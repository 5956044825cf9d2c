#!/bin/sh
# Install the system libraries that the Mooncake wheel loads, where this user may; elsewhere say what to install.
#
# Always exits 0: the tests that need the real store say themselves that they cannot run.
set -eu
cd "$(dirname "$0")/.."

say() { echo "hicache-bench: $*" >&2; }

missing_libraries() {
    .venv/bin/python -c '
from hicache_bench.store.client import mooncake_availability
print(*mooncake_availability().missing_libraries)'
}

missing=$(missing_libraries)
[ -n "$missing" ] || exit 0
say "the Mooncake wheel needs $missing"

if ! command -v apt-get >/dev/null; then
    say "install the packages that hold them (rdma-core, numactl and curl libraries), then run make test again"
    exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    as_root=
fi
[ -z "$as_root" ] || $as_root apt-get update >&2 || say "apt-get update failed; going on with the old lists"

# Debian 13 and Ubuntu 24.04 renamed libcurl4 when they moved to a 64-bit time_t.
curl_package=libcurl4
! apt-cache show libcurl4t64 >/dev/null 2>&1 || curl_package=libcurl4t64
install="apt-get install -y --no-install-recommends"
for library in $missing; do
    case $library in
    libibverbs.so.*) install="$install libibverbs1" ;;
    libnuma.so.*) install="$install libnuma1" ;;
    libcurl.so.*) install="$install $curl_package" ;;
    *) say "no package is known for $library" ;;
    esac
done

if [ -n "$as_root" ]; then
    # shellcheck disable=SC2086 # a command and its arguments
    $as_root DEBIAN_FRONTEND=noninteractive $install >&2 || true
    [ -n "$(missing_libraries)" ] || exit 0
fi
if command -v sudo >/dev/null; then install="sudo $install"; else install="su -c '$install'"; fi
say "the tests of the real store cannot run. Run: $install"
