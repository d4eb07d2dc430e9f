#!/usr/bin/env bash
# Builds a vendor's Go provider as it is into target/components/vendor-NAME.wasm, by the Makefile
# that `skysail new --go-provider` writes. Needs the program skysail, and Go.
# usage: tests/conformance/providers/vendors/build.sh NAME      (aws)
set -euo pipefail
cd "$(dirname "$0")/../../../.."
name=${1:?the name of a vendor\'s provider, such as aws}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
skysail=$(realpath -m "${SKYSAIL_BIN:-$target/debug/skysail}")
[ -x "$skysail" ] || { printf '%s is missing; run: cargo build -p skysail\n' "$skysail" >&2; exit 1; }
mkdir -p "$target/components"
make -s -C "tests/conformance/providers/vendors/$name/component" \
  SKYSAIL="$skysail" BUILD="$target/guests/vendor-$name" COMPONENT="$target/components/vendor-$name.wasm"
