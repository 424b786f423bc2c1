#!/usr/bin/env bash
# Copies the definitions into the chart, writes the values reference in its README.md, and renders from it what the lab applies: its
# replicas run under the access that the chart grants. Running it again changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

hack/build-helm.sh
chart=charts/machine-controller-fleet

mkdir -p "$chart/definitions"
rm -f "$chart"/definitions/*.yaml
cp apis/machine/v1alpha1/crds/*.yaml apis/fleet/v1alpha1/crds/*.yaml "$chart/definitions/"

go tool -modfile=hack/tools/helm-docs/go.mod helm-docs --chart-search-root charts --sort-values-order file --log-level warning
if undocumented=$(grep '|  |$' "$chart/README.md"); then
  printf '%s/values.yaml: expected a comment that begins with "# -- " for each value, got none for\n%s\n' "$chart" "$undocumented" >&2
  exit 1
fi

# In the target cluster of a lab the fleet has no access to the Secrets of MachineClasses, and with one cluster its
# MachineClasses are not in kube-system: the policy there is the one of two clusters.
declare -A set=([control]=install.targetAccess=true,namespaceSwitch=deployment [target]=install.controlAccess=false)
declare -A more=([control]="--show-only templates/aggregated-access.yaml --show-only templates/people-access.yaml --show-only templates/metrics-access.yaml --show-only templates/namespace-switch.yaml" [target]="")
for cluster in control target; do
  # shellcheck disable=SC2086 # a list of words
  rendered=$(bin/helm template fleet "$chart" --namespace machine-controller-fleet -f "$chart/ci/lab.yaml" --set "${set[$cluster]}" \
    --show-only "templates/$cluster-access.yaml" --show-only "templates/$cluster-policies.yaml" ${more[$cluster]})
  printf '# Rendered from the chart by hack/render-chart.sh; change the chart.\n%s\n' "$rendered" >"e2e/lab/manifests/fleet-$cluster.yaml"
done

# Each namespace has its own target cluster: access to its Secrets, and to write there, by namespace.
# shellcheck disable=SC2086 # a list of words
rendered=$(bin/helm template fleet "$chart" --namespace machine-controller-fleet -f "$chart/ci/lab.yaml" \
  --set target.mode=namespace,rbac.byNamespace.enabled=true,namespaceSwitch=deployment,install.targetAccess=false \
  --show-only templates/control-access.yaml --show-only templates/control-policies.yaml ${more[control]})
printf '# Rendered from the chart by hack/render-chart.sh; change the chart.\n%s\n' "$rendered" >e2e/lab/manifests/fleet-landscape.yaml

# Tokens that may do more than in a lab.
mkdir -p e2e/lab/manifests/testdata
rendered=$(bin/helm template fleet "$chart" --namespace machine-controller-fleet -f "$chart/ci/lab.yaml" --set install.controlAccess=false \
  --set-json 'bootstrapTokens={"extraGroups":["system:bootstrappers:a","system:bootstrappers:b"],"signing":true}' --show-only templates/target-policies.yaml)
printf '# Rendered from the chart by hack/render-chart.sh; change the chart.\n%s\n' "$rendered" >e2e/lab/manifests/testdata/tokens.yaml

# One cluster for both: the policies that apply there together, for each set of namespaces that the fleet can serve.
for namespace in "" kube-system tenant; do
  rendered=$(bin/helm template fleet "$chart" --namespace machine-controller-fleet -f "$chart/ci/lab.yaml" --set "namespace=$namespace" \
    --show-only templates/control-policies.yaml --show-only templates/target-policies.yaml)
  printf '# Rendered from the chart by hack/render-chart.sh; change the chart.\n%s\n' "$rendered" >"e2e/lab/manifests/testdata/one-cluster-${namespace:-all}.yaml"
done
