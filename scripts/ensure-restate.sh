#!/usr/bin/env bash
# Checks that the Restate tests can run: they need its server, and Node 22 for its SDK if this Node is older. Downloads both
# from the npm registry into node_modules/.cache with --download or CI=true, never otherwise: without them the tests are
# skipped, and one line says so. With CI=true that is a failure. The server's own package, not the one whose install script
# reports home; no install script runs.
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

if [ "${1:-}" != --download ] && [ "${CI:-}" != true ]; then
  echo 'The Restate tests are skipped: "scripts/ensure-restate.sh --download" downloads what they need into node_modules/.cache'
  exit 0
fi

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

echo 'Restate, or Node 22 which its SDK needs, cannot be downloaded from the npm registry' >&2
exit 1
