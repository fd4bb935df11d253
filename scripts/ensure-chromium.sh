#!/usr/bin/env bash
# Makes chromium available to the tests of the console: installs Debian's package if it is missing and this user is root.
# If that fails, it prints a warning and those tests are skipped; with CI=true that is a failure.
set -uo pipefail

has_chromium() {
  [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || [ -x /usr/bin/chromium-browser ] || [ -x /usr/bin/google-chrome ]
}

has_chromium && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'Chromium is missing: installing it for the tests'
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -y -q --no-install-recommends chromium; } >/tmp/ensure-chromium.log 2>&1 ||
    tail -20 /tmp/ensure-chromium.log
fi

has_chromium && exit 0

cat <<'TEXT'

********************************************************************************
  Chromium is not installed and cannot be installed here.
  THE TESTS OF THE CONSOLE'S PAGE WILL BE SKIPPED. Install it (Debian: chromium)
  to run them.
********************************************************************************

TEXT
[ "${CI:-}" != true ]
