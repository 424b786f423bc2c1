#!/usr/bin/env bash
# Lints and renders the chart with every file in its folder ci/, and checks that it rejects invalid values.
# The end-to-end tests check whether an API server accepts the rendered objects.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/build-helm.sh
chart=charts/machine-controller-fleet

for values in "$chart"/ci/*.yaml; do
  bin/helm lint --strict --quiet -f "$values" "$chart"
  bin/helm template fleet "$chart" --namespace machine-controller-fleet -f "$values" >/dev/null
done

# Each line: a value that must be rejected, and what the error must name.
failed=0
while read -r value named; do
  if said=$(bin/helm template fleet "$chart" -f "$chart/ci/one-cluster.yaml" --set-json "$value" 2>&1); then
    echo "$chart: expected $value to be rejected, but it is accepted" >&2
    failed=1
  elif [[ $said != *"$named"* ]]; then
    printf '%s: expected %s to be rejected with an error that names %s, got:\n%s\n' "$chart" "$value" "$named" "$said" >&2
    failed=1
  fi
done <<'VALUES'
replica=3                                            replica
install.crd=true                                     crd
install.crds="yes"                                   /install/crds
replicas=-1                                          /replicas
replicas="3"                                         /replicas
image.repository=""                                  image.repository
image.repository="a@sha256:1"                        /image/repository
image.digest="sha256:1"                              /image/digest
slots=0                                              /slots
slots=4097                                           /slots
shardBy="machine"                                    /shardBy
namespace="One,Two"                                  /namespace
target.kubeconfig="x"                                kubeconfig
target.kubeconfigSecret.key=""                       /target/kubeconfigSecret/key
extraFlags=["v=4"]                                   /extraFlags
extraFlags=["--bootstrap-token-signing"]              bootstrapTokens
bootstrapTokens.extraGroups=["system:masters"]       /bootstrapTokens/extraGroups
bootstrapTokens.signing="yes"                        /bootstrapTokens/signing
otel.JAEGER_ENDPOINT="x"                             JAEGER_ENDPOINT
otel.OTEL_TRACES_SAMPLER_ARG=0.1                     OTEL_TRACES_SAMPLER_ARG
port=80                                              /port
rbac.subjects=[{"kind":"group","name":"x"}]          /rbac/subjects
rbac.subjects=[{"kind":"ServiceAccount","name":"x"}] namespace
admissionPolicies.enabled="yes"                      /admissionPolicies/enabled
admissionPolicies.notes="no"                         /admissionPolicies/notes
admissionPolicies.on=true                            on
metrics.readers=[{"kind":"ServiceAccount","name":"x"}] namespace
networkPolicy.from="everywhere"                      /networkPolicy/from
networkPolicy.egress=["x"]                           /networkPolicy/egress
terminationGracePeriodSeconds=30                     /terminationGracePeriodSeconds
autoscaling={"enabled":true}                         autoscaling.prometheus.serverAddress
autoscaling={"enabled":true,"maxReplicas":1,"prometheus":{"serverAddress":"http://p"}} autoscaling.maxReplicas
autoscaling={"enabled":true,"prometheus":{"serverAddress":"http://p"},"scaleDown":{"podSeconds":30}} autoscaling.scaleDown.podSeconds
autoscaling={"enabled":true,"prometheus":{"serverAddress":"http://p"},"scaleDown":{"stabilizationSeconds":59}} autoscaling.scaleDown.stabilizationSeconds
autoscaling.externalMetric="A"                       /autoscaling/externalMetric
autoscaling.minReplicas=0                            /autoscaling/minReplicas
autoscaling.prometheus.serverAddress="prometheus"    /autoscaling/prometheus/serverAddress
autoscaling.target=2                                 target
podDisruptionBudget.maxUnavailable=0                 /podDisruptionBudget/maxUnavailable
topologySpreadConstraints=[{"topologyKey":"zone"}]   /topologySpreadConstraints
VALUES
exit $failed
