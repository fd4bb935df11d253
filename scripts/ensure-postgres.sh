#!/usr/bin/env bash
# Makes PostgreSQL available to the tests: installs Debian's package if it is missing and this user is root.
# If that fails, it prints a warning and the tests are skipped; with CI=true that is a failure.
set -uo pipefail

has_postgres() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null
}

has_postgres && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'PostgreSQL is missing: installing it for the tests'
  export DEBIAN_FRONTEND=noninteractive
  # Keeps the package from starting a server of its own; the tests start theirs.
  mkdir -p /etc/postgresql-common
  [ -e /etc/postgresql-common/createcluster.conf ] ||
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  { apt-get update -q && apt-get install -y -q --no-install-recommends postgresql; } >/tmp/ensure-postgres.log 2>&1 ||
    tail -20 /tmp/ensure-postgres.log
fi

has_postgres && exit 0

cat <<'TEXT'

********************************************************************************
  PostgreSQL is not installed and cannot be installed here.
  THE POSTGRESQL TESTS WILL BE SKIPPED. Install the server (Debian: postgresql)
  to run them.
********************************************************************************

TEXT
[ "${CI:-}" != true ]
