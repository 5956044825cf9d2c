#!/bin/sh
# Install the Prometheus server that the tests of the dashboard ask, where that starts no service.
#
# With systemd Debian's package starts a server of its own on all interfaces, and that is not for a test to do to
# somebody's machine: there, only CI=true installs it. Always exits 0: the tests say themselves that they cannot run.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

! command -v prometheus >/dev/null || exit 0
install="apt-get install -y --no-install-recommends prometheus"
if command -v apt-get >/dev/null && { [ "${CI:-}" = true ] || [ ! -d /run/systemd/system ]; }; then
    update_lists
    install_as_root "$install"
    ! command -v prometheus >/dev/null || exit 0
fi
say "the tests of the Grafana dashboard need a Prometheus server. Run: $(as_typed "$install")"
