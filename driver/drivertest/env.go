package drivertest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Env is a driver and a cloud for one subtest, which may change both.
type Env struct {
	// Driver under test.
	Driver driver.Driver
	// Class whose provider spec works, and Secret and UserData for it.
	Class    *v1alpha1.MachineClass
	Secret   map[string][]byte
	UserData []byte
	// VMs returns what really exists: every VM of the cloud that has not ended. Required.
	VMs func(t *testing.T) []VM

	// Fail has all calls of the cloud fail in that way until heal is called. It returns nil for
	// failures that it does not support.
	Fail func(t *testing.T, how Failure) (heal func())
	// EndVM ends a VM without a call of the driver.
	EndVM func(t *testing.T, providerID string)
	// DoubleVM creates a second VM that looks as if the driver had created it for the same machine.
	DoubleVM func(t *testing.T, m *v1alpha1.Machine)
	// Hide makes the cloud answer as if it had none of the VMs that it creates, until show is called:
	// clouds answer with the state of some seconds ago. Nil is for a cloud that shows each VM at once.
	Hide func(t *testing.T) (show func())
	// CreateBare creates a VM for the machine as Machine Controller Manager has created it: with the
	// machine's name in the scope of the class, and without a UID. It returns its provider ID.
	CreateBare func(t *testing.T, m *v1alpha1.Machine) (providerID string)
	// Leftovers returns, of each network interface, disk and the like that belongs to no VM, the UID
	// of the Machine for which the driver created it.
	Leftovers func(t *testing.T) []types.UID
	// CreateWithout creates a VM that looks as if the driver had created it for the machine in that
	// control cluster, and that lacks one of the tags. It returns its provider ID.
	CreateWithout func(t *testing.T, m *v1alpha1.Machine, controlCluster string, without Tag) (providerID string)
	// OtherScopes are Secrets of other accounts and endpoints than Secret, by their difference. They
	// need not work.
	OtherScopes map[string]map[string][]byte
	// Confidential are the keys of Secrets whose values must not be shown.
	Confidential []string
	// WithoutTags is true when the cloud has no place for the UID of a Machine. Then nothing proves
	// that a driver does not change the VMs of others; its documentation has to state what that
	// requires of its users.
	WithoutTags bool
	// MoreThanAPage is a number of VMs that the cloud does not return in one page; 0 when it has no
	// pages.
	MoreThanAPage int
	// BadSpecs are provider specs that cannot work, by what is wrong with them.
	BadSpecs map[string]string
	// Volumes that the driver knows, by the cloud's ID.
	Volumes map[string]*corev1.PersistentVolumeSpec
	// Run is a part of the names and UIDs of the Env's Machines. It has to differ from that of each
	// other Env if the cloud is not a fresh one: a cloud that remembers a VM that has ended creates no
	// other with its token.
	Run string
	// CallTimeout is how long a call may take; 0 means 10 s.
	CallTimeout time.Duration
}

// VM is a VM at the cloud.
type VM struct {
	ProviderID string
	// MachineUID is that of the Machine for which the driver created it.
	MachineUID types.UID
}

// Tag is the mark on a VM of the machine for which it was created. A cloud without tags may show it
// otherwise.
type Tag string

// The tags by which a sweep lists VMs.
const (
	NamespaceTag      Tag = "namespace"
	MachineTag        Tag = "name of the Machine"
	MachineUIDTag     Tag = "UID of the Machine"
	ControlClusterTag Tag = "control cluster"
)

// Failure is a way in which a cloud fails.
type Failure string

