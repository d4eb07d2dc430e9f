#!/usr/bin/env bash
# Runs cargo for wasm32-unknown-unknown. Two toolchains work, and the script prints which one it
# uses:
#   rustup with the target wasm32-unknown-unknown: used as it is.
#   Debian's rustc-web, cargo-web and rust-web-src: builds the standard library from source.
# usage: cargo-wasm.sh build ARGUMENT…      the arguments of `cargo build`, without --target
set -euo pipefail
target=wasm32-unknown-unknown
say() { printf 'cargo-wasm: %s\n' "$*"; }
[ "${1:-}" = build ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
shift

sysroot=$(rustc --print sysroot)
if [ -d "$sysroot/lib/rustlib/$target/lib" ]; then
  say "toolchain: rustup's $(rustc --version), target $target"
  exec cargo build --target $target "$@"
elif [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
  say "toolchain: Debian's $(/usr/bin/rustc --version), standard library from source (rustup has no $target here)"
  host=$(rustc -vV | sed -n 's/^host: //p')
  # The linker that matches the objects: rustup's own lld, else Debian's newest.
  lld=$(ls "$sysroot/lib/rustlib/$host/bin/rust-lld" 2>/dev/null || ls -v /usr/bin/wasm-ld* /usr/bin/lld* 2>/dev/null | tail -n 1)
  [ -n "$lld" ] || { say "no lld: install Debian's package lld" >&2; exit 1; }
  # The toolchain file is for rustup's cargo; Debian's reads neither it nor rustup's variables.
  exec env -u RUSTUP_TOOLCHAIN RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc \
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="${CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS:-} -Clinker=$lld -Clinker-flavor=wasm-ld" \
    /usr/bin/cargo build -Zbuild-std=std,panic_abort --target $target "$@"
fi
say "no toolchain for $target: run 'rustup target add $target', or install rustc-web, cargo-web, rust-web-src and lld on Debian" >&2
exit 1
