#!/usr/bin/env bash
# Reports known vulnerabilities that the code of the root module reaches, with govulncheck of the version that
# hack/tools/govulncheck/go.mod pins. The lab is not shipped and not checked: to analyze all of Kubernetes takes minutes.
# usage: hack/vuln.sh [--if-reachable]
#
# Exit code: 0 no vulnerability is known; 1 the check could not be run; 3 vulnerabilities. With --if-reachable it is 77,
# after a line with the cause, when the vulnerability database does not answer.
#
# VULNDB is the URL of the database, for machines that have a copy (file:///... too).
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

if (($# > 1)) || [[ ${1:---if-reachable} != --if-reachable ]]; then
  echo "hack/vuln.sh: expected --if-reachable or no argument, got '$*'" >&2
  exit 2
fi
VULNDB=${VULNDB:-https://vuln.go.dev}

# Built first: a failed build is no missing database.
mkdir -p bin
go build -C hack/tools/govulncheck -o ../../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck

# A query reads the index of the database and analyzes nothing.
if ! answer=$(timeout 60 bin/govulncheck -db "$VULNDB" -mode=query -json stdlib@v1.0.0 2>&1 >/dev/null); then
  echo "vulnerabilities were not checked: $VULNDB does not answer: ${answer:-no answer within 60 s}" >&2
  [[ ${1:-} == --if-reachable ]] && exit 77
  echo "expected the database at $VULNDB; give this machine access to it, or name a copy with VULNDB=<url>" >&2
  exit 1
fi

bin/govulncheck -db "$VULNDB" ./...
