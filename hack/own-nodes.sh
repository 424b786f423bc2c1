#!/usr/bin/env bash
# Measures what happens when Nodes die on which the fleet itself runs, and when all of them do: docs/adr/0015-statefulset-or-deployment.md
# has the results. The fleet is a StatefulSet on real kubelets, whose Nodes are machines of the fleet. It takes about 20 minutes, most
# of which are the time-outs of Kubernetes. Before: make build. usage: hack/own-nodes.sh
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
lab=$(mktemp -d /tmp/own-nodes.XXXXXX)
bin/lab up --dir "$lab" --replicas 1 --fleet-flags=--machine-health-timeout=1m >/dev/null
trap 'bin/lab down --dir "$lab" >/dev/null' EXIT
export KUBECONFIG=$lab/admin.kubeconfig
cloud=$(jq -r .cloudsim "$lab/endpoints.json")
k() { bin/kubectl "$@"; }
fleet() { k -n machine-controller-fleet "$@"; }

# await <what> <command>: waits until the command succeeds, and prints the seconds since the last fault.
await() {
  local limit=$((SECONDS + 600))
  until eval "$2" >/dev/null 2>&1; do
    ((SECONDS < limit)) || { echo "not within 600 s: $1" >&2; exit 1; }
    sleep 1
  done
  printf '%5d s  %s\n' $((SECONDS - fault)) "$1"
}

die() { # node
  local id
  id=$(curl -sf "$cloud/v1/instances" | jq -r --arg name "$1" '.. | objects | select(.name? == $name) | .id')
  curl -sf -o /dev/null -X POST "$cloud/admin/v1/instances/$id/actions" -d '{"action": "die"}'
}

running() { [[ $(k get mc -l "name=$1" -o json | jq '[.items[] | select(.status.currentStatus.phase == "Running")] | length') == "$2" ]]; }
unknown() { k get node "$1" -o json | jq -e '.status.conditions[] | select(.type == "Ready" and .status == "Unknown")'; }
node_of() { fleet get pod "$1" -o jsonpath='{.spec.nodeName}'; }
holds() { fleet get leases -o json | jq -e --arg session "$1_" '[.items[] | select(.metadata.name | contains("-slot-")) | .spec.holderIdentity // "" | startswith($session)] | any'; }
ready() { fleet wait --for=condition=Ready --timeout=1s "$@"; }
uids() { fleet get pods -o jsonpath='{.items[*].metadata.uid}'; }
start() { fault=$SECONDS && echo "$1"; }

k apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: Secret
metadata: {name: boot}
stringData: {userData: "name: <<MACHINE_NAME>>\ntoken: <<BOOTSTRAP_TOKEN>>\n"}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: kubelet}
provider: simulated
providerSpec: {zone: sim-1a, boot: kubelet}
secretRef: {name: boot}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: own}
spec:
  replicas: 3
  selector: {matchLabels: {name: own}}
  template: {metadata: {labels: {name: own}}, spec: {class: {kind: MachineClass, name: kubelet}, nodeTemplate: {metadata: {labels: {own: "yes"}}}}}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: other}
spec:
  replicas: 1
  selector: {matchLabels: {name: other}}
  template: {metadata: {labels: {name: other}}, spec: {class: {kind: MachineClass, name: kubelet}}}
YAML
start "A replica outside of the StatefulSet creates the first machines."
await "the machines run" "running own 3 && running other 1"
bin/lab stop fleet-0 --dir "$lab" >/dev/null

