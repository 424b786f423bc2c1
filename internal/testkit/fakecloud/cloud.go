// Package fakecloud is a cloud in memory, for tests of controllers and for those that run whole
// replicas of the fleet.
//
// A Cloud has resources: VMs, and what else was created for Machines. Its Driver is a driver.Driver
// and a driver.Sweeper that keeps their contracts: a create finds the VM that has the Machine's
// UID, and a VM with another UID is never deleted. Calls are recorded. They can be made to fail,
// before or after they take effect, or pass their own way, as from a process with a network.
//
// Guarantees: a Cloud is safe for concurrent use, and starts no goroutine. Not guaranteed: what a
// cloud does with a VM that runs. Tests have it join as a Node.
package fakecloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Provider is the value of MachineClass.provider of machines in a Cloud, for tests that need one.
const Provider = "simulated"

// Cloud is a cloud in memory. What is exported must not change while it is used.
type Cloud struct {
	Clock    func() time.Time
	Way      Via             // of the calls of Driver; nil sends them
	IDs      string          // the prefix of provider IDs; empty for "test:///i-"
	Created  func(*Resource) // called with each new VM before the create is answered; it must not use the cloud
	Ends     func(*Resource) // called before a resource begins to end, whose end it may set; it must not use the cloud
	Stops    time.Duration   // that a resource takes from its deletion to its end
	Page     int             // the most resources on a page of a list; 0 for all
	Prepares bool            // a VM has to be initialized
	Twins    bool            // a create creates another VM instead of finding the Machine's
	Forgets  bool            // VMs that are ending or have ended are not known
	Lags     bool            // what has begun to end is still listed
	Leaves   bool            // creates that fail leave a network interface
	Notes    bool            // each answer to a create or a delete, an error too, has another LastKnownState

	mu        sync.Mutex
	all       []*Resource
	forgotten int
	fault     func(driver.Op) *Fault
	calls     []Call
}

// Resource is a VM, or another resource of a cloud.
type Resource struct {
	driver.Resource

	Addresses      []corev1.NodeAddress
	State          string // of the VM
	OtherID        string // another form of a VM's provider ID
	Account        string // empty for "account"
	ControlCluster string
	Created        time.Time
	Ready          bool      // it was initialized
	Ends           time.Time // when it has ended; zero before its deletion
	Gone           bool      // a caller knows that it has ended

	// Boots and Joined belong to the test: when a VM is a Node, and whether it was.
	Boots  time.Time
	Joined bool
}

// Live reports whether the resource has not begun to end.
func (r *Resource) Live() bool { return r.Ends.IsZero() }

func (r *Resource) vm() driver.VM {
	return driver.VM{ProviderID: r.ID, NodeName: r.NodeName, Addresses: r.Addresses, State: r.State}
}

// isOf reports whether a resource is a Machine's.
func (r *Resource) isOf(t driver.Target) bool {
	if r.MachineUID != "" {
		return r.MachineUID == t.Machine.UID
	}
	return t.Adopt && r.Machine == t.Machine.Name && (r.Namespace == "" || r.Namespace == t.Machine.Namespace)
}

// isNamedBy reports whether the Machine's provider ID is that of this VM.
func (r *Resource) isNamedBy(t driver.Target) bool {
	id := t.Machine.Spec.ProviderID
	return r.Kind == driver.ResourceVM && id != "" && (id == r.ID || id == r.OtherID)
}

// Fault is how a call fails.
type Fault struct {
	Code        driver.Code
	RetryAfter  time.Duration
	Throttled   bool // there were too many requests
	TakesEffect bool // the call does what it should, and fails all the same
	Hangs       bool // the call gets no answer, so that the caller has to time out
	Bare        bool // the driver returns the error of its HTTP client, without a code
}

// Call is a call that the cloud got.
type Call struct {
	Op driver.Op
	// Target is that of the request; without its Machine and its class when it is recorded.
	driver.Target

	UserData string
	Note     string          // the LastKnownState that was handed back
	Continue string          // of a list of resources
	Resource driver.Resource // that was to be deleted
	At       time.Time       // when it arrived
	Failed   bool            // by a fault
}

// Add adds a resource that no call has created.
func (c *Cloud) Add(r Resource) *Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Created = c.Clock()
	c.all = append(c.all, &r)
	return &r
}

// Change calls f with all resources that there ever were, which it may change. It must not use the
// cloud.
func (c *Cloud) Change(f func(all []*Resource)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.all)
}

// All returns the resources that there ever were.
func (c *Cloud) All() (all []Resource) {
	c.Change(func(ever []*Resource) {
		for _, r := range ever {
			all = append(all, *r)
		}
	})
	return all
}

// Live returns the resources that have not begun to end.
func (c *Cloud) Live() []Resource {
	return slices.DeleteFunc(c.All(), func(r Resource) bool { return !r.Live() })
}

// VMs counts the VMs that have not ended, and those that there ever were.
func (c *Cloud) VMs() (now, ever int) {
	for _, r := range c.All() {
		if r.Kind == driver.ResourceVM {
			if ever++; !c.hasEnded(&r) {
				now++
			}
		}
	}
	return now, ever
}

