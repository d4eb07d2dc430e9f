#!/usr/bin/env bash
# Checks the simulation itself: each patch in mutations/ puts one bug into a copy of the tree, and one of the days has to end badly by it.
# usage: tests/simulation/mutate.sh [NAME…]     NAME: a patch without its ending; all of them by default
# SEEDS is how many days each bug has to hide, 500 by default. Some minutes for all of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
seeds=${SEEDS:-500}
target=${CARGO_TARGET_DIR:-$PWD/target}/mutations
tree=$target/tree
mutations=tests/simulation/mutations
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(cd "$mutations" && printf '%s\n' *.patch | sed 's/\.patch$//')

rm -rf "$tree" && mkdir -p "$tree"
# With their times: what did not change is not built again.
git ls-files -z --cached --others --exclude-standard | xargs -0 cp -p --parents -t "$tree"
# But for those that a run before may have left changed.
sed -n 's|^+++ b/||p' "$mutations"/*.patch | sort -u | (cd "$tree" && xargs touch)

# The copy is no repository, though it lies in one.
tree_apply() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$target git apply "$@"); }

# build LOG: whether it builds.
build() {
  CARGO_TARGET_DIR=$target .ci/with cargo build --locked --quiet --release --manifest-path "$tree/Cargo.toml" -p skysail-test-simulation >"$1" 2>&1
}
# Without a bug all days end well: else a day that ends badly shows nothing.
printf '%-40s ' "no bug"
build "$target/none.log" || { echo "does not build: see $target/none.log"; exit 2; }
"$target/release/simulate" --seeds "$seeds" >"$target/none.log" 2>&1 || { echo "ends badly: see $target/none.log"; exit 2; }
echo "$seeds days end well"

survived=()
for name in "${names[@]}"; do
  patch=$PWD/$mutations/$name.patch
  [ -f "$patch" ] || { echo "there is no mutation $name: see $mutations" >&2; exit 2; }
  tree_apply "$patch"
  printf '%-40s ' "$name"
  build "$target/$name.log" || { echo "does not build: see $target/$name.log"; exit 2; }
  status=0
  "$target/release/simulate" --seeds "$seeds" >"$target/$name.log" 2>&1 || status=$?
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
  echo "the simulation is blind to: ${survived[*]}" >&2
  exit 1
fi
