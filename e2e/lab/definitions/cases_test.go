package definitions_test

import "strings"

// many are 98 values, and with the label and the expression of the selector the most that it may
// have; tooMany are two more.
var (
	many    = `spec: {selector: {matchExpressions: [{key: zone, operator: NotIn, values: [` + strings.Repeat("x, ", 98) + `]}]}}`
	tooMany = `spec: {selector: {matchExpressions: [{key: zone, operator: NotIn, values: [` + strings.Repeat("x, ", 98) +
		`z]}, {key: rack, operator: Exists}]}}`
)

// good has a valid manifest of each kind.
const good = `
MachineDeployment:
  spec:
    replicas: 2
    selector: {matchLabels: {name: pool}}
    strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
    template:
      metadata: {labels: {name: pool, tier: gold}}
      spec: {class: {kind: MachineClass, name: small}}
MachineSet:
  spec:
    replicas: 2
    selector: {matchLabels: {name: pool}}
    template:
      metadata: {labels: {name: pool, tier: gold}}
      spec: {class: {kind: MachineClass, name: small}}
Machine:
  spec: {class: {kind: MachineClass, name: small}}
MachineClass:
  provider: simulated
  providerSpec: {}
  secretRef: {name: small, namespace: default}
  nodeTemplate: {capacity: {cpu: 2, gpu: 0, memory: 4Gi}, instanceType: small, region: north, zone: north-1}
`

// manifest is the valid one of the kind, changed by a merge patch.
type manifest struct {
	kind  string
	patch string
}

