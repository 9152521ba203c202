#!/bin/bash
# usage: make-release.sh [STEP...]
# A release of the version that Cargo.toml names, from a clean commit, into build/dist. All steps where none is named:
#   check       the commit, the tag, the change log and the tools, in a second
#   advisories  known faults of crates, from the database that cargo-deny fetches from GitHub; WITHOUT_ADVISORIES=1 goes on
#               without them, and the release notes have to say so
#   test        make test; before the packages, since its wheel is for one DuckDB only
#   build       the binaries, and each package that the Makefile knows: wheel, deb, sdist
#   papers      terms, bill of materials and change log beside the packages
#   checksums   SHA256SUMS of all that lies in build/dist
# `make release STEPS="check papers"` tries single ones. It pushes and tags nothing: what to type next, the end says.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
ALL=(check advisories test build papers checksums)
version=$(workspace_version)
dist=$ROOT/build/dist

check() {
  local changed tagged tool
  changed=$(git status --porcelain) || die "this is no checkout of git: a release is of a commit"
  [ -z "$changed" ] || die "these files are not committed; commit or remove them:"$'\n'"$changed"
  tagged=$(git rev-list -n 1 "v$version" 2>/dev/null || true)
  [ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] ||
    die "v$version is the tag of another commit (${tagged:0:12}): raise the version in Cargo.toml and where test_version.py looks"
  need_python
  python3 scripts/changelog.py check "$version"
  for tool in cargo g++ git make sha256sum; do have "$tool" || die "$tool is missing: a release is built with it"; done
}

advisories() {
  scripts/venv.sh test
  build/venv/bin/cargo-deny --locked check advisories && return 0
  [ -z "${WITHOUT_ADVISORIES:-}" ] ||
    { say "the advisories did not pass or could not be fetched, and WITHOUT_ADVISORIES is set: going on"; return 0; }
  die "a crate has an advisory, or their database could not be fetched (above): mend it, or set WITHOUT_ADVISORIES=1"
}

build() {
  local package
  rm -rf "$dist"
  make build
  for package in wheel deb sdist; do
    if grep -q "^$package:" Makefile; then make "$package"; fi
  done
}

papers() {
  local versions
  mapfile -t versions < <(duckdb_versions)
  mkdir -p "$dist"
  python3 scripts/notices.py "${versions[@]}" >"$dist/LICENSE-THIRD-PARTY.txt"
  # For this program alone: with it in the environment of Cargo, ring and all above it would be built anew.
  SOURCE_DATE_EPOCH=$(source_date) python3 scripts/sbom.py "${versions[@]}" >"$dist/penstock-$version.cdx.json"
  cp LICENSE CHANGELOG.md "$dist/"
}

checksums() {
  [ -n "$(ls -A "$dist" 2>/dev/null)" ] || die "build/dist is empty: run the steps build and papers first"
  local sums
  # First all of them, then the file: it would be found itself.
  sums=$(cd "$dist" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum)
  echo "$sums" >"$dist/SHA256SUMS"
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=("${ALL[@]}")
for step in "${steps[@]}"; do
  [[ " ${ALL[*]} " == *" $step "* ]] || die "there is no step $step; there are: ${ALL[*]}"
done
for step in "${steps[@]}"; do
  say "== release $version: $step"
  # A tool that a step calls may need another directory, or end the script: neither is the next one's business.
  case $step in
  test) make test ;;
  *) "$step" ;;
  esac
done
if [ $# = 0 ]; then
  say "release $version lies in build/dist. Next: git tag -s v$version && git push origin v$version"
fi
