#!/usr/bin/env bash
# Builds Jaeger into bin/jaeger, where a lab with tracing expects it. The first time takes minutes. Its web pages are not part
# of the Go module: the collected traces are read through its query API, or with a separate build of the pages.
set -euo pipefail
cd "$(dirname "$0")/tools/jaeger"
. ../../env.sh

# Its version is only part of its answers.
package=github.com/jaegertracing/jaeger
version=$(go list -m -f '{{.Version}}' "$package")
stamp="-s -w -X $package/pkg/version.latestVersion=$version"
[[ -x ../../../bin/jaeger ]] || echo "building Jaeger $version for the lab (the first time takes 1 to 3 minutes)" >&2
go build -buildvcs=false -ldflags "$stamp" -o ../../../bin/jaeger "$package/cmd/all-in-one"
