#!/usr/bin/env bash
# Makes Restate available to the tests: downloads its server, and Node 22 for its SDK if this Node is older, from the npm
# registry into node_modules/.cache. The server's own package, not the one whose install script reports home; no install
# script runs. If that fails, it prints a warning and the tests are skipped; with CI=true that is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."

VERSION=1.7.12
SYSTEM="$(node -p 'process.platform + "-" + process.arch')"
CACHE=node_modules/.cache
SERVER="$CACHE/rondo-restate/node_modules/@restatedev/restate-server-$SYSTEM"
NODE="$CACHE/rondo-nodes/22/node_modules/node-$SYSTEM/bin/node"

has_server() { grep -q "\"version\": *\"$VERSION\"" "$SERVER/package.json" 2>/dev/null && [ -x "$SERVER/bin/restate-server" ]; }
has_node() { [ -x "$NODE" ] || [ "$(node -p 'process.versions.node.split(".")[0] >= 22')" = true ]; }

# $1: folder, the others: packages
download() {
  mkdir -p "$1" && npm install --no-save --no-audit --no-fund --ignore-scripts --loglevel=error --prefix "$@"
}

has_server && has_node && exit 0

if ! has_server; then
  echo "Restate is missing: downloading its server for the tests"
  download "$CACHE/rondo-restate" "@restatedev/restate-server-$SYSTEM@$VERSION" >/dev/null
fi
if ! has_node; then
  echo 'Node 22 is missing: downloading it for the tests of Restate'
  # A package of binaries without a script of its own.
  download "$CACHE/rondo-nodes/22" "node-$SYSTEM@22" >/dev/null
fi

has_server && has_node && exit 0

cat <<'TEXT'

********************************************************************************
  Restate, or Node 22 which its SDK needs, cannot be downloaded from the npm
  registry. THE RESTATE TESTS WILL BE SKIPPED.
********************************************************************************

TEXT
[ "${CI:-}" != true ]
