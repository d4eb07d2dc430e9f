# Sourced by .ci/setup and .ci/with: selects Rust, Go and the directory of
# built tools. Installs nothing.
# shellcheck shell=bash

# The Rust that rust-toolchain.toml pins; a newer one is accepted where rustup is not available.
rust_wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
# The version that Kubernetes' modules require; Go 1.21 and newer fetches it as a module.
go_wanted=1.26
# A third-party client of registries. It declares no Rust version and builds with the pinned one.
wkg_wanted=0.16.1
helm_wanted=4.3.1
# Copies artifacts with their signatures from registry to registry.
oras_wanted=1.3.6
# Makes the signatures of a release.
cosign_wanted=3.1.3
# The CustomResourceDefinitions of this version validate the monitors and rules of the chart.
prometheus_operator_wanted=0.85.0
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools

# The version of the workspace: that of the program, the components and the chart.
workspace_version() { sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# at_least HAVE WANTED
at_least() { [ -n "$1" ] && printf '%s\n%s\n' "$2" "$1" | sort -V -C; }

# Runs outside the repository, where rust-toolchain.toml has no effect.
rustc_version() { (cd / && RUSTUP_AUTO_INSTALL=0 "$1" -vV 2>/dev/null || true) | sed -n 's/^release: //p'; }

# Prints the source of Rust: rustup, path or debian; prints nothing without one.
rust_found() {
  if command -v rustup >/dev/null; then
    # The question must not install the toolchain.
    if RUSTUP_AUTO_INSTALL=0 rustup run "$rust_wanted" rustc -V >/dev/null 2>&1; then echo rustup; return; fi
  elif command -v cargo >/dev/null && at_least "$(rustc_version rustc)" "$rust_wanted"; then echo path; return; fi
  if [ -x /usr/bin/cargo ] && at_least "$(rustc_version /usr/bin/rustc)" "$rust_wanted"; then echo debian; fi
}

go_version() { (cd / && GOTOOLCHAIN=local go version 2>/dev/null || true) | sed -n 's/^go version go\([0-9.]*\).*/\1/p'; }

# The architectures for which the manager is built, by the names that Debian and OCI have for them.
architectures=(amd64 arm64)
# machine_of ARCH: the name of the architecture in compilers and in kernels.
machine_of() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; esac; }
own_architecture() { case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac; }
# architecture_of PROGRAM: prints nothing for a file that is no program of these architectures.
architecture_of() { case $(LC_ALL=C readelf -h "$1" 2>/dev/null | sed -n 's/^ *Machine: *//p') in *X86-64) echo amd64 ;; AArch64) echo arm64 ;; esac; }
