{{/* The groups of a file in rules/, for this release and with its objectives. */}}
{{- define "fleet.rules" -}}
{{- $all := index . 0 -}}
{{- $docs := "https://github.com/machine-controller-fleet/machine-controller-fleet/blob/main/docs" -}}
{{- $rules := $all.Files.Get (printf "rules/%s.yaml" (index . 1)) | splitList "groups:\n" | last -}}
{{- $rules = $rules | replace "namespace=\"machine-controller-fleet\"" (printf "namespace=%q" $all.Release.Namespace) -}}
{{- $rules = $rules | replace "job=\"fleet\"" (printf "job=%q" (include "fleet.name" $all)) | replace $docs $all.Values.prometheusRule.runbooks -}}
{{- range $name, $objective := $all.Values.prometheusRule.objectives -}}
{{- $rules = regexReplaceAll (printf "1 - [0-9.]+\\) # objectives.%s.ratio" $name) $rules (printf "1 - %v)" $objective.ratio) -}}
{{- end -}}
{{- range $name, $step := dict "join" "join" "deletion" "delete" -}}
{{- $seconds := index $all.Values.prometheusRule.objectives $name "seconds" | int -}}
{{- $rules = regexReplaceAll (printf "step=%q,le=~\"[0-9]+" $step) $rules (printf "step=%q,le=~\"%d" $step $seconds) -}}
{{- end -}}
{{- if not $all.Values.serviceMonitor.honorLabels -}}
{{- $rules = $rules | replace "by (job, namespace, name)" "by (job, exported_namespace, name)" | replace "$labels.namespace }}/" "$labels.exported_namespace }}/" -}}
{{- end -}}
{{ $rules | trim }}
{{- end }}

{{/* How an endpoint is read. */}}
{{- define "fleet.scrape" -}}
interval: {{ .Values.serviceMonitor.interval }}
{{- with .Values.serviceMonitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .Values.serviceMonitor.metricRelabelings }}
metricRelabelings:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* A dashboard. Without honorLabels, series about objects have their namespace in the label exported_namespace. */}}
{{- define "fleet.dashboard" -}}
{{- $text := index . 1 -}}
{{- if not (index . 0).Values.serviceMonitor.honorLabels -}}
{{- range $as := list "namespace=\\\"$tenant" "by (namespace, name" "{{namespace}}" "info{job=\\\"$job\\\"}, namespace" -}}
{{- $text = $text | replace $as ($as | replace "namespace" "exported_namespace") -}}
{{- end -}}
{{- end -}}
{{ $text }}
{{- end }}
