# Sourced by the scripts that install Debian packages, after `set -eu`.
# shellcheck shell=sh

say() { echo "hicache-bench: $*" >&2; }

# What runs a command as root without asking; empty where nothing does.
if [ "$(id -u)" -eq 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    as_root=
fi

update_lists() {
    [ -z "$as_root" ] || $as_root apt-get update >&2 || say "apt-get update failed; going on with the old lists"
}

# Run the command, given as one word, where this user may; whether it worked is for the caller to see.
install_as_root() {
    # shellcheck disable=SC2086 # a command and its arguments
    [ -z "$as_root" ] || $as_root DEBIAN_FRONTEND=noninteractive $1 >&2 || true
}

# The same command as a person types it.
as_typed() { if command -v sudo >/dev/null; then echo "sudo $1"; else echo "su -c '$1'"; fi; }
