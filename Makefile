# `make help` lists the targets. CI runs `make test` and `make test-openstack` (.ci/run); no step
# exists only in CI.
# Every target installs what it needs and says so first (.ci/setup); CARGO_TARGET_DIR is respected.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo picture test test-openstack test-kubernetes check simulate guests image release release-commit manifests bench bench-providers fmt
MAKEFLAGS += --no-print-directory

# Runs a command with the tools that .ci/setup found or built.
with := .ci/with
cargo := $(with) cargo

help: ## this list
	@echo 'Skysail: a Kubernetes cloud-controller-manager whose providers are WebAssembly components.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24
	@echo
	@echo 'On a bare Debian 12, or with rustup, no manual installation is needed. Start with: make demo'

setup: ## install what the other targets need (each target also does this itself)
	@.ci/setup check
	@.ci/setup guests
	@.ci/setup test

demo: ## the demonstration: a cluster, a cloud and a sandboxed provider in one process, each step checked
	@.ci/setup guests
	@$(with) guests/build.sh
	@$(cargo) run --locked -p skysail -- dev --demo

picture: ## draw the pictures of the README and of deploy/docs: the output of the demonstration, a trace, a rollout
	@.ci/setup test
	@$(with) guests/build.sh
	@$(cargo) build --locked -p skysail
	@$(with) "$${CARGO_TARGET_DIR:-target}/debug/skysail" dev --demo | sed -u "/^Results/,\$\$d" | .ci/terminal-svg 'make demo' >deploy/docs/demo.svg.new
	@mv deploy/docs/demo.svg.new deploy/docs/demo.svg
	@SKYSAIL_PICTURES="$$PWD/deploy/docs" $(cargo) test --locked -q -p skysail-test-e2e --test e2e -- traces:: a_bad_release_is_rolled_back

test: ## all tests but those of the next two, also against a real API server and a real Incus (root or sudo; about an hour from nothing)
	@.ci/test

test-openstack: ## the suite of every provider against the real services of OpenStack, and packets through its load balancers (root or sudo)
	@.ci/test openstack

test-kubernetes: ## the end-to-end tests on the API server of another minor version of Kubernetes: KUBERNETES=1.34 (root or sudo)
	@.ci/test kubernetes "$(KUBERNETES)"

check: ## the quick loop: format, clippy, tidy, unit tests; no environment, no root
	@.ci/setup check
	@$(cargo) fmt --all --check
	@$(cargo) clippy --locked --workspace --all-targets -- -D warnings
	@$(cargo) clippy --locked -p skysail --no-default-features -- -D warnings
	@$(cargo) test --locked -q -p skysail-test-tidy
	@$(cargo) test --locked -q $(foreach crate,$(notdir $(patsubst %/Cargo.toml,%,$(wildcard runtime/*/Cargo.toml))),-p $(patsubst skysail-skysail,skysail,skysail-$(crate))) -p skysail-guest-sdk --lib --bins
	@$(cargo) test --locked -q -p skysail-test-api embedded -- --skip kubectl

simulate: ## run SEEDS simulated days from SEED_FROM (500 from 0), or print one day line by line: SEED=n
	@.ci/setup build
	@$(cargo) build --locked -q --profile simulation -p skysail-test-simulation
	@$(with) "$${CARGO_TARGET_DIR:-target}/simulation/simulate" $(if $(SEED),--one $(SEED) --story,--seeds $(or $(SEEDS),500) --seed-from $(or $(SEED_FROM),0))

guests: ## build every component (providers and probes) into target/components
	@.ci/setup guests
	@$(with) guests/build.sh

bench: ## the optimised benchmarks: results in target/criterion; swaps and the comparison with Go in target/bench (hours; SWAPS and SIDE_BY_SIDE are arguments of the two programs)
	@.ci/setup bench
	@$(with) guests/build.sh
	@$(cargo) build --locked --profile dist --no-default-features -p skysail
	@$(cargo) bench --locked -p skysail-test-bench --benches
	@$(cargo) run --locked --release -p skysail-test-bench --bin swaps -- $(SWAPS)
	@$(cargo) run --locked --release -p skysail-test-bench --bin side-by-side -- $(SIDE_BY_SIDE)

bench-providers: ## requests, fuel and time of each provider in front of its cloud, beside the requests of the vendor's provider
	@.ci/setup bench-providers
	@$(with) guests/build.sh
	@$(cargo) build --locked -q -p skysail
	@$(with) tests/conformance/providers/vendors/build.sh aws
	@$(cargo) run --locked --release -p skysail-test-providers --bin provider-figures

image: ## an OCI image of the manager in target/image, without a shell, for a user without rights; the same bytes each time (ARCH=arm64: for another architecture, in target/image-arm64)
	@.ci/setup image $(ARCH)
	@program=$$(.ci/program $(ARCH)) && .ci/image "$$program" "$${CARGO_TARGET_DIR:-target}/image$(addprefix -,$(ARCH))"

release: ## from the tag of the checkout: program, image, chart, components, SBOMs, provenance, checksums, signatures in target/release-vX.Y.Z
	@.ci/release/make

release-commit: ## commit the version VERSION=X.Y.Z and its section of CHANGELOG.md, which make release reads from a tag
	@.ci/release/cut "$(VERSION)"

manifests: ## write deploy/manifests from the program and the chart of deploy/chart
	@.ci/setup manifests
	@$(cargo) run --locked -q -p skysail -- crd >deploy/manifests/crd.yaml.new && mv deploy/manifests/crd.yaml.new deploy/manifests/crd.yaml
	@to=$$(mktemp -d); trap 'rm -rf "$$to"' EXIT; \
	  $(with) helm template skysail deploy/chart --namespace skysail-system --no-hooks --output-dir "$$to" >/dev/null; \
	  for f in "$$to"/skysail/templates/*.yaml; do sed -e 1d -e '/^# Source: /d' -e '/^$$/d' "$$f" >"deploy/manifests/$${f##*/}"; done

fmt: ## format everything
	@.ci/setup check
	@$(cargo) fmt --all
