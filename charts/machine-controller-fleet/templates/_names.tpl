{{/* The name of what is in a namespace. It is the fleet's name, too. */}}
{{- define "fleet.name" -}}
{{ .Release.Name }}
{{- end }}

{{/* The name of what is in no namespace, or in one that is not the release's: unique in the cluster. */}}
{{- define "fleet.clusterName" -}}
machine-controller-fleet:{{ .Release.Namespace }}:{{ .Release.Name }}
{{- end }}

{{/* The same where a name may not have colons. */}}
{{- define "fleet.flowName" -}}
machine-controller-fleet.{{ .Release.Namespace }}.{{ .Release.Name }}
{{- end }}

{{/* How the port is served. */}}
{{- define "fleet.scheme" -}}
{{ .Values.tls.secretName | empty | ternary "http" "https" }}
{{- end }}

{{/* What finds the pods: a StatefulSet's selector cannot be changed. */}}
{{- define "fleet.selector" -}}
app.kubernetes.io/name: machine-controller-fleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fleet.labels" -}}
{{ include "fleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
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
