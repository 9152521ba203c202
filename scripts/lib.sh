# Shared by the scripts: where the checkout is, where things that outlive it are kept, how to say
# what is going on. Sourced, never run. Decides nothing about what to build.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Tools built from registries (emulators, proxies) are kept outside the checkout, keyed by version,
# so that `make clean` and a fresh clone do not pay for them twice.
CACHE=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '[%s] %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
# while_saying TEXT COMMAND...: runs a command; says every ten seconds that it still runs.
while_saying() {
  local text=$1 begin=$SECONDS beat status=0
  shift
  (
    trap 'kill "$!" 2>/dev/null; exit' TERM
    while kill -0 "$$" 2>/dev/null; do
      sleep 10 &
      wait "$!"
      say "$text: $((SECONDS - begin)) s so far"
    done
  ) 9>&- &
  beat=$!
  "$@" || status=$?
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  return "$status"
}
have() { command -v "$1" >/dev/null 2>&1; }

# install_package NAME: from Debian, as root. One at a time: what runs in the background installs, too.
install_package() {
  have apt-get && [ "$(id -u)" = 0 ] || die "install the package $1 and run again"
  say "installing $1"
  {
    flock 7
    [ -n "${APT_IS_UPDATED:-}" ] || { while_saying "lists of packages" apt-get update -qq; export APT_IS_UPDATED=1; }
    DEBIAN_FRONTEND=noninteractive while_saying "package $1" \
      apt-get install -y -qq --no-install-recommends "$1" >/dev/null
  } 7>/tmp/penstock-apt.lock
}

# need_rust: Debian's Rust is older than this workspace's edition, so it is not installed from there.
need_rust() {
  have cargo ||
    die "Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml") or later is missing: install it with rustup and run again"
}

# need COMMAND PACKAGE: installs a Debian package when its command is missing.
need() {
  have "$1" && return 0
  install_package "$2"
  have "$1" || die "the package $2 did not bring $1"
}
