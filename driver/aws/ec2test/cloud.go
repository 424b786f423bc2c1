package ec2test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// TokenLife is for how long a client token is kept.
	TokenLife = 24 * time.Hour
	// forgetAfter is for how long an instance is shown that has ended.
	forgetAfter = time.Hour
	// SessionLife is for how long temporary credentials are valid.
	SessionLife = time.Hour
	// maxInstances is how many instances are kept, the ended ones included.
	maxInstances = 100_000
)

// Settings configure a Cloud.
type Settings struct {
	Region string
	// AccessKeys are secret access keys by the ID of the access key.
	AccessKeys map[string]string
	// Roles are the tokens that may assume a role, by the role's ARN.
	Roles map[string]string
	// Images are the names of root devices by the ID of the image, and Subnets the availability zones
	// by the ID of the subnet.
	Images, Subnets map[string]string
	// MachineTypes that exist; none means that all do.
	MachineTypes []string
	// PageSize is how many items a page has at most; 0 means as many as are requested.
	PageSize int
	// Quota is how many instances there are at most; 0 means any number.
	Quota int
	// Rate is how many requests are accepted in a second, and Burst how many at once; 0 means any
	// number.
	Rate, Burst float64
	// VisibleAfter is how long after its creation an instance is not shown.
	VisibleAfter time.Duration
	// LateTags is true when the answer to RunInstances does not have the tags.
	LateTags bool
	// StopTime is how long an instance takes to end.
	StopTime time.Duration
	// Clock is the time; nil means the system's.
	Clock clock.PassiveClock
}

// Instance is a VM.
type Instance struct {
	ID, Image, MachineType, Zone string
	State                        string
	Reason                       string
	Tags                         map[string]string

	number     int
	visible    time.Time
	ends, gone time.Time // begin of "terminated", and end of the record
}

// Attached is a network interface or a volume.
type Attached struct {
	ID string
	// Instance is the ID of the instance that uses it; "" when none does.
	Instance string
	Tags     map[string]string
	// SourceDestCheck and Prefixes are of network interfaces.
	SourceDestCheck bool
	Prefixes        int

	isNIC         bool
	device, card  int
	endsWithOwner bool
}

// tokenRecord contains what is known of a client token.
type tokenRecord struct {
	parameters string
	instance   string
	created    time.Time
}

// Cloud is one region of one account.
type Cloud struct {
	settings Settings
	clock    clock.PassiveClock

	mu        sync.Mutex
	created   int // of all kinds, for IDs
	instances map[string]*Instance
	attached  map[string]*Attached
	tokens    map[string]tokenRecord
	sessions  map[string]session
	requests  []string
	failure   *Failure
	cutAt     int  // the number of the request that is cut; 0 for none
	cutAfter  bool // it is carried out first
	hides     bool
	budget    float64
	budgetAt  time.Time
}

// New returns a Cloud without instances.
func New(settings Settings) *Cloud {
	c := &Cloud{
		settings: settings, clock: settings.Clock, instances: map[string]*Instance{}, attached: map[string]*Attached{},
		tokens: map[string]tokenRecord{}, sessions: map[string]session{}, budget: settings.Burst,
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	c.budgetAt = c.clock.Now()
	return c
}

// Hide has the cloud show no instance until show is called.
func (c *Cloud) Hide() (show func()) {
	set := func(hides bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hides = hides
	}
	set(true)
	return func() { set(false) }
}

// Failure is how requests fail.
type Failure struct {
	// Actions that fail; none means all.
	Actions []string
	// Code, Status and RetryAfterSeconds of the refusal. Without a code requests are carried out.
	Code              string
	Status            int
	RetryAfterSeconds int
	// FollowingPages has only requests for further pages fail.
	FollowingPages bool
	// Hang leaves requests without an answer until their client closes the connection.
	Hang bool
	// Hung is called when a request begins to hang, after it has taken effect; nil for no call.
	Hung func()
	// Partly makes RunInstances fail after it has created network interfaces and volumes.
	Partly bool
}

// Fail makes requests fail until heal is called.
func (c *Cloud) Fail(f Failure) (heal func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = &f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failure = nil
	}
}

