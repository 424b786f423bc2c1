#!/usr/bin/env bash
# Runs every fuzz target of both modules for a while. usage: hack/fuzz.sh <duration of each>
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

fuzztime=${1:-30s}
for module in . e2e/lab; do
  while IFS=: read -r file target; do
    echo "== $target in $module/$(dirname "$file") for $fuzztime"
    (cd "$module" && go test -run='^$' -fuzz="^$target\$" -fuzztime="$fuzztime" "./$(dirname "$file")")
  done < <(cd "$module" && find . -name '*_test.go' -not -path './e2e/lab/*' -print0 |
    xargs -0 grep -o '^func Fuzz[A-Za-z0-9_]*' /dev/null | sed -e 's|^\./||' -e 's|func ||' | sort)
done
