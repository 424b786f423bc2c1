#!/usr/bin/env bash
# Tests the page of the fleet in a headless Chromium, with generated fleets. It needs node, npm with its registry or cache, and Chromium
# (CHROMIUM, /usr/bin/chromium). usage: hack/page-e2e.sh [pictures]; pictures writes those of docs/operations/images.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

chromium=${CHROMIUM:-/usr/bin/chromium}
[[ -x $chromium ]] || { echo "page-e2e: expected Chromium at $chromium, found none; install Debian's package chromium, or set CHROMIUM" >&2; exit 2; }
command -v npm >/dev/null || { echo "page-e2e: expected npm, found none; install Debian's package npm" >&2; exit 2; }
go build -o bin/page ./e2e/page
cd e2e/page
npm ci --no-audit --no-fund --silent
export CHROMIUM=$chromium
if [[ ${1:-} == pictures ]]; then
  PICTURES=../../docs/operations/images exec node pictures.js
fi
exec npm test --silent
