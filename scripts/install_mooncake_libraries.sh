#!/bin/sh
# Install the system libraries that the Mooncake wheel loads, where this user may; elsewhere say what to install.
#
# Always exits 0: the tests that need the real store say themselves that they cannot run.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

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
update_lists

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

install_as_root "$install"
[ -n "$(missing_libraries)" ] || exit 0
say "the tests of the real store cannot run. Run: $(as_typed "$install")"
