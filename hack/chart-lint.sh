#!/usr/bin/env bash
# Lints and renders the chart with every file in its folder ci/ and with the values of docs/drivers/first-node-*.md, validates what is
# rendered against the API of several versions of Kubernetes, compares it with ci/renders/, and checks that the chart rejects invalid
# values. usage: hack/chart-lint.sh [-update]; -update writes ci/renders/.
# The end-to-end tests check whether an API server accepts the rendered objects.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

hack/build-helm.sh
chart=charts/machine-controller-fleet

rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
failed=0

render() { bin/helm template fleet "$chart" --namespace machine-controller-fleet "$@"; }

# Kinds that Kubernetes does not have are skipped.
validate() { # version, files
  go tool -modfile=hack/tools/kubeconform/go.mod kubeconform -strict -kubernetes-version "$1" -skip ServiceMonitor,PrometheusRule,ScaledObject \
    -schema-location 'hack/apischemas/schemas/{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json' "${@:2}"
}

for values in "$chart"/ci/*.yaml; do
  bin/helm lint --strict --quiet -f "$values" "$chart"
  render -f "$values" >"$rendered/$(basename "$values")"
  # The definitions are copies, which hack/render-chart.sh writes.
  expected=$chart/ci/renders/$(basename "$values")
  if [[ ${1:-} == -update ]]; then
    mkdir -p "$chart/ci/renders"
    render -f "$values" --set install.crds=false,machineConfiguration.crds=false >"$expected"
  elif ! render -f "$values" --set install.crds=false,machineConfiguration.crds=false | diff -u "$expected" -; then
    echo "$chart: expected the manifests of $expected with $values, got others; if they are right: hack/chart-lint.sh -update" >&2
    failed=1
  fi
done

# The values in the documentation, in blocks that begin with a line "# values.yaml".
for page in docs/drivers/first-node-*.md; do
  values=$rendered/values-$(basename "$page" .md)
  awk '/^```/ {inside = 0} inside; /^# values.yaml$/ {inside = 1}' "$page" >"$values"
  bin/helm lint --strict --quiet -f "$values" "$chart"
  render -f "$values" >"$values.yaml"
  rm "$values"
done

hack/chart-alerts.sh || failed=1

versions=$(cd hack/apischemas/schemas && printf '%s\n' v* | sed s/^v//)
for version in $versions; do
  if ! validate "$version" "$rendered"; then
    echo "$chart: expected manifests that Kubernetes $version accepts; see above" >&2
    failed=1
  fi
  # A field that does not exist, and a version of the API that was removed.
  for mistake in 's/^  serviceName:/  serviceNames:/' 's#^apiVersion: policy/v1$#apiVersion: policy/v1beta1#'; do
    if sed "$mistake" "$rendered/one-cluster.yaml" | validate "$version" - >/dev/null; then
      echo "hack/chart-lint.sh: expected manifests changed by $mistake to be invalid for Kubernetes $version, but they are valid" >&2
      failed=1
    fi
  done
done

# Each line: a value that must be rejected, and what the error must name.
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
drivers=[{"provider":"a","image":"a","metricsPort":10258}] metricsPort
drivers=[{"provider":"a","image":"a","metricsPort":8081},{"provider":"b","image":"b","metricsPort":8081}] metricsPort
install.crd=true                                     crd
install.crds="yes"                                   /install/crds
replicas=-1                                          /replicas
replicas="3"                                         /replicas
replicas=1.5                                         /replicas
image.repository=""                                  image.repository
image.repository="a@sha256:1"                        /image/repository
image.digest="sha256:1"                              /image/digest
slots=0                                              /slots
slots=4097                                           /slots
shardBy="machine"                                    /shardBy
namespace="One,Two"                                  /namespace
target.kubeconfig="x"                                kubeconfig
target.none=true                                     none
target.mode="all"                                    /target/mode
target={"mode":"namespace","kubeconfigSecret":{"name":"x"}} target.kubeconfigSecret.name: expected none
target={"mode":"control","kubeconfigSecret":{"name":"x"}} target.kubeconfigSecret.name: expected none
namespaceSelector="a=b",namespace="c"                namespaceSelector: expected none
namespaceSelector="a=b",shardBy="deployment"         shardBy: expected namespace
target.mode="namespace",shardBy="deployment"         shardBy: expected namespace
target.mode="none",machineConfiguration.enabled=true machineConfiguration.enabled: expected a target
target.byNamespace.secretName=""                     /target/byNamespace/secretName
target.byNamespace.refusedNetworks=["metadata"]      /target/byNamespace/refusedNetworks/0
target.kubeconfigSecret.key=""                       /target/kubeconfigSecret/key
extraFlags=["v=4"]                                   /extraFlags
extraFlags=["--bootstrap-token-signing"]             bootstrapTokens
extraFlags=["--slots=512"]                           --slots=512
extraFlags=["--slots=8\n"]                           /extraFlags/0
extraFlags=["--config=/a"]                           --config=/a
extraFlags=["--port=80"]                             --port=80
extraFlags=["--namespace=one"]                       --namespace=one
extraFlags=["--tls-cert-file=/a"]                    --tls-cert-file=/a
nameOverride="One"                                   nameOverride
commonLabels={"app.kubernetes.io/name":"x"}          commonLabels: expected no label that the chart sets itself
commonLabels={"team":"a","helm.sh/chart":"x"}        got helm.sh/chart; remove it
drivers=[{"provider":"azure","image":"x","metricsPort":0}] /drivers/0/metricsPort
extraFlags=["--machine-configuration"]               --machine-configuration
machineConfiguration={"enabled":true,"templates":{"a.yaml":""}} a.yaml
machineConfiguration={"enabled":true,"pullSecret":{"name":"a"}} machineConfiguration.pullSecret.namespace
extraVolumes=[{"emptyDir":{}}]                       name
extraVolumes=[{"name":"state","emptyDir":{}}]        /extraVolumes/0
extraVolumeMounts=[{"name":"x","mountPath":"x"}]     /extraVolumeMounts/0/mountPath
sidecars=[{"name":"x"}]                              image
sidecars=[{"name":"machine-controller-fleet","image":"x"}] /sidecars/0/name
sidecars=[{"name":"x","image":"x","restartPolicy":"Never"}] /sidecars/0/restartPolicy
drivers=[{"provider":"azure"}]                       image
drivers=[{"provider":"a/b","image":"x"}]             /drivers/0/provider
drivers=[{"provider":"azure","image":"x","name":"y"}] /drivers/0/name
extraFlags=["--driver-socket=a=/b"]                  --driver-socket
extraObjects={"kind":"ConfigMap"}                    /extraObjects
podSecurityContext=[]                                /podSecurityContext
containerSecurityContext=true                        /containerSecurityContext
serviceMonitor.honorLabels="yes"                     /serviceMonitor/honorLabels
prometheusRule.runbooks="docs"                       /prometheusRule/runbooks
prometheusRule.enabled="yes"                         /prometheusRule/enabled
prometheusRule.rules=[]                              rules
prometheusRule.objectives.join.ratio=1               /prometheusRule/objectives/join/ratio
prometheusRule.objectives.deletion.seconds=700       /prometheusRule/objectives/deletion/seconds
prometheusRule.objectives.ownership.seconds=60       seconds
dashboards.labels.x=1                                /dashboards/labels/x
dashboards.enabled="yes"                             /dashboards/enabled
bootstrapTokens.extraGroups=["system:masters"]       /bootstrapTokens/extraGroups
bootstrapTokens.signing="yes"                        /bootstrapTokens/signing
otel.JAEGER_ENDPOINT="x"                             JAEGER_ENDPOINT
otel.OTEL_TRACES_SAMPLER_ARG=0.1                     OTEL_TRACES_SAMPLER_ARG
port=80                                              /port
tls.certFile="x"                                     certFile
tls.secretName=1                                     /tls/secretName
serviceMonitor.tlsConfig="x"                         /serviceMonitor/tlsConfig
rbac.subjects=[{"kind":"group","name":"x"}]          /rbac/subjects
rbac.subjects=[{"kind":"ServiceAccount","name":"x"}] namespace
admissionPolicies.enabled="yes"                      /admissionPolicies/enabled
admissionPolicies.notes="no"                         /admissionPolicies/notes
admissionPolicies.on=true                            on
rbac.byNamespace.enabled=true                        rbac.byNamespace.enabled: expected target.mode=namespace
rbac.byNamespace.names=["a"]                         rbac.byNamespace.names: expected none
rbac.byNamespace.names=["A"]                         /rbac/byNamespace/names/0
target.mode="namespace",namespace="a",rbac.byNamespace.enabled=true rbac.byNamespace.enabled: expected false
metrics.readers=[{"kind":"ServiceAccount","name":"x"}] namespace
networkPolicy.from="everywhere"                      /networkPolicy/from
networkPolicy.egress=[]                              /networkPolicy/egress
networkPolicy.egress.enabled=true                    /networkPolicy/egress/apiServers
networkPolicy.egress.dns.ports=[]                    /networkPolicy/egress/dns/ports
networkPolicy.egress.apiServers=[{"cidr":"api"}]     /networkPolicy/egress/apiServers/0/cidr
networkPolicy.egress.clouds=[{"port":443}]           cidr
networkPolicy.egress.clouds=[{"cidr":"::/0","port":0}] /networkPolicy/egress/clouds/0/port
networkPolicy.egress.otlp.port=4317                  port
networkPolicy.egress.extra=["x"]                     /networkPolicy/egress/extra
autoscalers.enabled=true                             autoscalers.secretName: expected a Secret
autoscalers={"enabled":true,"secretName":"a","port":10258} autoscalers.port: expected another port
autoscalers.port=0                                   /autoscalers/port
autoscalers.ca="x"                                   ca
resources.limits.memory="lots"                       /resources/limits/memory
resources.limits.memory=-1                           /resources/limits/memory
resources.requests.cpu="1core"                       /resources/requests/cpu
resources.limit.memory="1Gi"                         limit
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

# The same for names of releases. That of a StatefulSet has at most 52 characters, and Helm's own limit is 53.
for name in 1fleet fleet.one "$(printf 'f%.0s' {1..53})"; do
  if said=$(bin/helm template "$name" "$chart" -f "$chart/ci/one-cluster.yaml" 2>&1) || [[ $said != *"release name: expected"* ]]; then
    printf '%s: expected the release name %s to be rejected, got:\n%s\n' "$chart" "$name" "$said" >&2
    failed=1
  fi
done
bin/helm template "$(printf 'f%.0s' {1..52})" "$chart" -f "$chart/ci/one-cluster.yaml" >/dev/null
exit $failed