// works lists manifests that work with MCM: both its definitions and its controllers accept them.
var works = []manifest{
	{"MachineDeployment", `{}`},
	{"MachineDeployment", `spec: {replicas: null}`},
	{"MachineDeployment", `spec: {strategy: {type: Recreate, rollingUpdate: null}}`},
	{"MachineDeployment", `spec: {strategy: {type: Recreate, rollingUpdate: {maxSurge: left over}}}`},
	{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}}`},
	{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: 250%, maxUnavailable: +5%}}}`},
	{"MachineDeployment", `spec: {strategy: {inPlaceUpdate: {orchestrationType: Sometimes}}}`},
	{
		"MachineDeployment",
		`spec: {strategy: {type: InPlaceUpdate, rollingUpdate: null, inPlaceUpdate: {maxSurge: 0, maxUnavailable: 10%, orchestrationType: Auto}}}`,
	},
	{
		"MachineDeployment",
		`spec: {strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, maxUnavailable: 1, orchestrationType: Manual}}}`,
	},
	{
		"MachineDeployment",
		`spec: {minReadySeconds: -1, revisionHistoryLimit: -1, progressDeadlineSeconds: -1, autoPreserveFailedMachineMax: -1}`,
	},
	{
		"MachineDeployment",
		`spec: {selector: {matchExpressions: [{key: tier, operator: Exists}, {key: other, operator: DoesNotExist}, {key: other, operator: NotIn, values: [a]}, {key: tier, operator: NotIn, values: [silver]}]}}`,
	},
	{
		"MachineDeployment",
		`spec: {template: {metadata: {annotations: {Example.com/A: b c}}, spec: {providerID: "", nodeTemplate: {metadata: {labels: {example.com/a: ""}, annotations: {a: "b c"}}, spec: {taints: [{key: example.com/a, value: "", effect: NoExecute}]}}}}}`,
	},
	{"MachineSet", `spec: {template: {spec: {nodeTemplate: {metadata: {labels: {a b: c d}}, spec: {taints: [{key: a b, effect: Never}]}}}}}`},
	{"Machine", `spec: {nodeTemplate: {metadata: {labels: {a b: c d}}, spec: {taints: [{key: a b, effect: Never}]}}}`},
	{"MachineDeployment", `spec: {paused: true, rollbackTo: {revision: 0}}`},
	{"MachineDeployment", `spec: {selector: {matchLabels: null, matchExpressions: [{key: name, operator: In, values: [pool, puddle]}]}}`},
	{"MachineDeployment", `spec: {selector: {matchLabels: {zone: ""}}, template: {metadata: {labels: {zone: ""}}}}`},
	{
		"MachineDeployment",
		`spec: {template: {metadata: {creationTimestamp: null, annotations: {a: b}, finalizers: [c.d/e], ownerReferences: [], unknown: {f: 1}}}}`,
	},
	{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {metadata: {creationTimestamp: null, labels: {}}, spec: {}}}}}`},
	{
		"MachineDeployment",
		`spec: {template: {spec: {nodeTemplate: {spec: {taints: [{key: a, effect: NoSchedule}]}}, class: {apiGroup: machine.sapcloud.io, kind: Anything}}}}`,
	},
	{
		"MachineDeployment",
		`{metadata: {creationTimestamp: null}, status: {readyReplicas: -1, conditions: [{type: Available, status: Perhaps}]}}`,
	},
	{"MachineDeployment", many},
	{"MachineSet", many},
	{"MachineSet", `{}`},
	{
		"MachineSet",
		`spec: {selector: {matchLabels: {machine-template-hash: "1"}}, template: {metadata: {labels: {machine-template-hash: "1"}}}}`,
	},
	{"MachineSet", `spec: {replicas: 0, machineClass: {}}`},
	{"MachineSet", `spec: {machineClass: {name: only}, selector: {matchLabels: {tier: gold}}}`},
	{"MachineSet", `{spec: {template: {metadata: {creationTimestamp: null}}}, status: {machineSetCondition: []}}`},
	{"Machine", `{}`},
	{"Machine", `{metadata: {name: m, creationTimestamp: null}, status: {}}`},
	{"Machine", `spec: {providerID: "cloud:///zone/vm-1", nodeTemplate: {metadata: {labels: {a: b}}}}`},
	{
		"Machine",
		`spec: {drainTimeout: 2h, healthTimeout: 1h30m, creationTimeout: 20m0s, inPlaceUpdateTimeout: "0", machinePreserveTimeout: -1.5s}`,
	},
	{
		"Machine",
		`spec: {drainTimeout: .5h, healthTimeout: 1.h, creationTimeout: +1h, inPlaceUpdateTimeout: 100µs, machinePreserveTimeout: "-0"}`,
	},
	{"Machine", `spec: {disableHealthTimeout: true, maxEvictRetries: -3, nodeConditions: "KernelDeadlock,,"}`},
	{"Machine", `status: {currentStatus: {phase: Dreaming, lastUpdateTime: null}, lastOperation: {lastUpdateTime: null}}`},
	{"MachineClass", `{}`},
	{"MachineClass", `{nodeTemplate: null, provider: null, secretRef: null}`},
	{
		"MachineClass",
		`{nodeTemplate: {architecture: arm64, virtualCapacity: {example.com/seats: 3}, unknown: [1]}, credentialsSecretRef: {name: a}}`,
	},
	{"MachineClass", `providerSpec: {any: {shape: [1, 2.5, "x", null, {deep: [[true]]}]}, apiVersion: v9, kind: Spec, metadata: 7}`},
}

// worksHere lists manifests that MCM accepts and ignores, and that the fleet gives a meaning.
var worksHere = []manifest{
	{"MachineDeployment", `spec: {strategy: null}`},
	{"MachineDeployment", `spec: {strategy: {type: null, rollingUpdate: null}}`},
	{"MachineDeployment", `spec: {strategy: {type: ""}}`},
	{"MachineDeployment", `spec: {strategy: {type: null, rollingUpdate: {maxUnavailable: null}}}`},
}

// broken lists manifests that cannot work, and the error of each.
var broken = []struct {
	manifest
	want string
}{
	{manifest{"MachineDeployment", `spec: {selector: null}`}, "spec.selector: Required value: must be there"},
	{manifest{"MachineDeployment", `spec: {selector: {matchLabels: null}}`}, "must not be empty: it would select every machine"},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchLabels: {name: null}, matchExpressions: []}}`},
		"must not be empty: it would select every machine",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchLabels: {name: puddle}}}`},
		"spec.selector.matchLabels: Invalid value: is not matching with spec.template.metadata.labels",
	},
	{manifest{"MachineDeployment", `spec: {selector: {matchLabels: {other: x}}}`}, "is not matching with spec.template.metadata.labels"},
	{manifest{"MachineDeployment", `spec: {template: {metadata: null}}`}, "is not matching with spec.template.metadata.labels"},
	{
		manifest{"MachineDeployment", `spec: {template: {metadata: {labels: {replica: 1}}}}`},
		"spec.template.metadata.labels.replica in body must be of type string",
	},
	{manifest{"MachineDeployment", `spec: {template: {spec: {class: null}}}`}, "spec.template.spec.class: Required value"},
	{manifest{"MachineDeployment", `spec: {template: {spec: null}}`}, "spec.template.spec.class: Required value"},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {class: {kind: null}}}}`},
		"spec.template.spec.class.kind: Required value: Kind is required",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {class: {name: ""}}}}`},
		"spec.template.spec.class.name: Required value: Name is required",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {drainTimeout: soon}}}`},
		`spec.template.spec.drainTimeout: Invalid value: "soon": must be a duration such as 20m or 1h30m, and is "soon"`,
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {metadata: {annotations: {a: true}}}}}}`}, "must be of type string",
	},
	{manifest{"MachineDeployment", `spec: {strategy: {type: Rolling}}`}, `spec.strategy.type: Unsupported value: "Rolling"`},
	{
		manifest{"MachineDeployment", `spec: {strategy: {rollingUpdate: null}}`},
		"type RollingUpdate needs rollingUpdate with maxSurge and maxUnavailable",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: null}}}`},
		"type RollingUpdate needs rollingUpdate with maxSurge and maxUnavailable",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: "1"}}}`},
		"must be numbers that are not negative, or percentages",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxUnavailable: -1}}}`},
		"must be numbers that are not negative, or percentages",
	},
	{manifest{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: 1000001}}}`}, "and at most 1000000"},
	{manifest{
		"MachineDeployment",
		`spec: {strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, maxUnavailable: 1000001, orchestrationType: Auto}}}`,
	}, "and at most 1000000"},
	{
		manifest{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: 1.5%}}}`},
		"must be numbers that are not negative, or percentages",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {type: null, rollingUpdate: {maxSurge: some}}}`},
		"must be numbers that are not negative, or percentages",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {type: Recreate, rollingUpdate: {maxSurge: 3000000000}}}`},
		"spec.strategy.rollingUpdate.maxSurge: Invalid value: 3000000000: must be a 32-bit number",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {type: InPlaceUpdate}}`},
		"type InPlaceUpdate needs inPlaceUpdate with maxSurge and maxUnavailable",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, orchestrationType: Auto}}}`},
		"type InPlaceUpdate needs inPlaceUpdate with maxSurge and maxUnavailable",
	},
	{
		manifest{"MachineDeployment", `spec: {strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, maxUnavailable: 1}}}`},
		"orchestrationType must be either Auto or Manual",
	},
	{manifest{
		"MachineDeployment",
		`spec: {strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, maxUnavailable: all, orchestrationType: Auto}}}`,
	}, "must be numbers that are not negative, or percentages"},
	{
		manifest{"MachineDeployment", `spec: {strategy: {type: null, rollingUpdate: null, inPlaceUpdate: {maxSurge: 1}}}`},
		"inPlaceUpdate needs type InPlaceUpdate",
	},
	{manifest{"MachineDeployment", `spec: {replicas: 1000001}`}, "spec.replicas in body should be less than or equal to 1000000"},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {providerID: "cloud:///a/b"}}}`},
		"spec.template.spec.providerID: Forbidden: must not be set",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: name, operator: Inn, values: [pool]}]}}`},
		"operators are In and NotIn with values, Exists and DoesNotExist without",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: name, operator: In}]}}`},
		"operators are In and NotIn with values, Exists and DoesNotExist without",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: name, operator: Exists, values: [pool]}]}}`},
		"operators are In and NotIn with values, Exists and DoesNotExist without",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: name, operator: In, values: [puddle]}]}}`},
		"spec.selector.matchExpressions: Invalid value: is not matching with spec.template.metadata.labels",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: name, operator: NotIn, values: [puddle, pool]}]}}`},
		"spec.selector.matchExpressions: Invalid value: is not matching with spec.template.metadata.labels",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: other, operator: Exists}]}}`},
		"spec.selector.matchExpressions: Invalid value: is not matching with spec.template.metadata.labels",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: name, operator: DoesNotExist}]}}`},
		"spec.selector.matchExpressions: Invalid value: is not matching with spec.template.metadata.labels",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {spec: {taints: [{key: a, effect: NoSchedul}]}}}}}`},
		"spec.template.spec.nodeTemplate.spec.taints: Invalid value: must have keys and values as labels",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {spec: {taints: [{key: a b, effect: NoSchedule}]}}}}}`},
		"spec.template.spec.nodeTemplate.spec.taints: Invalid value: must have keys and values as labels",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {spec: {taints: [{key: a, value: b c, effect: NoSchedule}]}}}}}`},
		"spec.template.spec.nodeTemplate.spec.taints: Invalid value: must have keys and values as labels",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {metadata: {labels: {a b: c}}}}}}`},
		"spec.template.spec.nodeTemplate.metadata.labels: Invalid value: must have keys as labels",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {metadata: {labels: {a: b c}}}}}}`},
		"spec.template.spec.nodeTemplate.metadata.labels.a in body should match",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {spec: {nodeTemplate: {metadata: {annotations: {a b: c}}}}}}`},
		"spec.template.spec.nodeTemplate.metadata.annotations: Invalid value: must have keys as labels",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {metadata: {labels: {a: b c}}}}`}, "spec.template.metadata.labels.a in body should match",
	},
	{
		manifest{"MachineDeployment", `spec: {template: {metadata: {annotations: {a b: c}}}}`},
		"spec.template.metadata.annotations: Invalid value: must have keys as labels",
	},
	{manifest{"MachineSet", `spec: {replicas: 1000001}`}, "spec.replicas in body should be less than or equal to 1000000"},
	{
		manifest{"MachineSet", `spec: {template: {spec: {providerID: "cloud:///a/b"}}}`},
		"spec.template.spec.providerID: Forbidden: must not be set",
	},
	{
		manifest{"MachineSet", `spec: {selector: {matchExpressions: [{key: name, operator: Inn, values: [pool]}]}}`},
		"operators are In and NotIn with values, Exists and DoesNotExist without",
	},
	{
		manifest{"MachineSet", `spec: {selector: {matchExpressions: [{key: name, operator: In, values: [puddle]}]}}`},
		"spec.selector.matchExpressions: Invalid value: is not matching with spec.template.metadata.labels",
	},
	{manifest{"MachineSet", `spec: {selector: null}`}, "spec.selector: Required value: must be there"},
	{manifest{"MachineSet", `spec: {selector: {matchLabels: null}}`}, "must not be empty: it would select every machine"},
	{manifest{"MachineSet", `spec: {template: {metadata: {labels: {name: null}}}}`}, "is not matching with spec.template.metadata.labels"},
	{manifest{"MachineSet", `spec: {template: null}`}, "is not matching with spec.template.metadata.labels"},
	{
		manifest{"MachineSet", `spec: {template: {spec: {class: {kind: ""}}}}`},
		"spec.template.spec.class.kind: Required value: Kind is required",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchLabels: {node: "8"}}, template: {metadata: {labels: {node: "8"}}}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{manifest{
		"MachineDeployment",
		`spec: {selector: {matchLabels: {machine-template-hash: "8"}}, template: {metadata: {labels: {machine-template-hash: "8"}}}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchLabels: {freeze: "8"}}, template: {metadata: {labels: {freeze: "8"}}}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{manifest{
		"MachineDeployment",
		`spec: {selector: {matchLabels: {node.machine.sapcloud.io/update-result: "8"}}, template: {metadata: {labels: {node.machine.sapcloud.io/update-result: "8"}}}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{manifest{
		"MachineDeployment",
		`spec: {selector: {matchLabels: {node.machine.sapcloud.io/scale-up-disabled: "8"}}, template: {metadata: {labels: {node.machine.sapcloud.io/scale-up-disabled: "8"}}}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{manifest{
		"MachineDeployment",
		`spec: {selector: {matchLabels: {fleet.machine.sapcloud.io/slot: "8"}}, template: {metadata: {labels: {fleet.machine.sapcloud.io/slot: "8"}}}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{manifest{
		"MachineDeployment", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: In, values: ["8"]}]}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{manifest{
		"MachineDeployment", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: NotIn, values: ["8"]}]}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: Exists}]}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{
		manifest{"MachineDeployment", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: DoesNotExist}]}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{
		manifest{"MachineSet", `spec: {selector: {matchLabels: {node: "8"}}, template: {metadata: {labels: {node: "8"}}}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{manifest{
		"MachineSet",
		`spec: {selector: {matchLabels: {node.machine.sapcloud.io/update-result: "8"}}, template: {metadata: {labels: {node.machine.sapcloud.io/update-result: "8"}}}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{manifest{
		"MachineSet",
		`spec: {selector: {matchLabels: {fleet.machine.sapcloud.io/slot: "8"}}, template: {metadata: {labels: {fleet.machine.sapcloud.io/slot: "8"}}}}`,
	}, "spec.selector: Forbidden: must not use labels that the controllers write"},
	{
		manifest{"MachineSet", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: In, values: ["8"]}]}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{
		manifest{"MachineSet", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: NotIn, values: ["8"]}]}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{
		manifest{"MachineSet", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: Exists}]}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{
		manifest{"MachineSet", `spec: {selector: {matchExpressions: [{key: fleet.machine.sapcloud.io/slot, operator: DoesNotExist}]}}`},
		"spec.selector: Forbidden: must not use labels that the controllers write",
	},
	{manifest{"MachineDeployment", tooMany}, "must not have more than 100 labels, expressions and values"},
	{manifest{"MachineSet", tooMany}, "must not have more than 100 labels, expressions and values"},
	{manifest{"Machine", `spec: null`}, "spec.class: Required value"},
	{manifest{"Machine", `spec: {class: null}`}, "spec.class: Required value"},
	{manifest{"Machine", `spec: {class: {name: null}}`}, "spec.class.name: Required value: Name is required"},
	{manifest{"Machine", `spec: {healthTimeout: "10"}`}, "must be a duration such as 20m or 1h30m"},
	{manifest{"Machine", `spec: {creationTimeout: 9999999h}`}, "must be a duration such as 20m or 1h30m"},
	{
		manifest{"MachineClass", `nodeTemplate: {capacity: {gpu: null}}`},
		"nodeTemplate.capacity: Invalid value: cpu, gpu and memory are required",
	},
	{manifest{"MachineClass", `nodeTemplate: {region: ""}`}, "nodeTemplate.region in body should be at least 1 chars long"},
}

// brokenForMCM lists manifests that no definitions accept, nor do MCM's.
var brokenForMCM = []manifest{
	{"MachineDeployment", `spec: {replicas: -1}`},
	{"MachineDeployment", `spec: {replicas: 3000000000}`},
	{"MachineDeployment", `spec: {replicas: many}`},
	{"MachineDeployment", `spec: {template: null}`},
	{"MachineSet", `spec: {replicas: -1}`},
	{"MachineClass", `providerSpec: null`},
	{"MachineClass", `providerSpec: [1]`},
	{"MachineClass", `nodeTemplate: {capacity: {memory: lots}}`},
	{"MachineClass", `nodeTemplate: {zone: null}`},
}