fleet create secret generic kubeconfig --from-file="kubeconfig=$KUBECONFIG" >/dev/null
fleet apply -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: fleet}
spec:
  replicas: 3
  serviceName: fleet
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: fleet}}
  template:
    metadata: {labels: {app: fleet}}
    spec:
      automountServiceAccountToken: false
      affinity:
        nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: own, operator: Exists}]}}]}
        podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: fleet}}, topologyKey: kubernetes.io/hostname}]}
      containers:
      - name: fleet
        image: none
        # Pods of the lab share the ports of this machine.
        command: [sh, -c, 'exec $root/bin/machine-controller-fleet --control-kubeconfig=/etc/fleet/kubeconfig --target-kubeconfig=/etc/fleet/kubeconfig --namespace= --address=127.0.0.1
          --port=\$(shuf -i 20000-29999 -n1) --replica-name=\$(POD_NAME) --fleet-name=fleet --fleet-namespace=machine-controller-fleet
          --state-dir=/var/lib/fleet --pod-uid=\$(POD_UID) --driver-socket=simulated=/run/drivers/simulated.sock --machine-health-timeout=1m']
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        volumeMounts: [{name: state, mountPath: /var/lib/fleet}, {name: kubeconfig, mountPath: /etc/fleet}, {name: drivers, mountPath: /run/drivers}]
      - name: driver
        image: none
        command: [$root/bin/simulated-driver, --socket=/run/drivers/simulated.sock, --endpoints=$cloud]
        volumeMounts: [{name: drivers, mountPath: /run/drivers}]
      volumes: [{name: state, emptyDir: {}}, {name: kubeconfig, secret: {secretName: kubeconfig}}, {name: drivers, emptyDir: {}}]
---
# A pod of a Deployment next to the fleet, for comparison.
apiVersion: apps/v1
kind: Deployment
metadata: {name: compared}
spec:
  replicas: 1
  selector: {matchLabels: {app: compared}}
  template:
    metadata: {labels: {app: compared}}
    spec:
      affinity:
        nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: own, operator: Exists}]}}]}
      containers: [{name: compared, image: none, command: [sleep, "100000"]}]
YAML
start "The fleet starts on its own machines."
await "the pods are ready" "ready pod/fleet-0 pod/fleet-1 pod/fleet-2 && fleet rollout status deploy/compared --timeout=1s"
await "each replica holds slots" "holds fleet-0 && holds fleet-1 && holds fleet-2"

node=$(node_of fleet-1) uid=$(fleet get pod fleet-1 -o jsonpath='{.metadata.uid}')
start "The Node of fleet-1 dies: $node."
die "$node"
await "its slots have another holder" "! holds fleet-1"
await "its Node is Unknown" "unknown $node"
await "its machine is being deleted" "[[ -n \$(k get mc $node -o jsonpath='{.metadata.deletionTimestamp}') ]]"
await "another machine runs" "running own 3"
await "the pod fleet-1 is another one, and ready" "[[ \$(fleet get pod fleet-1 -o jsonpath='{.metadata.uid}') != $uid ]] && ready pod/fleet-1"
await "fleet-1 holds slots" "holds fleet-1"

mapfile -t nodes < <(k get nodes -l own -o name | cut -d/ -f2)
uids=$(uids)
start "All Nodes of the fleet die; there is another Node that could run it: ${nodes[*]}."
for node in "${nodes[@]}"; do die "$node"; done
await "they are Unknown" "unknown ${nodes[0]} && unknown ${nodes[1]} && unknown ${nodes[2]}"
await "eight minutes are over" "((SECONDS - fault >= 480))"
[[ $(uids) == "$uids" ]] && echo "         no pod was replaced, neither of the StatefulSet nor of the Deployment"
fleet get pods -o wide

uid=$(fleet get pod fleet-0 -o jsonpath='{.metadata.uid}')
start "The Node of fleet-0 is marked as out of service: $(node_of fleet-0)."
k taint node "$(node_of fleet-0)" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute >/dev/null
await "the pod fleet-0 is another one, and ready" "[[ \$(fleet get pod fleet-0 -o jsonpath='{.metadata.uid}') != $uid ]] && ready pod/fleet-0"
await "fleet-0 holds all slots" "holds fleet-0 && ! holds fleet-1 && ! holds fleet-2"
await "the circuit breaker is open" "k get mcd own -o json | jq -e '.status.conditions[] | select(.type == \"CircuitBreakerOpen\" and .status == \"True\")'"
await "three minutes are over" "((SECONDS - fault >= 180))"
[[ $(k get nodes -l own -o name | cut -d/ -f2 | xargs) == "${nodes[*]}" ]] && echo "         no machine was replaced"
start "The fleet's own MachineDeployment gets no circuit breaker any more."
k annotate mcd own fleet.machine.sapcloud.io/circuit-breaker=percent=100 >/dev/null
await "all machines run" "running own 3 && [[ \$(k get mc -l name=own -o name | wc -l) == 3 ]]"
await "all pods are ready" "ready pod/fleet-0 pod/fleet-1 pod/fleet-2"
await "each replica holds slots" "holds fleet-0 && holds fleet-1 && holds fleet-2"
