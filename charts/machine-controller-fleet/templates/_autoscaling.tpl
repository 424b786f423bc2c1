{{/* The number of replicas in the StatefulSet. Where an autoscaler owns it, it is the current one, so that an upgrade changes
nothing: a field that is left out after it was there is set to its default, 1. Empty where there is no StatefulSet yet. */}}
{{- define "fleet.replicas" -}}
{{- if .Values.autoscaling.enabled -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace (include "fleet.name" .) -}}
{{ .spec.replicas }}
{{- end -}}
{{- else -}}
{{ .Values.replicas }}
{{- end -}}
{{- end }}

{{/* How many replicas the fleet needs, in PromQL. Slots in no answer, because a scrape failed or a replica has just died, count
as the others do. Where less than half of all slots are in the answers there is no value, and nothing is scaled. */}}
{{- define "fleet.neededReplicas" -}}
{{- $own := printf "namespace=%s,service=%s" (quote .Release.Namespace) (include "fleet.name" . | quote) }}
{{- $of := .Values.autoscaling.prometheus.matchers | default $own -}}
max(sum by (dimension) (mcf_load{ {{- $of -}} })) * {{ .Values.slots }} / (sum(mcf_owned_slots{ {{- $of -}} } unless (mcf_suspended{ {{- $of -}} } == 1)) > {{ divf .Values.slots 2 }})
{{- end }}
