#!/usr/bin/env bash
# Builds Helm into bin/, of the version that hack/tools/helm/go.mod pins. Without changes this takes a second, the first
# time about a minute.
set -euo pipefail
cd "$(dirname "$0")/tools/helm"
. ../../env.sh

# The linker sets the version of Kubernetes for which Helm renders without a cluster: that of its client.
client=$(go list -m -f '{{.Version}}' k8s.io/client-go)
minor=${client#v0.}
minor=${minor%%.*}
stamp="-s -w -X helm.sh/helm/v3/internal/version.version=$(go list -m -f '{{.Version}}' helm.sh/helm/v3)"
for package in helm.sh/helm/v3/pkg/chartutil helm.sh/helm/v3/pkg/lint/rules; do
  stamp+=" -X $package.k8sVersionMajor=1 -X $package.k8sVersionMinor=$minor"
done
go build -buildvcs=false -ldflags "$stamp" -o ../../../bin/helm helm.sh/helm/v3/cmd/helm
