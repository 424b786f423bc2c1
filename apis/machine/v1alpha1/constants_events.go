package v1alpha1

// Reasons of Events on MachineSets, beside ReasonFailedCreate and ReasonFailedDelete.
const (
	// EventSuccessfulCreate says that a machine was created.
	EventSuccessfulCreate = "SuccessfulCreate"
	// EventSuccessfulDelete says that a machine was deleted.
	EventSuccessfulDelete = "SuccessfulDelete"
	// EventFrozeMachineSet says that the set may create no machines any more.
	EventFrozeMachineSet = "FrozeMachineSet"
	// EventUnfrozeMachineSet says that the set may create machines again.
	EventUnfrozeMachineSet = "UnfrozeMachineSet"
)

// Reasons of Events on MachineDeployments, beside ReasonMachineSetCreateError.
const (
	// EventScalingMachineSet says that a MachineSet was scaled.
	EventScalingMachineSet = "ScalingMachineSet"
	// EventSelectingAll says that the selector is empty and nothing is done.
	EventSelectingAll = "SelectingAll"
	// EventRollbackRevisionNotFound says that there is no MachineSet of the revision to go back to.
	EventRollbackRevisionNotFound = "DeploymentRollbackRevisionNotFound"
	// EventRollbackTemplateUnchanged says that the revision to go back to is the current one.
	EventRollbackTemplateUnchanged = "DeploymentRollbackTemplateUnchanged"
	// EventRollback says that the deployment was rolled back.
	EventRollback = "DeploymentRollback"
)

// Names under which Events are recorded.
const (
	// EventSourceMachineDeployment records what happens to MachineDeployments.
	EventSourceMachineDeployment = "machinedeployment-controller"
	// EventSourceMachineSet records what happens to MachineSets.
	EventSourceMachineSet = "machineset-controller"
	// EventSourceMachine records what happens to Machines and Nodes.
	EventSourceMachine = "machine-controller"
	// EventSourceSafety records what the safety controller does.
	EventSourceSafety = "machine-controller-manager"
)
