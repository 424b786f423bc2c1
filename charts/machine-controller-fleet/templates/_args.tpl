{{/* The flags that the chart sets, each once, also those that have no value here. extraFlags may have none of them: what the chart renders next to
the flag, such as access, a volume or a probe, would not follow. A file of flags could set them, too. */}}
{{- define "fleet.flags" -}}
{{- $control := .Values.control.kubeconfigSecret.name }}
{{- $target := .Values.target.kubeconfigSecret.name }}
{{- $mode := .Values.target.mode }}
{{- $byNamespace := ternary .Values.target.byNamespace dict (eq $mode "namespace") }}
{{- $configures := include "fleet.configuresMachines" . }}
{{- $sockets := list }}
{{- range .Values.drivers }}
{{- $sockets = append $sockets (printf "%s=/run/drivers/%s/driver.sock" .provider (include "fleet.driverName" .)) }}
{{- end }}
- {name: config, value: }
- {name: replica-name, value: $(POD_NAME)}
- {name: fleet-name, value: {{ include "fleet.name" . | quote }}}
- {name: fleet-namespace, value: $(POD_NAMESPACE)}
- {name: pod-uid, value: $(POD_UID)}
- {name: state-dir, value: /var/lib/fleet}
- {name: slots, value: {{ .Values.slots | quote }}}
- {name: shard-by, value: {{ include "fleet.shardBy" . }}}
- {name: control-kubeconfig, value: {{ if $control }}/etc/fleet/control/kubeconfig{{ else if or $target (ne $mode "kubeconfig") }}inClusterConfig{{ end }}}
- {name: target-kubeconfig, value: {{ if $target }}/etc/fleet/target/kubeconfig{{ end }}}
- {name: target, value: {{ if ne $mode "kubeconfig" }}{{ $mode }}{{ end }}}
- {name: target-secret, value: {{ if and $byNamespace (not $byNamespace.secretSelector) }}{{ $byNamespace.secretName | quote }}{{ end }}}
- {name: target-secret-selector, value: {{ with $byNamespace }}{{ with .secretSelector }}{{ . | quote }}{{ end }}{{ end }}}
- {name: target-token-secret, value: {{ with $byNamespace }}{{ with .tokenSecretName }}{{ . | quote }}{{ end }}{{ end }}}
- {name: target-refused-networks, value: {{ with $byNamespace }}{{ with .refusedNetworks }}{{ join "," . | quote }}{{ end }}{{ end }}}
- {name: namespace, value: {{ with .Values.namespace }}{{ . | quote }}{{ end }}}
- {name: namespace-switch, value: {{ if ne .Values.namespaceSwitch "none" }}{{ .Values.namespaceSwitch }}{{ end }}}
- {name: namespace-selector, value: {{ with .Values.namespaceSelector }}{{ . | quote }}{{ end }}}
- {name: bootstrap-token-auth-extra-groups, value: {{ with .Values.bootstrapTokens.extraGroups }}{{ join "," . | quote }}{{ end }}}
- {name: bootstrap-token-signing, value: {{ if .Values.bootstrapTokens.signing }}"true"{{ end }}}
- {name: deletion-log, value: {{ with .Values.deletionLog }}{{ . | quote }}{{ end }}}
- {name: driver-socket, value: {{ with $sockets }}{{ join "," . | quote }}{{ end }}}
- {name: machine-configuration, value: {{ if $configures }}"true"{{ end }}}
- {name: machine-config-templates, value: {{ if $configures }}/etc/fleet/templates{{ end }}}
- {name: machine-config-extensions, value: {{ if $configures }}{{ with .Values.machineConfiguration.extensions }}{{ join "," . | quote }}{{ end }}{{ end }}}
- {name: drain-several-pod-disruption-budgets, value: {{ if .Values.drain.severalPodDisruptionBudgets }}"true"{{ end }}}
- {name: address, value: {{ if .Values.hostNetwork }}$(POD_IP){{ end }}}
- {name: port, value: {{ .Values.port | quote }}}
- {name: tls-cert-file, value: {{ if .Values.tls.secretName }}/etc/fleet/tls/tls.crt{{ end }}}
- {name: tls-private-key-file, value: {{ if .Values.tls.secretName }}/etc/fleet/tls/tls.key{{ end }}}
- {name: tls-self-signed, value: {{ with include "fleet.selfSigned" . }}{{ . | quote }}{{ end }}}
- {name: metrics-authorization, value: {{ .Values.metrics.authorization | quote }}}
- {name: page, value: {{ if not .Values.page.enabled }}"false"{{ end }}}
- {name: metrics-by-machine, value: {{ join "," .Values.metrics.byMachine | quote }}}
- {name: mcm-workqueue-metrics, value: {{ if not .Values.metrics.mcmWorkqueue }}"false"{{ end }}}
- {name: autoscaler-port, value: {{ if .Values.autoscalers.enabled }}{{ include "fleet.autoscalerPort" . | quote }}{{ end }}}
- {name: autoscaler-address, value: {{ if and .Values.autoscalers.enabled .Values.hostNetwork }}$(POD_IP){{ end }}}
- {name: autoscaler-tls-cert-file, value: {{ if .Values.autoscalers.enabled }}/etc/fleet/autoscalers/tls.crt{{ end }}}
- {name: autoscaler-tls-private-key-file, value: {{ if .Values.autoscalers.enabled }}/etc/fleet/autoscalers/tls.key{{ end }}}
- {name: autoscaler-client-ca-file, value: {{ if .Values.autoscalers.enabled }}/etc/fleet/autoscalers/ca.crt{{ end }}}
- {name: logging-format, value: {{ .Values.logFormat }}}
- {name: v, value: {{ .Values.logLevel | quote }}}
{{- end }}

{{/* The port for cluster-autoscalers. */}}
{{- define "fleet.autoscalerPort" -}}
{{- if not .Values.autoscalers.secretName }}
{{- fail "autoscalers.secretName: expected a Secret with tls.crt, tls.key and ca.crt where autoscalers.enabled is true, got none; create it, and name it" }}
{{- end }}
{{- if eq (int .Values.autoscalers.port) (int .Values.port) }}
{{- fail (printf "autoscalers.port: expected another port than the value port, got %v for both; change one of them" .Values.port) }}
{{- end }}
{{- .Values.autoscalers.port }}
{{- end }}

{{/* The arguments of the fleet's container: flags without a value are left out, an empty one is given. */}}
{{- define "fleet.args" -}}
{{- $own := list -}}
{{- range include "fleet.flags" . | fromYamlArray }}
{{- $own = append $own .name }}
{{- if not (kindIs "invalid" .value) }}
- --{{ .name }}={{ .value }}
{{- end }}
{{- end }}
{{- range .Values.extraFlags }}
{{- $name := regexReplaceAll "(?s)^--([^=]*).*$" . "${1}" }}
{{- if hasPrefix "bootstrap-token-" $name }}
{{- fail (printf "extraFlags: expected the value bootstrapTokens instead of %s; an admission policy limits tokens to it" .) }}
{{- else if has $name $own }}
{{- fail (printf "extraFlags: expected flags that the chart does not set itself, got %s; remove it, and use the chart's value if there is one" .) }}
{{- end }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* The network of the pods. */}}
{{- define "fleet.network" -}}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" .Values.hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
