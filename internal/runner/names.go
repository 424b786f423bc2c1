package runner

// Name is the name of a runner: the value of `controller` in metrics, log lines and spans.
type Name = string

// The runners. docs/operations/logs.md has a table of them, built from these comments.
const (
	// MachineDeployment: MachineDeployments, whose MachineSets it creates and scales.
	MachineDeployment Name = "machinedeployment"
	// MachineSet: MachineSets, whose Machines it creates and deletes.
	MachineSet Name = "machineset"
	// Machine: Machines, with their VMs and Nodes.
	Machine Name = "machine"
	// MachineGone: the bootstrap tokens of Machines that do not exist any more.
	MachineGone Name = "machine-gone"
	// MachineClass: the finalizers of MachineClasses.
	MachineClass Name = "machineclass"
	// MachineClassSecret: the finalizers of the Secrets that MachineClasses name.
	MachineClassSecret Name = "machineclass-secret"
	// Node: the finalizers of Nodes whose Machine is gone.
	Node Name = "node"
	// Remediation: the disruptions and circuit breakers of MachineDeployments.
	Remediation Name = "remediation"
	// RemediationOfSets: the disruptions and circuit breakers of MachineSets without a controller.
	RemediationOfSets Name = "remediation-machineset"
	// MachineConfigRender: MachineConfigPools, whose configurations it renders.
	MachineConfigRender Name = "machineconfig-render"
	// MachineConfigTemplate: the templates of MachineConfigs.
	MachineConfigTemplate Name = "machineconfig-template"
	// KubeletConfig: the KubeletConfigs of MachineConfigPools.
	KubeletConfig Name = "machineconfig-kubeletconfig"
	// KubeletConfigStatus: the status of KubeletConfigs.
	KubeletConfigStatus Name = "machineconfig-kubeletconfig-status"
	// MachineConfigUpdate: the Nodes of MachineConfigPools, which it assigns configurations.
	MachineConfigUpdate Name = "machineconfig-update"
	// MachineConfigJoin: MachineConfigPools and the MachineDeployments that they refer to.
	MachineConfigJoin Name = "machineconfig-join"
	// Orphans: the sweep of accounts at clouds for what belongs to no Machine, by the leader.
	Orphans Name = "orphans"
	// Overshoot: the count of Machines against what was ordered, by the leader.
	Overshoot Name = "overshoot"
	// UnmanagedNodes: the search for Nodes without a Machine, by the leader.
	UnmanagedNodes Name = "unmanaged-nodes"
	// SlotLabels: objects without a valid slot label.
	SlotLabels Name = "slot-labels"
	// NamespaceLeases: the Leases of Machine Controller Manager in the namespaces of the fleet.
	NamespaceLeases Name = "namespace-leases"
	// NamespaceSwitches: the status of the pods of the Deployments by which namespaces are switched on
	// and off.
	NamespaceSwitches Name = "namespace-switches"
)
