package v1alpha1

// AnnotationUnknownFields lists the fields of the provider spec that the driver ignores, or is
// UnknownFieldsUnreported. It is written before the first VM is created from the class as it is. A
// MachineClass has no status.
//
// On: MachineClasses. By: fleet. Value: names, separated by commas. See:
// operations/configure.md#fields-that-a-driver-ignores.
const AnnotationUnknownFields = FleetDomain + "unknown-fields"

// UnknownFieldsUnreported is the value of AnnotationUnknownFields for a driver that does not report
// which fields it ignores.
const UnknownFieldsUnreported = "not reported by the driver"

// AnnotationAllowUnknownFields lists the fields of the provider spec without which VMs may be
// created although they can concern security or price, as AnnotationUnknownFields names them. There
// is no wildcard.
//
// On: MachineClasses. By: user. Value: names, separated by commas. See:
// operations/configure.md#fields-that-a-driver-ignores.
const AnnotationAllowUnknownFields = FleetDomain + "allow-unknown-fields"

// EventUnknownFields is the reason of Events about the fields that a driver ignores.
const EventUnknownFields = "UnknownFields"

func classEvents() []EventReason {
	return []EventReason{{
		EventUnknownFields, true,
		[]string{"MachineClass"},
		"The driver ignores fields of the provider spec, or does not report which it ignores. It is emitted when they change, " +
			"before a VM is created. The message names the fields, and those for which no VM is created because they can concern security or price.",
		"Correct or remove the fields. To have VMs created without them all the same, " +
			"annotate the MachineClass with `fleet.machine.sapcloud.io/allow-unknown-fields=<the value in the message>`. " +
			"A driver that refuses fields which it does not know, as `simulated` does, has none created; the message says so. " +
			"See [fields that a driver ignores](operations/configure.md#fields-that-a-driver-ignores).",
	}}
}
