#!/usr/bin/env bash
# Makes the command line of the Inspector available to its test: installs the package below node_modules/.cache, once. It is not a
# dependency, because it brings a hundred packages. If that fails, it prints a warning and the test is skipped; with CI=true that is a failure.
set -uo pipefail

cd "$(dirname "$0")/.."
folder=node_modules/.cache/inspector
program=$folder/node_modules/@modelcontextprotocol/inspector/clients/mcpdo/build/mcp-bin.js
[ -e "$program" ] && exit 0

mkdir -p "$folder" && echo '{ "private": true }' >"$folder/package.json"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund @modelcontextprotocol/inspector@2.12.0 >"$folder/install.log" 2>&1
[ -e "$program" ] && exit 0

echo 'The Inspector cannot be installed here. ITS TEST WILL BE SKIPPED.'
[ "${CI:-}" != true ]