// Fail has calls of the operations fail from now on, all if none is given.
func (c *Cloud) Fail(fault Fault, ops ...driver.Op) {
	c.FailIf(func(op driver.Op) *Fault {
		if len(ops) > 0 && !slices.Contains(ops, op) {
			return nil
		}
		return &fault
	})
}

// FailIf has calls fail as f decides from now on. It must not use the cloud.
func (c *Cloud) FailIf(f func(driver.Op) *Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// Work has no call fail from now on.
func (c *Cloud) Work() { c.FailIf(nil) }

// Calls returns the calls of an operation so far, all if it is empty.
func (c *Cloud) Calls(op driver.Op) (found []Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if op == "" || call.Op == op {
			found = append(found, call)
		}
	}
	return found
}

// Forget removes the calls so far, and the resources that callers know to have ended.
func (c *Cloud) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = nil
	all := len(c.all)
	c.all = slices.DeleteFunc(c.all, func(r *Resource) bool { return r.Gone && c.hasEnded(r) })
	c.forgotten += all - len(c.all) // so that no ID is used twice
}

// Deleted returns the IDs of the resources whose deletion the cloud has accepted from a sweep, once
// for each call.
func (c *Cloud) Deleted() (ids []string) {
	for _, call := range c.Calls(driver.OpSweep) {
		if !call.Failed {
			ids = append(ids, call.Resource.ID)
		}
	}
	return ids
}

// Note returns the LastKnownState of the latest answer.
func (c *Cloud) Note() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.note()
}

func (c *Cloud) note() string {
	if !c.Notes {
		return ""
	}
	return fmt.Sprintf("%d calls", len(c.calls))
}

// Exists reports whether a resource has not ended.
func (c *Cloud) Exists(r *Resource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.hasEnded(r)
}

func (c *Cloud) hasEnded(r *Resource) bool { return !r.Live() && !c.Clock().Before(r.Ends) }

// end begins to end a resource, and reports whether it has ended. c.mu is held.
func (c *Cloud) end(r *Resource) bool {
	if r.Live() {
		if c.Ends != nil {
			c.Ends(r)
		}
		if r.Live() {
			r.Ends = c.Clock().Add(c.Stops)
		}
	}
	r.Gone = r.Gone || c.hasEnded(r)
	return r.Gone
}

// create creates a VM. c.mu is held.
func (c *Cloud) create(t driver.Target) *Resource {
	n := 1 + c.forgotten
	for _, r := range c.all {
		if r.Kind == driver.ResourceVM {
			n++
		}
	}
	r := &Resource{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", n/256, n%256)}},
		Account:   account(t.Secret), ControlCluster: t.ControlCluster, Created: c.Clock(), Ready: !c.Prepares,
	}
	r.Resource = driver.Resource{
		Kind: driver.ResourceVM, ID: fmt.Sprint(cmp.Or(c.IDs, "test:///i-"), n), Namespace: t.Machine.Namespace, Machine: t.Machine.Name,
		MachineUID: t.Machine.UID, NodeName: t.Machine.Name,
	}
	if c.Created != nil {
		c.Created(r)
	}
	c.all = append(c.all, r)
	return r
}

// leave adds the network interface of a create that has created no VM, or removes it. c.mu is held.
func (c *Cloud) leave(t driver.Target) {
	c.all = slices.DeleteFunc(c.all, func(r *Resource) bool { return r.Kind == driver.ResourceNetworkInterface && r.isOf(t) })
	if !slices.ContainsFunc(c.all, func(r *Resource) bool { return r.isOf(t) }) {
		c.all = append(c.all, &Resource{
			ControlCluster: t.ControlCluster, Account: account(t.Secret), Created: c.Clock(),
			Resource: driver.Resource{
				Kind: driver.ResourceNetworkInterface, ID: fmt.Sprint("nic-", t.Machine.UID), Namespace: t.Machine.Namespace, Machine: t.Machine.Name,
				MachineUID: t.Machine.UID,
			},
		})
	}
}

func account(secret map[string][]byte) string { return cmp.Or(string(secret["account"]), "account") }

// carryOut records a call, and carries it out or fails as it is to.
func (c *Cloud) carryOut(ctx context.Context, call Call, effect func() error) (*Fault, error) {
	fault, err := c.arrive(call, effect)
	switch {
	case fault == nil:
		return nil, err
	case fault.Bare:
		return fault, errors.New("connection reset by peer")
	case fault.Hangs:
		<-ctx.Done()
		code := driver.DeadlineExceeded
		if errors.Is(ctx.Err(), context.Canceled) {
			code = driver.Canceled
		}
		return fault, &driver.Error{Code: code, Op: call.Op, Err: ctx.Err()}
	}
	return fault, &driver.Error{
		Code: fault.Code, Op: call.Op, RetryAfter: fault.RetryAfter, Throttled: fault.Throttled, Err: errors.New("injected by the test"),
	}
}

func (c *Cloud) arrive(call Call, effect func() error) (fault *Fault, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		fault = c.fault(call.Op)
	}
	if fault == nil || fault.TakesEffect {
		err = effect()
	}
	if call.Op == driver.OpCreate && c.Leaves {
		c.leave(call.Target)
	}
	call.At, call.Failed, call.Machine, call.Class = c.Clock(), fault != nil, nil, nil
	c.calls = append(c.calls, call)
	return fault, err
}
