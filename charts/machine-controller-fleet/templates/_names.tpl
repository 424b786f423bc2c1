{{/* The name of what is in a namespace. It is the fleet's name, too. That of a Service begins with a letter and has no dots. Pods
carry the StatefulSet's name and up to 11 more characters in their label controller-revision-hash, which has at most 63. */}}
{{- define "fleet.name" -}}
{{- $name := .Values.nameOverride | default .Release.Name -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$" $name) -}}
{{- fail (printf "release name: expected at most 52 lower-case letters, digits and dashes that begin with a letter, got %q; it is the name of the fleet, its Service and its pods, unless nameOverride is another one" $name) -}}
{{- end -}}
{{ $name }}
{{- end }}

{{/* The number of replicas in the manifest; empty if an autoscaler owns it. If the manifest of the last release had a number, Helm would
remove it from the StatefulSet, which sets it to 1: then the manifest keeps the number that the StatefulSet has. */}}
{{- define "fleet.replicas" -}}
{{- if or .Values.autoscaling.enabled (kindIs "invalid" .Values.replicas) -}}
{{- $installed := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "fleet.name" .) -}}
{{- if and $installed (ne (dig "metadata" "annotations" "fleet.machine.sapcloud.io/replicas" "" $installed) "external") -}}
{{ $installed.spec.replicas | int64 }}
{{- end -}}
{{- else -}}
{{ .Values.replicas | int64 }}
{{- end -}}
{{- end }}

{{/* The name of what is in no namespace, or in one that is not the release's: unique in the cluster. */}}
{{- define "fleet.clusterName" -}}
machine-controller-fleet:{{ .Release.Namespace }}:{{ .Release.Name }}
{{- end }}

{{/* The same where a name may not have colons. */}}
{{- define "fleet.flowName" -}}
machine-controller-fleet.{{ .Release.Namespace }}.{{ .Release.Name }}
{{- end }}

{{/* Which objects are in one slot. */}}
{{- define "fleet.shardBy" -}}
{{- .Values.shardBy | default (ternary "namespace" "deployment" (or (eq .Values.target.mode "namespace") (ne .Values.namespaceSelector ""))) -}}
{{- end }}

{{/* Fails where values about namespaces and target clusters contradict each other: replicas would not start. */}}
{{- define "fleet.checkTarget" -}}
{{- with .Values.namespaceSelector -}}
{{- if $.Values.namespace -}}
{{- fail (printf "namespaceSelector: expected none with namespace=%s, got %s; remove one of them" $.Values.namespace .) -}}
{{- end -}}
{{- if ne (include "fleet.shardBy" $) "namespace" -}}
{{- fail (printf "shardBy: expected namespace with namespaceSelector, got %s; a namespace is left by one replica" $.Values.shardBy) -}}
{{- end -}}
{{- end -}}
{{- $target := .Values.target -}}
{{- if and $target.kubeconfigSecret.name (ne $target.mode "kubeconfig") -}}
{{- fail (printf "target.kubeconfigSecret.name: expected none with target.mode=%s, got %s; remove one of them" $target.mode $target.kubeconfigSecret.name) -}}
{{- end -}}
{{- if and (eq $target.mode "namespace") (ne (include "fleet.shardBy" .) "namespace") -}}
{{- fail (printf "shardBy: expected namespace with target.mode=namespace, got %s; a target cluster has one owner" .Values.shardBy) -}}
{{- end -}}
{{- end }}

{{/* Whether machines join the cluster of this release; empty if not. Clusters of namespaces get a release, or manifests, without replicas and without
the access to the control cluster. */}}
{{- define "fleet.isTarget" -}}
{{- $elsewhere := and (eq .Values.target.mode "namespace") (or .Values.install.replicas .Values.install.controlAccess) -}}
{{- if and .Values.install.targetAccess (ne .Values.target.mode "none") (not $elsewhere) -}}true{{- end -}}
{{- end }}

{{/* Fails where slots or shardBy differ from the values with which the fleet was installed: replicas would not start. The leader Lease
records them. Where it is in another cluster the flags of the installed StatefulSet are compared. */}}
{{- define "fleet.checkFixed" -}}
{{- $fleet := include "fleet.name" . -}}
{{- $fixed := dict "slots" "slots" "shardBy" "shard-by" -}}
{{- $recorded := dict -}}
{{- $where := "" -}}
{{- if .Values.control.kubeconfigSecret.name -}}
{{- $where = printf "StatefulSet %s/%s" .Release.Namespace $fleet -}}
{{- $installed := lookup "apps/v1" "StatefulSet" .Release.Namespace $fleet -}}
{{- range dig "spec" "template" "spec" "containers" list $installed -}}
{{- range $flag := .args -}}
{{- range $value, $name := $fixed -}}
{{- if hasPrefix (printf "--%s=" $name) $flag }}{{ $_ := set $recorded $value (trimPrefix (printf "--%s=" $name) $flag) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- $where = printf "Lease %s/%s-leader" .Release.Namespace $fleet -}}
{{- $annotations := dig "metadata" "annotations" dict (lookup "coordination.k8s.io/v1" "Lease" .Release.Namespace (printf "%s-leader" $fleet)) -}}
{{- range $value, $name := $fixed -}}
{{- with index $annotations (printf "fleet.machine.sapcloud.io/%s" $name) }}{{ $_ := set $recorded $value . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $value, $old := $recorded -}}
{{- $new := ternary (include "fleet.shardBy" $) (toString $.Values.slots) (eq $value "shardBy") -}}
{{- if ne $old $new -}}
{{- fail (printf "%s: expected %s, with which fleet %s was installed (%s), got %s; set %s=%s, or install another fleet: it cannot be changed, and replicas with another value do not start" $value $old $fleet $where $new $value $old) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Whether Nodes are configured; empty if not. */}}
{{- define "fleet.configuresMachines" -}}
{{- if .Values.machineConfiguration.enabled -}}
{{- if eq .Values.target.mode "none" -}}
{{- fail "machineConfiguration.enabled: expected a target cluster, got target.mode=none; pools are in that cluster" -}}
{{- end -}}
true
{{- end -}}
{{- end }}

{{/* Whether replicas create certificates for themselves; empty if not. */}}
{{- define "fleet.selfSigned" -}}
{{- if and .Values.tls.selfSigned .Values.metrics.authorization (not .Values.tls.secretName) }}true{{ end -}}
{{- end }}

{{/* How the port is served. */}}
{{- define "fleet.scheme" -}}
{{ or .Values.tls.secretName (include "fleet.selfSigned" .) | empty | ternary "http" "https" }}
{{- end }}

{{/* What finds the pods: a StatefulSet's selector cannot be changed. */}}
{{- define "fleet.selector" -}}
app.kubernetes.io/name: machine-controller-fleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of all objects. Helm names another value than commonLabels if the schema refuses one of its keys. */}}
{{- define "fleet.labels" -}}
{{- $reserved := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- range $key, $_ := .Values.commonLabels -}}
{{- if has $key $reserved -}}
{{- fail (printf "commonLabels: expected no label that the chart sets itself (%s), got %s; remove it" (join ", " $reserved) $key) -}}
{{- end -}}
{{- end -}}
{{ include "fleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fleet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "fleet.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "fleet.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository: expected the repository of an image of the fleet, got none; there is no published image, see docs/operations/install.md" $image.repository -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The subjects of a binding that have the access. */}}
{{- define "fleet.subjects" -}}
{{- with .Values.rbac.subjects }}
{{- include "fleet.subjectList" . }}
{{- else }}
- kind: ServiceAccount
  name: {{ include "fleet.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}

{{- define "fleet.subjectList" -}}
{{- range . }}
- kind: {{ .kind }}
  name: {{ .name | quote }}
  {{- if eq .kind "ServiceAccount" }}
  namespace: {{ .namespace }}
  {{- else }}
  apiGroup: rbac.authorization.k8s.io
  {{- end }}
{{- end }}
{{- end }}

{{/* The same, as subjects of a FlowSchema. */}}
{{- define "fleet.flowSubjects" -}}
{{- range .Values.rbac.subjects }}
- kind: {{ .kind }}
  {{ .kind | untitle }}:
    name: {{ .name | quote }}
    {{- with .namespace }}
    namespace: {{ . }}
    {{- end }}
{{- else }}
- kind: ServiceAccount
  serviceAccount:
    name: {{ include "fleet.serviceAccount" . }}
    namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}

{{/* Whether a request is the fleet's, as a CEL expression: to these the admission policies apply. */}}
{{- define "fleet.isRequester" -}}
{{- $any := list }}
{{- range .Values.rbac.subjects }}
{{- if eq .kind "Group" }}
{{- $any = append $any (printf "%s in request.userInfo.?groups.orValue([])" (.name | toJson)) }}
{{- else if eq .kind "User" }}
{{- $any = append $any (printf "request.userInfo.username == %s" (.name | toJson)) }}
{{- else }}
{{- $any = append $any (printf "request.userInfo.username == %s" (printf "system:serviceaccount:%s:%s" .namespace .name | toJson)) }}
{{- end }}
{{- else }}
{{- $any = append $any (printf "request.userInfo.username == %s" (printf "system:serviceaccount:%s:%s" $.Release.Namespace (include "fleet.serviceAccount" $) | toJson)) }}
{{- end }}
{{- join " || " $any }}
{{- end }}

{{/* The binding of an admission policy: everywhere; denials are also in the audit log. */}}
{{- define "fleet.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "fleet.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny, Audit]
{{- end }}

{{/* That an update of a Secret changes our finalizer and nothing else, as a CEL expression. */}}
{{- define "fleet.changesFinalizerOnly" -}}
request.operation == "UPDATE" && object.?data == oldObject.?data && object.?type == oldObject.?type &&
object.?immutable == oldObject.?immutable && object.metadata.?labels == oldObject.metadata.?labels &&
object.metadata.?annotations == oldObject.metadata.?annotations &&
object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences &&
{{ include "fleet.keepsFinalizersBut" "machine.sapcloud.io/machine-controller" }}
{{- end }}

{{/* That an update keeps all finalizers but one, in their order, as a CEL expression. To look each of many up in
the other list would take long. */}}
{{- define "fleet.keepsFinalizersBut" -}}
object.metadata.?finalizers.orValue([]).filter(f, f != "{{ . }}") == oldObject.metadata.?finalizers.orValue([]).filter(f, f != "{{ . }}")
{{- end }}

{{/* The annotations and labels of an object of the four kinds and of its template, as a CEL expression for a list of four maps. */}}
{{- define "fleet.metadataOf" -}}
[{{ . }}.metadata.?annotations.orValue({}), {{ . }}.metadata.?labels.orValue({}),
{{ . }}.?spec.?template.?metadata.?annotations.orValue({}), {{ . }}.?spec.?template.?metadata.?labels.orValue({})]
{{- end }}

{{/* The containers of a list as sidecars of a pod. Kubernetes starts them before the containers, and ends them after these. */}}
{{- define "fleet.sidecars" -}}
{{- with . -}}
initContainers:
{{- range . }}
{{ list (merge (dict "restartPolicy" "Always") .) | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name of the container and the volume of a driver. A provider may have letters that no such name has. */}}
{{- define "fleet.driverName" -}}
driver-{{ .provider | lower | replace "_" "-" | replace "." "-" }}
{{- end }}

{{/* The containers of the drivers, as a list. Each shares a folder with the fleet and with no other driver. An empty
folder is where Kubernetes would put the token of the fleet's ServiceAccount, which no driver needs. */}}
{{- define "fleet.drivers" -}}
{{- range .Values.drivers }}
{{- $name := include "fleet.driverName" . }}
{{- $mounts := list (dict "name" $name "mountPath" "/run/driver") }}
{{- $mounts = append $mounts (dict "name" "no-token" "mountPath" "/var/run/secrets/kubernetes.io/serviceaccount" "readOnly" true) }}
{{- $own := dict "name" $name "args" (prepend (.args | default list) "--socket=/run/driver/driver.sock") }}
{{- $_ := set $own "volumeMounts" (concat $mounts (.volumeMounts | default list)) }}
{{- if not .securityContext }}
{{- $_ := set $own "securityContext" $.Values.containerSecurityContext }}
{{- end }}
{{ list (merge (omit . "provider" "args" "volumeMounts" "metricsPort" "metricsPath") $own) | toYaml }}
{{- end }}
{{- end }}

{{/* 90 % of the memory limit, in bytes, for GOMEMLIMIT: the rest is for stacks and the runtime itself. Empty
without a limit, or with one that is written in another way than as a number with or without a unit. */}}
{{- define "fleet.goMemoryLimit" -}}
{{- $limits := (.Values.resources | default dict).limits | default dict }}
{{- $limit := kindIs "float64" $limits.memory | ternary (printf "%.0f" $limits.memory) ($limits.memory | default "" | toString) }}
{{- $factors := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- if regexMatch "^[0-9]+([.][0-9]+)?([kMGT]|[KMGT]i)?$" $limit }}
{{- $unit := regexFind "[kKMGTi]*$" $limit }}
{{- mulf (regexFind "^[0-9.]+" $limit | float64) (get $factors $unit) 0.9 | floor | int64 }}
{{- end }}
{{- end }}
