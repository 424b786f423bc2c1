{{/* Whether replicas get the rights in namespaces one by one; empty if not. */}}
{{- define "fleet.accessByNamespace" -}}
{{- if .Values.rbac.byNamespace.enabled -}}
{{- if .Values.namespace -}}
{{- fail (printf "rbac.byNamespace.enabled: expected false with namespace=%s; the access is to that namespace already" .Values.namespace) -}}
{{- end -}}
{{- if ne .Values.target.mode "namespace" -}}
{{- fail (printf "rbac.byNamespace.enabled: expected target.mode=namespace, got %s; replicas list the Secrets of all namespaces otherwise" .Values.target.mode) -}}
{{- end -}}
true
{{- else if .Values.rbac.byNamespace.names -}}
{{- fail "rbac.byNamespace.names: expected none without rbac.byNamespace.enabled, which is false; set it" -}}
{{- end -}}
{{- end }}

{{/* The rules for what is served. */}}
{{- define "fleet.servedRules" }}
- apiGroups: [machine.sapcloud.io]
  resources: [machinedeployments, machineclasses]
  verbs: [get, list, watch, patch]
- apiGroups: [machine.sapcloud.io]
  resources: [machinesets, machines]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [machine.sapcloud.io]
  resources: [machinedeployments/status, machinesets/status, machines/status]
  verbs: [patch]
# Owner references that block the owner's deletion: required where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [machine.sapcloud.io]
  resources: [machinedeployments/finalizers, machinesets/finalizers]
  verbs: [update]
# The Secrets of MachineClasses: read for credentials and user data, watched by name while machines wait for one, written
# for their finalizer. Listed without their content, to find those with the finalizer that no class names any more.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, update]
# The Leases of Machine Controller Manager, which keep it out of the namespaces that the fleet serves. These rules cannot
# name an object that is being created.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [machine-controller-manager, machine-controller]
  verbs: [get, list, watch, update]
# What was reserved of a namespace's deletion budget.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [machine-controller-fleet-deletions]
  verbs: [get, update]
# Which cluster was the first target of a namespace.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [machine-controller-fleet-target]
  verbs: [get]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- end }}
