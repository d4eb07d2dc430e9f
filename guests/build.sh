#!/usr/bin/env bash
# Builds every guest (providers and probes) into target/components/*.wasm, or only the named ones.
# NAME.symbols beside NAME.wasm has the names of its functions.
# usage: guests/build.sh [PACKAGE…]      e.g. guests/build.sh skysail-simcloud
#
# A guest with a go.mod is built by Go, one with a package.json by Node.js, one with a
# pyproject.toml by Python, and the others by cargo (guest-sdk/cargo-wasm.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
target=wasm32-unknown-unknown
out=${CARGO_TARGET_DIR:-target}/components
build=${CARGO_TARGET_DIR:-target}/guests
say() { printf 'guests: %s\n' "$*"; }

shopt -s nullglob
packages=() go_guests=() js_guests=() python_guests=()
if [ $# = 0 ]; then
  for file in guests/*/go.mod; do go_guests+=("$(basename "${file%/*}")"); done
  for file in guests/*/package.json; do js_guests+=("$(basename "${file%/*}")"); done
  for file in guests/*/pyproject.toml; do python_guests+=("$(basename "${file%/*}")"); done
fi
for p in "$@"; do
  name=${p#skysail-}
  if [ -e "guests/$name/go.mod" ]; then go_guests+=("$name")
  elif [ -e "guests/$name/package.json" ]; then js_guests+=("$name")
  elif [ -e "guests/$name/pyproject.toml" ]; then python_guests+=("$name")
  else packages+=("$p"); fi
done
[ $# -gt 0 ] || mapfile -t packages < <(
  for manifest in guests/*/Cargo.toml guests/probes/*/Cargo.toml; do
    # Guests are cdylib packages; the other packages here are tools.
    if grep -q '"cdylib"' "$manifest"; then sed -n 's/^name = "\(skysail-.*\)"/\1/p' "$manifest"; fi
  done)

# One build at a time: two would write the same components.
mkdir -p "$build"
exec {lock}>"$build/.build.lock"
if command -v flock >/dev/null && ! flock -n "$lock"; then
  say "another build is running: waiting for it"
  flock "$lock"
fi

flags=(); for p in "${packages[@]}"; do flags+=(-p "$p"); done

if [ ${#packages[@]} != 0 ]; then CARGO_TARGET_DIR=$build guest-sdk/cargo-wasm.sh build --locked --profile guest "${flags[@]}"; fi

cargo build --locked -q -p skysail-componentize
mkdir -p "$out"
tool=${CARGO_TARGET_DIR:-target}/debug/skysail-componentize
# componentize NAME MODULE
componentize() {
  local name=$1 module=$2
  # Only changed files: a process that watches the directory is not woken without a change.
  if [ ! -e "$out/$name.wasm" ] || [ "$module" -nt "$out/$name.wasm" ] || [ "$tool" -nt "$out/$name.wasm" ]; then
    "$tool" "$module" "$out/$name.wasm"
    local names=; [ ! -e "$out/$name.symbols" ] || names=", $(stat -c %s "$out/$name.symbols") of names in $name.symbols"
    say "$(printf '%-28s %7d bytes' "$name.wasm" "$(stat -c %s "$out/$name.wasm")")$names"
  fi
}
for p in "${packages[@]}"; do componentize "${p#skysail-}" "$build/$target/guest/${p//-/_}.wasm"; done

if [ ${#go_guests[@]} -gt 0 ] && ! command -v go >/dev/null; then
  say "NOT built, because there is no Go: ${go_guests[*]} (install Go 1.21 or newer; '.ci/setup test' does on Debian)"
  [ $# = 0 ] || exit 1
  go_guests=()
fi
for name in "${go_guests[@]}"; do
  module=$(realpath -m "$build/go/$name.wasm")
  # With its names, which go into the sidecar, and without debugging information.
  GOOS=wasip1 GOARCH=wasm go -C "guests/$name" build -trimpath -buildvcs=false -buildmode=c-shared -ldflags=-w -o "$module" .
  componentize "$name" "$module"
done

if [ ${#js_guests[@]} -gt 0 ] && ! { command -v node && command -v npm; } >/dev/null; then
  say "NOT built, because there is no Node.js with npm: ${js_guests[*]} (install Node.js 18 or newer; '.ci/setup test' does on Debian)"
  [ $# = 0 ] || exit 1
  js_guests=()
fi
[ ${#js_guests[@]} = 0 ] || guest-sdk/js/build.sh
for name in "${js_guests[@]}"; do
  component=$build/js/$name.wasm
  mkdir -p "${component%/*}"
  # Each build is another snapshot of the engine, with other bytes: only after a change.
  if [ ! -e "$component" ] || [ -n "$(find "guests/$name" guest-sdk/js/dist wit/v0.1.0 -newer "$component" -type f -print -quit)" ]; then
    node guest-sdk/js/dist/componentize.js "guests/$name/provider.js" "$component" >/dev/null
  fi
  componentize "$name" "$component"
done
if [ ${#python_guests[@]} -gt 0 ] && ! python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  say "NOT built, because there is no Python 3.11 with the module venv: ${python_guests[*]} (install Python 3.11 or newer; '.ci/setup test' does on Debian)"
  [ $# = 0 ] || exit 1
  python_guests=()
fi
[ ${#python_guests[@]} = 0 ] || guest-sdk/python/build.sh
for name in "${python_guests[@]}"; do
  component=$build/python/$name.wasm
  mkdir -p "${component%/*}"
  # Each build is another snapshot of the engine, with other bytes: only after a change.
  if [ ! -e "$component" ] || [ -n "$(find "guests/$name" guest-sdk/python/src guest-sdk/python/build/.built -newer "$component" -type f ! -name '*.pyc' -print -quit)" ]; then
    guest-sdk/python/.venv/bin/skysail-componentize-py "guests/$name/provider.py" "$component" >/dev/null
  fi
  componentize "$name" "$component"
done
say "components are in $out"
