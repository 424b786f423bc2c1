#!/usr/bin/env bash
# Writes the schemas with which hack/chart-lint.sh validates the chart, of the versions of Kubernetes below. It downloads their
# source, some 20 MB each, from Go's module proxy. Run it after a change of the versions, or of the kinds in hack/apischemas.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

versions=(1.34.4 1.35.4 1.36.3 1.37.2)
schemas=hack/apischemas/schemas

rm -rf "$schemas"
for version in "${versions[@]}"; do
  # Outside of this module, which needs none of these versions.
  source=$(cd / && go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  go run ./hack/apischemas -from "$source" -to "$schemas/v$version"
done
