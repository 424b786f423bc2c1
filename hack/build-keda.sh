#!/usr/bin/env bash
# Builds KEDA into bin/keda, of the version that hack/tools/keda/go.mod pins: its operator, its metrics adapter, and install.yaml, the
# manifests of its module without its Deployments. The first time takes long: it imports clients of some 60 services.
set -euo pipefail
cd "$(dirname "$0")/tools/keda"
. ../../env.sh

go mod tidy -diff || { echo "hack/tools/keda: run 'go mod tidy' there" >&2; exit 1; }
package=github.com/kedacore/keda/v2
version=$(go list -m -f '{{.Version}}' "$package")
out=../../../bin/keda
mkdir -p "$out"

[[ -x $out/adapter ]] || echo "building KEDA $version for the lab (the first time takes 20 to 60 minutes)" >&2
# disable_grpc_modules: without Envoy's protocol, which a client of Google's storage imports.
go build -buildvcs=false -tags disable_grpc_modules -ldflags "-s -w -X $package/version.Version=$version" \
  -o "$out/" "$package/cmd/operator" "$package/cmd/adapter"

config=$(go list -m -f '{{.Dir}}' "$package")/config
for manifest in "$config"/crd/bases/*.yaml "$config"/general/namespace.yaml "$config"/service_account/service_account.yaml \
  "$config"/rbac/role.yaml "$config"/rbac/role_binding.yaml "$config"/metrics-server/role.yaml "$config"/metrics-server/role_binding.yaml; do
  echo ---
  cat "$manifest"
  echo
done >"$out/install.yaml"
