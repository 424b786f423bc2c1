#!/usr/bin/env bash
# Builds Prometheus and promtool into bin/, of the version that hack/tools/prometheus/go.mod pins. The first time takes minutes. The web pages
# are not part of the Go module.
set -euo pipefail
cd "$(dirname "$0")/tools/prometheus"
. ../../env.sh

# The tag leaves out the discovery of services, with the libraries of all clouds. Targets in files are left.
[[ -x ../../../bin/prometheus ]] || echo "building Prometheus for checks and tests (the first time takes 2 to 4 minutes)" >&2
mkdir -p ../../../bin
go build -buildvcs=false -tags remove_all_sd -ldflags "-s -w" -o ../../../bin/ \
  github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool
