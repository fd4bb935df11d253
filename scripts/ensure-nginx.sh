#!/usr/bin/env bash
# Makes nginx available to the tests of the deploy samples: installs Debian's package if it is missing and this user is root.
# If that fails, it prints a warning and those tests are skipped; with CI=true that is a failure.
set -uo pipefail

has_nginx() {
  PATH="$PATH:/usr/sbin" command -v nginx >/dev/null
}

has_nginx && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'nginx is missing: installing it for the tests'
  export DEBIAN_FRONTEND=noninteractive
  # Keeps the package from starting a server of its own; the tests start theirs.
  [ -e /usr/sbin/policy-rc.d ] || { made=1; printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d; }
  { apt-get update -q && apt-get install -y -q --no-install-recommends nginx; } >/tmp/ensure-nginx.log 2>&1 ||
    tail -20 /tmp/ensure-nginx.log
  [ -z "${made:-}" ] || rm -f /usr/sbin/policy-rc.d
fi

has_nginx && exit 0

cat <<'TEXT'

********************************************************************************
  nginx is not installed and cannot be installed here.
  THE TESTS BEHIND NGINX WILL BE SKIPPED. Install it (Debian: nginx) to run
  them.
********************************************************************************

TEXT
[ "${CI:-}" != true ]
