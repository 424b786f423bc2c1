package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Driver is one cloud. Implementations are safe for concurrent use. What applies to all methods is
// in the package comment.
type Driver interface {
	// GetUnknownFields returns the fields of the class' provider spec that CreateMachine would ignore,
	// or refuses: because the driver does not know them, or because it knows them and makes no use of
	// them. A misspelled field is one that it does not know. The fleet reports all of them on the
	// class before it requests a VM, and requests none if they concern security or price, until a user
	// allows it. It sends no request. A driver may reject a spec that has no such field and of which
	// CreateMachine could create no VM, as it would: that is reported before there is a machine.
	// Errors: InvalidArgument for more than MaxUnknownFields, and for such a spec; Unimplemented where
	// what is ignored is not known.
	GetUnknownFields(ctx context.Context, req GetUnknownFieldsRequest) (GetUnknownFieldsResponse, error)

	// CreateMachine creates the VM of req.Machine, or finds the one that has the Machine's UID
	// already. Repeating it, also at the same time or after an answer was lost, leaves one VM. It
	// returns as soon as the cloud has accepted the VM; the VM may still be booting. It never returns
	// one that has ended: where the cloud still knows a VM that was created for this Machine and has
	// ended, the driver creates another or fails with Aborted. One that fails part-way need not remove
	// what it has created by then: a repeated create uses it, and DeleteMachine removes it. Where the
	// cloud has tags that has the Machine's UID as well, from the moment that it exists. Errors:
	// InvalidArgument for a provider spec or secret that cannot work, ResourceExhausted for quota and
	// capacity, AlreadyExists when the cloud has the name or the token with other parameters.
	CreateMachine(ctx context.Context, req CreateMachineRequest) (CreateMachineResponse, error)

	// InitializeMachine does what the cloud needs after a create and before the VM is of use. It is
	// called after each create and whenever GetMachineStatus returns Uninitialized. Drivers without
	// such a step return Unimplemented.
	InitializeMachine(ctx context.Context, req InitializeMachineRequest) (InitializeMachineResponse, error)

	// DeleteMachine removes the Machine's VM and all that belongs to it: the one that the provider ID
	// names, if it is the Machine's, and otherwise all that have the Machine's UID. It also removes
	// what a create that failed part-way has left for the Machine, such as network interfaces and
	// disks, by the same UID: it is called, too, when there is no VM and a create may have been sent,
	// and nothing else is. No VM is success with Gone set. A VM that is not the Machine's is never
	// removed, regardless of the provider ID, and no other request is processed between its check and
	// its deletion where the cloud can do both in one request. A Machine without a UID has no VM that
	// can be found: InvalidArgument. It removes at most MaxOwned VMs, or a page of the cloud's list,
	// in one call; while there are more Gone is false. It returns when the cloud has accepted the
	// deletion; Gone reports whether the VM has ended, too. While Gone is false the fleet calls again:
	// first after 250 ms, then after a quarter of the time so far, and never more than 10 s apart.
	DeleteMachine(ctx context.Context, req DeleteMachineRequest) (DeleteMachineResponse, error)

	// GetMachineStatus looks for the VM of req.Machine and changes nothing: for the one that the
	// provider ID names, if it is the Machine's, and otherwise for the one that has the Machine's UID.
	// Errors: NotFound when the cloud answers that there is none (one that has ended, or is ending, is
	// none; nor is one of another Machine, which the response then reports together with the error),
	// OutOfRange when there are several, which has the leader list the scope of the class soon and
	// delete those that the Machine does not name, if it names one of them and the driver has a
	// Sweeper; Uninitialized, together with a filled response, when InitializeMachine has to be
	// called, Unimplemented where the cloud cannot be searched; see the package comment for the
	// consequences.
	GetMachineStatus(ctx context.Context, req GetMachineStatusRequest) (GetMachineStatusResponse, error)

	// ListMachines returns every VM in the scope of the class (the class' cluster, so that several
	// classes may return the same VMs), all pages of it, or an error: never a part. Only the names on
	// a page that was read are kept.
	ListMachines(ctx context.Context, req ListMachinesRequest) (ListMachinesResponse, error)

	// GetVolumeIDs returns the cloud's IDs of those volumes that this driver knows, and skips the
	// others.
	GetVolumeIDs(ctx context.Context, req GetVolumeIDsRequest) (GetVolumeIDsResponse, error)
}

