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

{{/* Who has the access, as subjects of a binding. */}}
{{- define "fleet.subjects" -}}
{{- range .Values.rbac.subjects }}
- kind: {{ .kind }}
  name: {{ .name | quote }}
  {{- if eq .kind "ServiceAccount" }}
  namespace: {{ .namespace }}
  {{- else }}
  apiGroup: rbac.authorization.k8s.io
  {{- end }}
{{- else }}
- kind: ServiceAccount
  name: {{ include "fleet.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
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
