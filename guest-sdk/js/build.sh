#!/usr/bin/env bash
# Installs what package-lock.json names, and compiles the SDK into dist/. Does
# nothing where all is up to date.
# usage: guest-sdk/js/build.sh
set -euo pipefail
cd "$(dirname "$0")"

if ! cmp -s package-lock.json node_modules/.installed; then
  # No package needs its installation script.
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  cp package-lock.json node_modules/.installed
fi
if [ ! -e dist/.built ] || [ -n "$(find src package.json tsconfig.json node_modules/.installed ../../wit/v0.1.0 -newer dist/.built -type f -print -quit)" ]; then
  rm -rf dist
  npm run --silent build
  touch dist/.built
fi
