package azuretest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Config configures a Cloud.
type Config struct {
	// Clock is the time of the cloud; nil means the real one.
	Clock clock.PassiveClock
	// PageSize is how many resources a page of a list has; 0 means 100.
	PageSize int
	// CreateTime and DeleteTime are how long the operations of VMs and disks take.
	CreateTime, DeleteTime time.Duration
	// PollAfter is the time to wait between two requests for the state of an operation, which the
	// cloud reports in whole seconds; 0 means that it reports none.
	PollAfter time.Duration
	// WritesPerHour is how many writes a subscription has in an hour, and Burst how many of them it
	// has at once; 0 means no limit.
	WritesPerHour, Burst int
	// Secrets are those of applications, by client ID.
	Secrets map[string]string
	// Plans are the images of the marketplace that have a plan, as publisher:offer:sku.
	Plans map[string]bool
}

const (
	defaultPageSize = 100
	// maxResources is how many resources a cloud has at most.
	maxResources = 100_000
	// maxOperations is how many operations are remembered. When there are more all that have ended are
	// forgotten.
	maxOperations = 10_000
)

// Cloud is a small Azure. It is an http.Handler, safe for concurrent use.
type Cloud struct {
	cfg Config

	mu          sync.Mutex
	resources   map[string]*resource // by ID in lower case
	operations  map[string]*operation
	agreed      map[string]bool // paths of agreements that are accepted
	tokens      map[string]bool
	buckets     map[string]*bucket // by subscription
	fault       Fault
	shortage    string
	noGroups    map[string]bool // in lower case
	hidesVMs    bool
	everCreated []Resource // VMs
	created     int        // for IDs, addresses and tokens
	cut         cut
	stats       Stats
}

// Stats count requests to Azure Resource Manager.
type Stats struct {
	// Requests are all, Writes those that create or change, and Refused the writes that were
	// throttled.
	Requests, Writes, Refused int
	// Tokens are those that Entra ID has issued, and VMs those that were ever created.
	Tokens, VMs int
}

// resource is a VM, network interface or disk.
type resource struct {
	id         string // as in the request that created it
	kind       string
	location   string
	tags       map[string]string
	zones      []string
	properties map[string]any
	// customData is that of a VM, which the cloud does not show.
	customData string
	state      string
	// due is when the operation on it ends; the zero value while there is none.
	due time.Time
	// reason is the code of an operation that will fail or has failed.
	reason string
	// user is the ID of the VM that uses a network interface or disk.
	user string
	// deletedWith reports whether it is deleted with that VM.
	deletedWith bool
}

// operation is one that runs in the background.
type operation struct {
	due    time.Time
	reason string
}

// The kinds of resources.
const (
	kindVM   = "microsoft.compute/virtualmachines"
	kindDisk = "microsoft.compute/disks"
	kindNIC  = "microsoft.network/networkinterfaces"
)

// The other kinds of requests.
const (
	kindGroup   = "" // a resource group itself
	kindNetwork = "microsoft.network/virtualnetworks"
	kindGraph   = "microsoft.resourcegraph/resources"
)

// The states of resources.
const (
	stateCreating  = "Creating"
	stateUpdating  = "Updating"
	stateSucceeded = "Succeeded"
	stateFailed    = "Failed"
	stateDeleting  = "Deleting"
)

// New returns a Cloud without resources.
func New(cfg Config) *Cloud {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	cfg.PageSize = cmp.Or(cfg.PageSize, defaultPageSize)
	return &Cloud{
		cfg: cfg, resources: map[string]*resource{}, operations: map[string]*operation{}, agreed: map[string]bool{}, tokens: map[string]bool{},
		buckets: map[string]*bucket{}, noGroups: map[string]bool{},
	}
}

