package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// World contains all that a decision about one machine depends on. Everything in it is read only.
type World struct {
	// Now is the time of the decision.
	Now time.Time
	// Limits are the fleet's settings.
	Limits Limits
	// Machine as it stands.
	Machine *v1alpha1.Machine
	// Class that the machine names.
	Class ClassFact
	// Secret is the class' credentials and user data.
	Secret SecretFact
	// Config is the content of the user data in the place of the placeholders of machine
	// configuration.
	Config ConfigFact
	// VM at the cloud.
	VM VMFact
	// NoComponentsTaint has a Node that was updated in place go without the taint
	// critical-components-not-ready.
	NoComponentsTaint bool
	// NoTarget reports whether there is no target cluster: the machine becomes no Node, and is done
	// when its VM exists.
	NoTarget bool
	// TargetProblem is why the target cluster of the namespace is not available; "" if it is.
	TargetProblem string
	// UnlabeledNodes reports whether the Nodes of the target cluster carry no label of a slot: the
	// cluster belongs to one namespace, and the replica that has the namespace watches all of them.
	UnlabeledNodes bool
	// Node in the target cluster.
	Node NodeFact
	// Proven is the provider ID of the VM that the cloud has shown to have the machine's UID, as far
	// as this process has seen; "" when it has seen none.
	Proven string
	// NodeClaims are other machines that name the machine's Node, and VMClaims those that name its VM.
	NodeClaims, VMClaims OtherClaims
	// Reach contains what this process knows of the API servers that decisions about the machine
	// depend on.
	Reach reach.Fact
	// Rollout contains what the Node must carry while machines are replaced; nil when the machine's
	// set is not seen.
	Rollout *nodesync.Rollout
	// PreservedDrain is how far the drain of the Node of a failed, preserved machine is.
	PreservedDrain PreservedDrain
	// UpdateDrain is how far the drain before the in-place update of the Node is. Its zero value means
	// that it was not looked at in this pass.
	UpdateDrain drain.Report
	// Disruption is whether the machine may fail for its health.
	Disruption DisruptionFact
	// Decided is why the machine's set has deleted the machine, as the set has recorded it; the zero
	// value when it has not.
	Decided receipt.Reason
	// Token with which the VM joins.
	Token TokenFact
	// TokenExpiry is when the token expires, as this process has written it; zero when it has not.
	TokenExpiry time.Time
	// Drain of the Node, before its VM is deleted.
	Drain drain.Report
	// Evidence contains what the cloud has reported of the VM of a machine whose Node is unreachable.
	Evidence EvidenceFact
	// PassError is an error for which the machine makes no progress; nil while there is none. If there
	// is, the verdict only reports it.
	PassError *PassError
	// Failure is the cloud's answer to the last action of this pass, when that was an error.
	Failure *Failure
}

// Limits are the fleet's settings, each overridden by the machine's own where it has one.
type Limits struct {
	// CreationTimeout is how long a machine may take to become a healthy Node, counted from its
	// creation.
	CreationTimeout time.Duration
	// HealthTimeout is how long a machine may be unhealthy before it fails.
	HealthTimeout time.Duration
	// ResourceExhaustedRetry is the wait after the cloud had no quota or capacity.
	ResourceExhaustedRetry time.Duration
	// NodeConditions are the types of Node conditions that must be False on a healthy Node, in
	// addition to Ready.
	NodeConditions []string
	// InPlaceUpdateTimeout is how long an update in place may take, counted from the end of the drain.
	InPlaceUpdateTimeout time.Duration
	// PreserveTimeout is for how long a machine is preserved.
	PreserveTimeout time.Duration
	// Drain are the settings for drains.
	Drain drain.Settings
}

// ClassFact contains what is known of the machine's class.
type ClassFact struct {
	// Class is nil when there is none of that name, or when it cannot be decoded.
	Class *v1alpha1.MachineClass
	// Undecodable is why the class, which exists, cannot be decoded; "" when it can.
	Undecodable string
	// ProviderError is why the class' provider cannot be used; nil when there is a driver for it.
	ProviderError error
	// HasFinalizers reports whether class and Secrets have our finalizers, so that they outlive the
	// machine.
	HasFinalizers bool
	// Fields are those of its provider spec that its driver ignores.
	Fields FieldsFact
}