// The failures. Env.Fail supports as many of them as it can.
const (
	// Unreachable: no connection can be opened.
	Unreachable Failure = "Unreachable"
	// NoAnswer: calls are neither carried out nor answered, for as long as the caller waits.
	NoAnswer Failure = "NoAnswer"
	// LostAnswer: calls are carried out, and not answered for as long as the caller waits.
	LostAnswer Failure = "LostAnswer"
	// ServerError: calls are answered by an error of the server.
	ServerError Failure = "ServerError"
	// Nonsense: calls are answered by a server that is not the cloud, such as a broken proxy: 404 with
	// a page of HTML.
	Nonsense Failure = "Nonsense"
	// Throttled: calls are rejected for now, with ThrottledFor as time to wait.
	Throttled Failure = "Throttled"
	// QuotaExceeded and NoCapacity: creates are rejected.
	QuotaExceeded Failure = "QuotaExceeded"
	NoCapacity    Failure = "NoCapacity"
	// PartialCreate: creates fail after the cloud has created a part of what a VM needs, such as a
	// network interface.
	PartialCreate Failure = "PartialCreate"
	// BadCredentials: the caller is not authenticated. Forbidden: the caller is not authorized.
	BadCredentials Failure = "BadCredentials"
	Forbidden      Failure = "Forbidden"
	// SecondPage: all pages of a list but the first are answered by an error of the server.
	SecondPage Failure = "SecondPage"

	// Elsewhere, and all that follows, are answers that no real cloud gives: calls are answered by a
	// redirect to a server that reports all VMs as absent.
	Elsewhere Failure = "Elsewhere"
	// Portal: calls are answered by success and a page of HTML, as a captive portal does.
	Portal Failure = "Portal"
	// Endless: calls are answered by more than any cloud returns, in the right format: for example a
	// list of millions of VMs.
	Endless Failure = "Endless"
	// WrongTypes: calls are answered in the cloud's format, with values of other types than are
	// expected.
	WrongTypes Failure = "WrongTypes"
	// OtherVM: calls are answered with a VM of another name than the requested one.
	OtherVM Failure = "OtherVM"
	// NoID and BadID: calls are answered with a VM whose ID is empty, or has control characters.
	NoID  Failure = "NoID"
	BadID Failure = "BadID"
)

// lies are the failures that are answers of success.
var lies = []Failure{Elsewhere, Portal, Endless, WrongTypes, OtherVM, NoID, BadID}

// ThrottledFor is the time to wait of Throttled.
const ThrottledFor = 7 * time.Second

// suite is one subtest's Env with helpers.
type suite struct {
	Env
	t        *testing.T
	machines int
	adopt    bool // in all targets

	controlCluster string // in all targets and sweeps
}

// namePrefix and uidPrefix begin the names of the suite's Machines, and their UIDs, which have the
// names.
const namePrefix, uidPrefix = "conformance-", "uid-of-"

// controlCluster is the control cluster of the suite.
const controlCluster = "uid-of-kube-system"

// machine returns a new Machine, which has a UID and no provider ID.
func (s *suite) machine() *v1alpha1.Machine {
	s.machines++
	name := fmt.Sprintf(namePrefix+"%s%d", s.Run, s.machines)
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Class.Namespace, UID: types.UID(uidPrefix + name)},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: s.Class.Name}},
	}
}

func (s *suite) target(m *v1alpha1.Machine) driver.Target {
	return driver.Target{Machine: m, Class: s.Class, Secret: s.Secret, Adopt: s.adopt, ControlCluster: s.controlCluster}
}

// withSpec returns the target with another provider spec.
func (s *suite) withSpec(m *v1alpha1.Machine, spec string) driver.Target {
	class := s.Class.DeepCopy()
	class.ProviderSpec = runtime.RawExtension{Raw: []byte(spec)}
	return driver.Target{Machine: m, Class: class, Secret: s.Secret, ControlCluster: s.controlCluster}
}

// fail makes the cloud fail, or skips the test. The cloud is healed when the test ends, or before
// by heal.
func (s *suite) fail(how Failure) (heal func()) {
	s.t.Helper()
	if s.Fail == nil {
		s.t.Skip("Env.Fail is not set")
	}
	heal = s.Fail(s.t, how)
	if heal == nil {
		s.t.Skipf("Env.Fail does not support %s", how)
	}
	return heal
}

// vmsOf counts the machine's VMs at the cloud.
func (s *suite) vmsOf(m *v1alpha1.Machine) int {
	s.t.Helper()
	count := 0
	for _, vm := range s.VMs(s.t) {
		if vm.MachineUID == m.UID {
			count++
		}
	}
	return count
}

// wantVMs fails the test unless the machine has that many VMs.
func (s *suite) wantVMs(m *v1alpha1.Machine, want int, when string) {
	s.t.Helper()
	if got := s.vmsOf(m); got != want {
		s.t.Fatalf("%s: the cloud has %d VMs of machine %s, want %d", when, got, m.Name, want)
	}
}

// created is the Machine as it is once the fleet has recorded its VM.
func created(m *v1alpha1.Machine, vm driver.VM) *v1alpha1.Machine {
	noted := m.DeepCopy()
	noted.Spec.ProviderID = vm.ProviderID
	return noted
}
