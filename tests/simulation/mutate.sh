#!/usr/bin/env bash
# Tests the simulation: each patch in mutations/ adds one bug to a copy of the tree, and at least
# one of the days has to fail because of it.
# usage: tests/simulation/mutate.sh [NAME…]
#   NAME: a patch without its extension; all of them by default
# SEEDS is the number of days for each bug, 500 by default. All patches take some minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
seeds=${SEEDS:-500}
target=${CARGO_TARGET_DIR:-$PWD/target}/mutations
tree=$target/tree
mutations=tests/simulation/mutations
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(cd "$mutations" && printf '%s\n' *.patch | sed 's/\.patch$//')

rm -rf "$tree" && mkdir -p "$tree"
# The copy keeps the modification times, so that unchanged files are not built again.
git ls-files -z --cached --others --exclude-standard | xargs -0 cp -p --parents -t "$tree"
# Files of patches are built again, because an earlier run may have left them patched.
sed -n 's|^+++ b/||p' "$mutations"/*.patch | sort -u | (cd "$tree" && xargs touch)

# The copy is not a repository, but lies inside one.
tree_apply() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$target git apply "$@"); }

# build LOG: builds the simulation in the copy. A patch changes a few functions.
build() {
  CARGO_PROFILE_SIMULATION_INCREMENTAL=true CARGO_TARGET_DIR=$target .ci/with cargo build --locked --quiet --profile simulation --manifest-path "$tree/Cargo.toml" -p skysail-test-simulation >"$1" 2>&1
}
# Without a bug all days have to end well; otherwise a failed day proves nothing.
printf '%-40s ' "no bug"
build "$target/none.log" || { echo "does not build: see $target/none.log"; exit 2; }
"$target/simulation/simulate" --seeds "$seeds" >"$target/none.log" 2>&1 || { echo "ends badly: see $target/none.log"; exit 2; }
echo "$seeds days end well"

survived=()
for name in "${names[@]}"; do
  patch=$PWD/$mutations/$name.patch
  [ -f "$patch" ] || { echo "no mutation is called $name: see $mutations" >&2; exit 2; }
  tree_apply "$patch"
  printf '%-40s ' "$name"
  build "$target/$name.log" || { echo "does not build: see $target/$name.log"; exit 2; }
  status=0
  "$target/simulation/simulate" --seeds "$seeds" >"$target/$name.log" 2>&1 || status=$?
  if [ $status = 0 ]; then
    echo "SURVIVED $seeds days"
    survived+=("$name")
  elif [ $status != 1 ] || ! grep -q '^seed [0-9]* ended badly' "$target/$name.log"; then
    echo "cannot be tried: see $target/$name.log"; exit 2
  else
    awk '/(^| )(VIOLATION|WRONG) / && !what { what = substr($0, index($0, $3), 120) }
      /^seed [0-9]+ ended badly/ { print "found by seed " $2 ": " what; exit }' "$target/$name.log"
  fi
  tree_apply -R "$patch"
done
if [ ${#survived[@]} -gt 0 ]; then
  echo "the simulation does not find these bugs: ${survived[*]}" >&2
  exit 1
fi