// Target contains what nearly every request names: a machine, its class, and the class'
// credentials.
type Target struct {
	// Machine is read only. A client that may write it can have put any provider ID there.
	Machine *v1alpha1.Machine
	// Class is read only.
	Class *v1alpha1.MachineClass
	// Secret is the data of one Secret: that of the class' credentialsSecretRef or, if it has none, of
	// its secretRef. It is never a mix of the two: a driver sends its content to the endpoint that it
	// names, and nothing else.
	Secret map[string][]byte
	// Adopt makes a VM count as the Machine's that has no UID at all, and the Machine's name in the
	// scope of its class: Machine Controller Manager has created it. The fleet sets it only when no
	// other Machine has an older claim to that VM.
	Adopt bool
	// ControlCluster identifies the control cluster: the UID of its Namespace kube-system.
	// CreateMachine tags what it creates with it, in the request that creates it, and no provider spec
	// can set that tag: so the sweeps of two fleets in one account do not confuse their VMs. It is ""
	// when it is not known; what is created then is never swept. It may become known between two
	// creates for one Machine; the second one finds the VM of the first.
	ControlCluster string
}

// GetUnknownFieldsRequest names a class.
type GetUnknownFieldsRequest struct {
	// Class is read only.
	Class *v1alpha1.MachineClass
}

// GetUnknownFieldsResponse holds the fields.
type GetUnknownFieldsResponse struct {
	// Fields are their paths in the provider spec, each once, such as "properties.priority", or
	// "disks[].size" for a field of elements of a list: at most MaxUnknownFields of MaxFieldPath
	// bytes, without spaces and commas.
	Fields []string
	// Refused reports whether CreateMachine refuses a provider spec with one of them; if not, it
	// ignores them.
	Refused bool
}

// CreateMachineRequest requests a VM.
type CreateMachineRequest struct {
	Target
	// UserData is the user data that the VM boots with, all placeholders filled in: at most
	// MaxUserData bytes. It is that of the class' credentialsSecretRef or, if that has none, of its
	// secretRef.
	UserData []byte
}

// CreateMachineResponse describes the VM that now exists.
type CreateMachineResponse struct {
	VM
	// LastKnownState is kept in the Machine's status and passed back unread, also when it is returned
	// with an error; "" keeps the existing one. It has at most MaxLastKnownState bytes.
	LastKnownState string
}

// VM contains what a cloud reports of a machine.
type VM struct {
	// ProviderID equals spec.providerID of the Node that the VM becomes, in the form that IdenticalVM
	// accepts.
	ProviderID string
	// NodeName is the name under which the VM joins as a Node.
	NodeName string
	// Addresses of the VM, as far as the cloud knows them yet.
	Addresses []corev1.NodeAddress
	// State is the cloud's own name of the state that the VM is in, such as "running" or "stopped"; ""
	// when the driver does not report it. It has at most MaxVMState printable bytes without spaces, is
	// shown when the VM's Node does not report, and nothing depends on it.
	State string
}

// InitializeMachineRequest requests the post-create step.
type InitializeMachineRequest struct{ Target }

// InitializeMachineResponse describes the VM after it.
type InitializeMachineResponse struct{ VM }

// DeleteMachineRequest requests the removal of a VM.
type DeleteMachineRequest struct{ Target }

// DeleteMachineResponse reports the progress of the removal.
type DeleteMachineResponse struct {
	// Gone is true when nothing of the VM is left, and nothing of a create that failed. False means:
	// accepted, call again.
	Gone bool
	// LastKnownState as in CreateMachineResponse.
	LastKnownState string
	// Left reports whether the VM that the Machine's provider ID names exists, is not the Machine's,
	// and was not changed.
	Left bool
	// Owned reports whether the VM that the Machine's provider ID names is the Machine's, also when it
	// has ended before: a Node with that provider ID is then the Machine's, too. It is false when the
	// cloud does not know the VM any more.
	Owned bool
}

// GetMachineStatusRequest requests a VM's state.
type GetMachineStatusRequest struct{ Target }

// GetMachineStatusResponse describes the VM that was found.
type GetMachineStatusResponse struct {
	VM
	// Left reports whether the VM that the Machine's provider ID names exists and is not the
	// Machine's. It is set with NotFound, too.
	Left bool
}

// ListMachinesRequest requests all VMs in the scope of a class.
type ListMachinesRequest struct {
	Class *v1alpha1.MachineClass
	// Secret as in Target.
	Secret map[string][]byte
}

// ListMachinesResponse holds the VMs.
type ListMachinesResponse struct {
	// Machines maps provider ID to machine name.
	Machines map[string]string
}

// GetVolumeIDsRequest names volumes.
type GetVolumeIDsRequest struct {
	Volumes []*corev1.PersistentVolumeSpec
}

// GetVolumeIDsResponse holds the cloud's names of them.
type GetVolumeIDsResponse struct{ IDs []string }