// SecretFact contains what is known of the class' secrets.
type SecretFact struct {
	// Read is false until the secrets were looked for.
	Read bool
	// Missing names the secret that does not exist, or is being deleted and has not our finalizer; ""
	// when none is missing.
	Missing string
	// Foreign reports whether Missing is in another namespace than the class, which may not use it or
	// could not find it there. The two are not distinguished: a client that may write MachineClasses
	// must not learn what other namespaces have.
	Foreign bool
	// UserData is the user data that a VM boots with; nil when the secrets have none.
	UserData []byte
	// Versions identifies what was read: it differs when the data of one of the secrets does.
	Versions string
}

// ConfigFact contains what is known of the configuration that the machine boots with.
type ConfigFact struct {
	// Read is false until it was looked for, which only user data with a placeholder needs.
	Read bool
	// Problem is why there is none, as a sentence without a full stop; "" when there is one.
	Problem string
	// Values are the texts in the place of the placeholders.
	Values map[string]string
}

// VMState classifies what is known of the VM.
type VMState int

// The states. VMUnknown is the zero value: the cloud was not asked, or did not answer.
const (
	VMUnknown VMState = iota
	VMAbsent
	VMUninitialized
	VMPresent
	// VMEnding means that the cloud has accepted the deletion and is not done with it.
	VMEnding
	// VMHidden means that the driver cannot look for a VM, which proves nothing. Creating and deleting
	// it find one that is there.
	VMHidden
)

// VMFact contains what is known of the VM.
type VMFact struct {
	State VMState
	// VM is set in the states VMUninitialized and VMPresent; in the state VMHidden it is what the
	// machine records.
	driver.VM
	// EndingSince and AskedAt are set in the state VMEnding: when this process first saw the VM so,
	// and when it last asked.
	EndingSince, AskedAt time.Time
	// Invalid describes what is invalid about the driver's answer with this VM, in the state
	// VMUninitialized with a valid provider ID and else in the state VMHidden; "" when nothing is. The
	// VM has the valid parts.
	Invalid string
	// LastKnownState is the driver's note of the last answer, also of one that was an error; "" when
	// it left none.
	LastKnownState string
	// Gone reports, in the state VMAbsent, whether DeleteMachine has reported that nothing is left of
	// the VM. The absence of a VM does not show that: a create that failed part-way can leave network
	// interfaces and disks.
	Gone bool
	// Left reports whether the VM that the machine's provider ID names is there and was found not to
	// be the machine's. Adopting reports whether a VM without any UID counted as the machine's by
	// then.
	Left, Adopting bool
}

// HiddenVM returns the fact that there may be a VM which the driver cannot describe.
func HiddenVM(m *v1alpha1.Machine) VMFact {
	return VMFact{State: VMHidden, VM: driver.VM{ProviderID: m.Spec.ProviderID, NodeName: NodeName(m)}}
}

// OtherClaims contains what a live list has shown of other machines whose claim to a Node or a VM
// is not younger.
type OtherClaims struct {
	// Read is false until they were looked for.
	Read bool
	// Found reports whether there are some.
	Found bool
}

// NodeState classifies what is known of the Node.
type NodeState int

// The states. NodeUnseen is the zero value: the cache does not show it, which proves nothing.
const (
	NodeUnseen NodeState = iota
	// NodeNamed means that there is one of that name whose contents are unknown: it is in no slot yet.
	NodeNamed
	// NodeAbsent means that a live read found none.
	NodeAbsent
	NodePresent
)

// NodeFact contains what is known of the Node.
type NodeFact struct {
	State NodeState
	// Node is set in the state NodePresent.
	Node *corev1.Node
	// Elsewhere is the name of a Node that has the provider ID of the machine's VM and not the name
	// that is awaited, in the state NodeAbsent; "" when there is none, or none was looked for.
	Elsewhere string
	// Live reports whether it was read from the API server in this pass.
	Live bool
	// Written reports whether this pass has written metadata or spec of the Node since it was read.
	Written bool
	// Refused is why the API server has lately rejected the values of machine and class for the Node;
	// "" when it has not. RefusedUntil is when they are sent again.
	Refused      string
	RefusedUntil time.Time
	// RestUntil is until when the Node is not written: this process has written it too often of late,
	// because another client undoes what it writes.
	RestUntil time.Time
}

// TokenFact contains what is known of the machine's bootstrap token.
type TokenFact int

// The facts. TokenUnknown is the zero value.
const (
	TokenUnknown TokenFact = iota
	TokenPresent
	TokenAbsent
)

// Failure is an error of the cloud.
type Failure struct {
	Code       driver.Code
	Op         driver.Op
	RetryAfter time.Duration
	Message    string
	// Held reports that the cloud was not called, because the circuit breaker of the account is open.
	// It is tried again after RetryAfter, and the back-off of the machine stays as it is.
	Held bool
}
