# Sourced by .ci/setup and .ci/with: which Rust, which Go, where built tools lie. It decides and installs nothing.
# shellcheck shell=bash

# The Rust that rust-toolchain.toml pins; a newer one is accepted where rustup cannot give this one.
rust_wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
# What Kubernetes' own modules ask for; an older Go from 1.21 on fetches it as a module by itself.
go_wanted=1.26
# Others' tool for components in registries; it says nothing of the Rust that it needs, and builds with ours.
wkg_wanted=0.16.1
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools

# at_least HAVE WANTED
at_least() { [ -n "$1" ] && printf '%s\n%s\n' "$2" "$1" | sort -V -C; }

# Outside the repository, where rust-toolchain.toml does not speak.
rustc_version() { (cd / && RUSTUP_AUTO_INSTALL=0 "$1" -vV 2>/dev/null || true) | sed -n 's/^release: //p'; }

# Prints rustup, path, debian or nothing.
rust_found() {
  if command -v rustup >/dev/null; then
    # A toolchain that is only named and not there must not be fetched by a question.
    if RUSTUP_AUTO_INSTALL=0 rustup run "$rust_wanted" rustc -V >/dev/null 2>&1; then echo rustup; return; fi
  elif command -v cargo >/dev/null && at_least "$(rustc_version rustc)" "$rust_wanted"; then echo path; return; fi
  if [ -x /usr/bin/cargo ] && at_least "$(rustc_version /usr/bin/rustc)" "$rust_wanted"; then echo debian; fi
}

go_version() { (cd / && GOTOOLCHAIN=local go version 2>/dev/null || true) | sed -n 's/^go version go\([0-9.]*\).*/\1/p'; }
