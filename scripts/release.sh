#!/bin/bash
# usage: release.sh
# Release builds of the binary, the fakes and the engine's static library, in target/release: by the profile of what a
# gateway executes (crates/cli/rustc-VERSION.profdata; scripts/profile.sh makes it), where there is one for this compiler.
# Always the same packages: Cargo picks the features of shared dependencies for those it builds together, and a profile
# knows functions by names that hang on them.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
need_rust
target=${CARGO_TARGET_DIR:-target}
version=$(rustc --version | cut -d' ' -f2)
profile=crates/cli/rustc-$version.profdata
read -ra flags <<<"${RUSTFLAGS:-}"
# The same bytes wherever the checkout, the crates and the target lie: their places are in messages and in what debuggers
# read, and so in the build's identity. With these flags Cargo also leaves flags, and the profile's place, out of names.
flags+=("--remap-path-prefix=$ROOT=penstock" "--remap-path-prefix=${CARGO_HOME:-${HOME:-}/.cargo}=cargo"
  "--remap-path-prefix=$(realpath -m "$target")=target")
if [ -n "${PROFILE_TO_MAKE:-}" ]; then
  flags+=(-Cprofile-generate)
elif [ -f "$profile" ]; then
  # Cargo does not look into it, so its name says what is in it. Outside of the checkout, since the compiler mixes its place
  # into what it makes, and there only once: each crate is compiled anew when its time changes.
  need_cache
  used=$CACHE/profile-$(sha256sum "$profile" | cut -c1-16).profdata
  [ -f "$used" ] || { cp "$profile" "$used.$$" && mv "$used.$$" "$used"; }
  # It is of an older state of the code: what has changed since is compiled as without, and a warning of each says nothing
  # that test_layout.py does not.
  flags+=("-Cprofile-use=$used" -Cllvm-args=-no-pgo-warn-mismatch)
else
  say "there is no $profile: the gateway takes a fifth more of the processor (scripts/profile.sh makes one)"
fi
# RUSTFLAGS is split at blanks, and a path may have some.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS
while_saying "release build of Rust (six minutes on two cores)" cargo build --release --locked --quiet -p penstock-cli -p penstock-testkit -p penstock-ffi
