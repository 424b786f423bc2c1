{{/* How many replicas the fleet needs, in PromQL. Slots in no answer, because a scrape failed or a replica has just died, count
as the others do. Where less than half of all slots are in the answers there is no value, and nothing is scaled. */}}
{{- define "fleet.neededReplicas" -}}
{{- $own := printf "namespace=%s,service=%s" (quote .Release.Namespace) (include "fleet.name" . | quote) }}
{{- $of := .Values.autoscaling.prometheus.matchers | default $own -}}
max(sum by (dimension) (mcf_load{ {{- $of -}} })) * {{ .Values.slots }} / (sum(mcf_owned_slots{ {{- $of -}} } unless (mcf_suspended{ {{- $of -}} } == 1)) > {{ divf .Values.slots 2 }})
{{- end }}
