package v1alpha1

// What the fleet notes on objects that it makes, beyond the constants of Machine Controller Manager.
const (
	// AnnotationMachineUID is on bootstrap token Secrets: the UID of the Machine that the token is for.
	AnnotationMachineUID = FleetDomain + "machine-uid"
)
