{{/* How many replicas the fleet needs, in PromQL. There is a value, and the number is changed, only where 90 % to 110 % of the
slots are in the answers. There are fewer where a scrape has failed or a replica has just died, and more where a slot has moved
after the scrape of its former holder and before that of the next. */}}
{{- define "fleet.neededReplicas" -}}
{{- $own := printf "namespace=%s,service=%s" (quote .Release.Namespace) (include "fleet.name" . | quote) }}
{{- $of := .Values.autoscaling.prometheus.matchers | default $own -}}
max(sum by (dimension) (mcf_load{ {{- $of -}} })) and (sum(mcf_load_slots{ {{- $of -}} }) >= {{ mulf .Values.slots 0.9 }} <= {{ mulf .Values.slots 1.1 }})
{{- end }}

{{- define "fleet.scaleTarget" -}}
apiVersion: apps/v1
kind: StatefulSet
name: {{ include "fleet.name" . }}
{{- end }}

{{/* How fast the number changes. A new replica gets its share within a minute; until then more of them would not help. Each
replica that leaves hands its slots over: one leaves at a time, and the next one after the others have settled. */}}
{{- define "fleet.scaleBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleUp.stabilizationSeconds }}
  policies:
  - {type: Percent, value: 100, periodSeconds: 60}
  - {type: Pods, value: 2, periodSeconds: 60}
  selectPolicy: Max
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDown.stabilizationSeconds }}
  policies:
  - {type: Pods, value: 1, periodSeconds: {{ .Values.autoscaling.scaleDown.podSeconds }}}
{{- end }}
