#!/usr/bin/env bash
# Tests the page of the fleet in a headless Chromium, with generated fleets. It needs node, npm with its registry or cache, and Chromium
# (CHROMIUM, /usr/bin/chromium). usage: hack/page-e2e.sh [everything]; everything tests kubectl mcf and the page on a lab in which everything
# happens at once, and with RECORD=1 writes docs/operations/recording.md and the pictures of the page from it.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

chromium=${CHROMIUM:-/usr/bin/chromium}
[[ -x $chromium ]] || { echo "page-e2e: expected Chromium at $chromium, found none; install Debian's package chromium, or set CHROMIUM" >&2; exit 2; }
command -v npm >/dev/null || { echo "page-e2e: expected npm, found none; install Debian's package npm" >&2; exit 2; }
go build -o bin/page ./e2e/page
export CHROMIUM=$chromium
(cd e2e/page && npm ci --no-audit --no-fund --silent)
if [[ ${1:-} == everything ]]; then
  exec go test -tags e2e -count=1 -timeout 40m -v ./e2e -run '^TestEverythingAtOnce$' ${RECORD:+-record}
fi
cd e2e/page
exec npm test --silent
