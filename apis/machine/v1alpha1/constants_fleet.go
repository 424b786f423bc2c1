package v1alpha1

// What the fleet notes on objects that it makes, beyond the constants of Machine Controller Manager.
const (
	// AnnotationMachineUID is on bootstrap token Secrets: the UID of the Machine that the token is for.
	AnnotationMachineUID = FleetDomain + "machine-uid"
	// AnnotationCreateSent is on Machines whose VM the cloud was asked for without a clear answer: there may be a VM
	// although no provider ID is known. Its value is "true".
	AnnotationCreateSent = FleetDomain + "create-sent"
)
