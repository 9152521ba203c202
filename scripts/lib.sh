# Shared by the scripts: where the checkout is, where things that outlive it are kept, how to say
# what is going on. Sourced, never run. Decides nothing about what to build.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Tools built from registries (emulators, proxies) are kept outside the checkout, keyed by version,
# so that `make clean` and a fresh clone do not pay for them twice.
CACHE=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-${HOME:?name a directory in PENSTOCK_CACHE}/.cache}/penstock}
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '[%s] %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
# full_disks: names the places of a build whose disks have less than 100 MB free: not every program says why it failed.
full_disks() {
  local place free_kb
  for place in "$CACHE" "$ROOT" "${TMPDIR:-/tmp}"; do
    free_kb=$(df -k --output=avail "$place" 2>/dev/null | tail -n 1) || continue
    [ "$free_kb" -ge 100000 ] || printf '; the disk of %s has %s MB free' "$place" $((free_kb / 1000))
  done
}
# while_saying TEXT COMMAND...: runs a command; says every ten seconds that it still runs, and that it failed, which not
# every program says.
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
  [ "$status" = 0 ] || say "$text: failed, exit code $status$(full_disks)"
  return "$status"
}
# lock DESCRIPTOR TEXT: waits for a process that has the lock, and says so.
lock() { flock -n "$1" || while_saying "waiting for another process: $2" flock "$1"; }
have() { command -v "$1" >/dev/null 2>&1; }

can_install() { have apt-get && [ "$(id -u)" = 0 ]; }
# install_package NAME: from Debian, as root. One at a time: what runs in the background installs, too.
install_package() {
  can_install || die "install the package $1 and run again"
  say "installing $1"
  {
    flock 7
    [ -n "${APT_IS_UPDATED:-}" ] || { while_saying "lists of packages" apt-get update -qq; export APT_IS_UPDATED=1; }
    DEBIAN_FRONTEND=noninteractive while_saying "package $1" \
      apt-get install -y -qq --no-install-recommends "$1" >/dev/null
  } 7>/tmp/penstock-apt.lock
}

# workspace_version: the version of everything that is released.
workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml"; }

# need_rust: Debian's Rust is older than this workspace's edition, so it is not installed from there.
need_rust() {
  have cargo ||
    die "Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml") or later is missing: install it with rustup and run again"
}

# need_cache: makes the directory of what is kept outside the checkout.
need_cache() {
  mkdir -p "$CACHE" 2>/dev/null && [ -w "$CACHE" ] ||
    die "$CACHE, where builds are kept, cannot be written: give $(id -un) the right to, or name another directory in PENSTOCK_CACHE"
}

# need_python [COMMAND]: with what makes environments, which Debian ships apart.
need_python() {
  local python=${1:-python3}
  need "$python" python3
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or later is needed, and $python is $("$python" --version 2>&1): name another one in PYTHON"
  "$python" -c 'import ensurepip, venv' 2>/dev/null || install_package python3-venv
}

# need COMMAND PACKAGE: installs a Debian package when its command is missing.
need() {
  have "$1" && return 0
  install_package "$2"
  have "$1" || die "the package $2 did not bring $1"
}

# source_date: the seconds that files of a build carry as their time: those of the commit.
source_date() {
  echo "${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || stat -c %Y "$ROOT/Cargo.lock")}"
}

# wheel_tools PYTHON: what packs a wheel and tells its tag, without an environment of its own; prints its directory.
wheel_tools() {
  local requirements=$ROOT/scripts/requirements/wheel.txt tools
  tools=$CACHE/wheel-tools-$(sha256sum "$requirements" | cut -c1-12)
  if [ ! -d "$tools" ]; then
    rm -rf "$tools.part"
    while_saying "packages that make the wheel" "$1" -m pip install -q --target "$tools.part" -r "$requirements" >&2
    mv -T "$tools.part" "$tools"
  fi
  echo "$tools"
}