// Cut closes the connection of the n-th request from now on without an answer: before it is carried
// out, or after. 0 cuts none.
func (c *Cloud) Cut(n int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.cutAt, c.cutAfter = nil, n, after
}

// Requests returns the actions of all requests since the last Cut, in their order.
func (c *Cloud) Requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Living returns all instances that have not begun to end, shown or not, in the order of their
// creation.
func (c *Cloud) Living() (all []Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	for _, i := range c.inOrder() {
		if i.State == statePending || i.State == stateRunning {
			copied := *i
			copied.Tags = maps.Clone(i.Tags)
			all = append(all, copied)
		}
	}
	return all
}

// Attachments returns all network interfaces and volumes, those of instances included.
func (c *Cloud) Attachments() (all []Attached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	for _, id := range slices.Sorted(maps.Keys(c.attached)) {
		copied := *c.attached[id]
		copied.Tags = maps.Clone(copied.Tags)
		all = append(all, copied)
	}
	return all
}

// Put creates an instance with tags, as another client of the cloud would.
func (c *Cloud) Put(zone string, tags map[string]string) Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.newInstance(Instance{Zone: zone, Tags: maps.Clone(tags)})
	i.visible = c.clock.Now()
	return *i
}

// End ends an instance without a request of its client.
func (c *Cloud) End(id, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.instances[id]; i != nil {
		i.Reason = reason
		c.terminate(i, 0)
	}
}

// The states of instances that the fake has.
const (
	statePending    = "pending"
	stateRunning    = "running"
	stateShutting   = "shutting-down"
	stateTerminated = "terminated"
)

// newInstance records an instance.
func (c *Cloud) newInstance(i Instance) *Instance {
	c.created++
	i.number, i.ID, i.State = c.created, fmt.Sprintf("i-%017x", c.created), stateRunning
	i.visible = c.clock.Now().Add(c.settings.VisibleAfter)
	c.instances[i.ID] = &i
	return &i
}

// attach records a network interface or a volume.
func (c *Cloud) attach(a Attached) {
	c.created++
	prefix := "vol"
	if a.isNIC {
		prefix = "eni"
	}
	a.ID = fmt.Sprintf("%s-%017x", prefix, c.created)
	c.attached[a.ID] = &a
}

// terminate begins to end an instance.
func (c *Cloud) terminate(i *Instance, takes time.Duration) {
	if i.State == stateShutting || i.State == stateTerminated {
		return
	}
	i.State, i.ends = stateShutting, c.clock.Now().Add(takes)
	if takes == 0 {
		c.advance()
	}
}

// advance does what has become due.
func (c *Cloud) advance() {
	now := c.clock.Now()
	for id, i := range c.instances {
		if i.State == stateShutting && !now.Before(i.ends) {
			i.State, i.gone = stateTerminated, i.ends.Add(forgetAfter)
			c.release(id)
		}
		if i.State == stateTerminated && !now.Before(i.gone) {
			delete(c.instances, id)
		}
	}
	maps.DeleteFunc(c.tokens, func(_ string, t tokenRecord) bool { return now.Sub(t.created) >= TokenLife })
	maps.DeleteFunc(c.sessions, func(_ string, s session) bool { return !now.Before(s.expires) })
}

// release ends or frees what an instance used.
func (c *Cloud) release(instance string) {
	for id, a := range c.attached {
		switch {
		case a.Instance != instance:
		case a.endsWithOwner:
			delete(c.attached, id)
		default:
			a.Instance = ""
		}
	}
}

// inOrder returns all instances in the order of their creation.
func (c *Cloud) inOrder() []*Instance {
	return slices.SortedFunc(maps.Values(c.instances), func(a, b *Instance) int { return a.number - b.number })
}