// Resource is a resource as a test sees it.
type Resource struct {
	ID    string            `json:"id"`
	State string            `json:"state,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
	// User is the ID of the VM that uses a network interface or disk; "" for none.
	User string `json:"user,omitempty"`
	// Properties are those of the request that created it. A VM has its own vmId, which no other VM
	// ever has.
	Properties map[string]any `json:"-"`
	// CustomData is that of the request that created a VM, in base64.
	CustomData string `json:"-"`
}

// copied returns a copy for tests, which shares the properties.
func (r *resource) copied() Resource {
	return Resource{ID: r.id, State: r.state, Tags: maps.Clone(r.tags), User: r.user, Properties: r.properties, CustomData: r.customData}
}

// VMs returns all VMs, those that are ending, too.
func (c *Cloud) VMs() []Resource { return c.of(kindVM) }

// Leftovers returns all network interfaces and disks that no VM uses and that are not ending.
func (c *Cloud) Leftovers() []Resource {
	all := slices.Concat(c.of(kindNIC), c.of(kindDisk))
	return slices.DeleteFunc(all, func(r Resource) bool { return r.User != "" || r.State == stateDeleting })
}

// All returns all resources.
func (c *Cloud) All() []Resource { return slices.Concat(c.of(kindVM), c.of(kindNIC), c.of(kindDisk)) }

// Created returns IDs and tags of the VMs that were ever created, at most 100,000.
func (c *Cloud) Created() []Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.everCreated)
}

// of returns all resources of a kind.
func (c *Cloud) of(kind string) (all []Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	for _, key := range slices.Sorted(maps.Keys(c.resources)) {
		if r := c.resources[key]; r.kind == kind {
			all = append(all, r.copied())
		}
	}
	return all
}

// Create creates a VM without network interface and disks, which needs no time.
func (c *Cloud) Create(id string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources[strings.ToLower(id)] = &resource{
		id: id, kind: kindVM, tags: maps.Clone(tags), properties: map[string]any{}, state: stateSucceeded,
	}
}

// End begins to delete a VM, which takes longer than a test.
func (c *Cloud) End(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.resources[strings.ToLower(id)]; r != nil {
		const never = 1000 * time.Hour
		r.state, r.due = stateDeleting, c.cfg.Clock.Now().Add(never)
	}
}

// RemoveGroup deletes a resource group with all of its resources. One that never had any does not
// exist from then on either.
func (c *Cloud) RemoveGroup(subscription, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noGroups[strings.ToLower(name)] = true
	prefix := strings.ToLower("/subscriptions/" + subscription + "/resourceGroups/" + name + "/")
	maps.DeleteFunc(c.resources, func(id string, _ *resource) bool { return strings.HasPrefix(id, prefix) })
}

// HideVMs has reads and lists show no VM, or shows them again.
func (c *Cloud) HideVMs(hide bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidesVMs = hide
}

// Forget removes a resource without a call.
func (c *Cloud) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.resources, strings.ToLower(id))
}

// Use has a VM use a network interface or disk.
func (c *Cloud) Use(id, vm string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.resources[strings.ToLower(id)]; r != nil {
		r.user = vm
	}
}

// Shortage has the operations of all VMs that are created or started from now on fail with a code;
// "" ends that.
func (c *Cloud) Shortage(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shortage = code
}

// Stats returns the counts of requests.
func (c *Cloud) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// settle ends all operations that are due.
func (c *Cloud) settle() {
	now := c.cfg.Clock.Now()
	for key, r := range c.resources {
		if r.due.IsZero() || r.due.After(now) {
			continue
		}
		r.due = time.Time{}
		switch {
		case r.state == stateDeleting:
			delete(c.resources, key)
			c.release(r)
		case r.reason != "":
			r.state = stateFailed
		default:
			r.state = stateSucceeded
		}
	}
	if len(c.operations) > maxOperations {
		maps.DeleteFunc(c.operations, func(_ string, o *operation) bool { return !o.due.After(now) })
	}
}

// release deletes or detaches what a VM has used that is gone.
func (c *Cloud) release(vm *resource) {
	for key, r := range c.resources {
		if !strings.EqualFold(r.user, vm.id) {
			continue
		}
		if r.user = ""; r.deletedWith {
			delete(c.resources, key)
		}
	}
}
