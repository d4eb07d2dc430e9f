#!/usr/bin/env bash
# Installs what requirements.txt names and this package into .venv, and generates the bindings of
# the contract, which the package's own tests and mypy read. Does nothing where all is up to date.
# usage: guest-sdk/python/build.sh
set -euo pipefail
cd "$(dirname "$0")"
contract=../../wit/v0.1.0

if ! cmp -s requirements.txt .venv/.requirements || ! cmp -s pyproject.toml .venv/.pyproject; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check --no-deps -r requirements.txt
  # A link to this folder, without packages that requirements.txt does not pin.
  .venv/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
  cp pyproject.toml .venv/.pyproject
  cp requirements.txt .venv/.requirements
fi
if [ ! -e build/.built ] || [ -n "$(find "$contract" .venv/.requirements -newer build/.built -type f -print -quit)" ]; then
  rm -rf build src/skysail_provider/wit
  cp -r "$contract" src/skysail_provider/wit
  mkdir -p build
  # As it serves a component: `bindings` writes the same classes without the functions.
  .venv/bin/componentize-py -q -d "$contract" -w complete-provider bindings build/bindings
  # The contract's enum Protocol hides the Protocol of `typing`, which no class there uses.
  sed -i '/^from typing import/s/ Protocol,//' build/bindings/wit_world/imports/types.py
  touch build/.built
fi
