package drainer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// Config is the configuration of a Drainer. All fields are required.
type Config struct {
	Clock    clock.WithDelayedExecution
	Settings drain.Settings
	// ReportAfter is how long requests to a target cluster may fail before a drain reports the error.
	ReportAfter time.Duration
	// Confirm is how long requests to a target cluster have to fail before a drain whose time is over
	// is given up; by then its API server is known to be away if it is.
	Confirm time.Duration
	// Backoff returns for how long a driver is not called after a failure. before is the step that
	// resulted from the failure before it, 0 for the first one, and requested the wait that the cloud
	// requests; step is to be passed after the next failure.
	Backoff func(before time.Duration, code driver.Code, requested time.Duration) (step, wait time.Duration)
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error { return required.Fields(c, "Settings", "ReportAfter", "Confirm") }

// Drainer has the drains of this process. Its content may be lost at any time; a drain then
// continues with what the target cluster shows. Create it with New; it is safe for concurrent use.
type Drainer struct {
	cfg      Config
	own      clock.PassiveClock // of the process, for what does not outlive it
	watches  *watchSet
	detaches *detaches

	mu    sync.Mutex
	known map[errand]*Drain
}

// Owner is the object that a drain belongs to: a Machine, or a Node that is drained while its VM
// stays. Its controller continues the drain.
type Owner struct {
	// UID identifies the drains of the owner.
	UID types.UID
	// Namespace has a share of the volumes that may move at a time, for all of its owners; "" is one,
	// too.
	Namespace string
	// Wake is called when the drain may continue. It must return soon.
	Wake func()
}

// errand identifies a drain. The result of a drain for one aim is not used for another one: a Node
// that was drained while its VM stays is drained again before its VM is deleted.
type errand struct {
	owner types.UID
	aim   Aim
}

// Aim is why a Node is drained.
type Aim string

// The aims.
const (
	ForDeletion     Aim = "deletion"
	ForPreservation Aim = "preservation"
	ForUpdate       Aim = "update in place"
	ForConfig       Aim = "configuration"
)

// New returns a Drainer without drains. Errors: those of Config.Validate.
func New(cfg Config) (*Drainer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Drainer{
		cfg: cfg, own: apianswers.Own(cfg.Clock), watches: newWatchSet(cfg.Clock), detaches: newDetaches(), known: map[errand]*Drain{},
	}, nil
}

// Run watches what drains wait for until ctx ends.
func (d *Drainer) Run(ctx context.Context) { d.watches.Run(ctx) }

// Drain is one drain. Only the pass of its owner uses its methods and the fields above mu.
type Drain struct {
	errand

	// Reported is the progress that was reported last.
	Reported drain.Reported

	of           *Drainer
	memory       drain.Memory
	ids          volumeIDs
	removed      bool      // the removal of a pod or an attachment was requested, or there was an earlier session
	failingSince time.Time // zero while the target cluster answers
	back         time.Time // when the API servers were back after the last outage that the drain has seen

	mu      sync.Mutex // guards what follows: a drain may be ended from outside of the pass
	session *watchSession
	ended   drain.State
	isOver  bool // no further session may begin
}

// Of returns the drain of an owner for an aim, and begins to remember it if it is not known yet.
func (d *Drainer) Of(owner types.UID, aim Aim) *Drain {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := errand{owner, aim}
	one, ok := d.known[e]
	if !ok {
		one = &Drain{of: d, errand: e, ids: volumeIDs{reported: map[string]string{}}}
		d.known[e] = one
	}
	return one
}

// State returns how the drain of a machine that is being deleted has ended, as far as this process
// knows.
func (d *Drainer) State(machine types.UID) drain.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.known[errand{machine, ForDeletion}]; ok {
		return one.state()
	}
	return drain.Unknown
}

// Len returns how many drains are known.
func (d *Drainer) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.known)
}

// VMDeleted records that the VM is being deleted and nothing is left to drain, unless the drain has
// a result already.
func (d *Drainer) VMDeleted(machine types.UID) {
	if d.State(machine) == drain.Unknown {
		d.Of(machine, ForDeletion).end(drain.Drained)
		d.detaches.forget(errand{machine, ForDeletion})
	}
}

// Forget drops what is known of an owner that is gone or that another replica reconciles now.
func (d *Drainer) Forget(owner types.UID) {
	for _, aim := range []Aim{ForDeletion, ForPreservation, ForUpdate, ForConfig} {
		d.Drop(owner, aim)
	}
}

// Drop ends a drain whose result has been used or that is not wanted any more, and drops what is
// known of it.
func (d *Drainer) Drop(owner types.UID, aim Aim) {
	e := errand{owner, aim}
	d.mu.Lock()
	one, ok := d.known[e]
	delete(d.known, e)
	d.mu.Unlock()
	if ok {
		one.end(drain.Unknown)
		d.detaches.forget(e)
	}
}

// End ends a drain with the verdict, and returns its report.
func (d *Drain) End(v drain.Verdict) drain.Report {
	report := drain.End(v, d.wasNeeded())
	d.end(v.State)
	return report
}

// Answered records that the target cluster answers.
func (d *Drain) Answered() { d.failingSince = time.Time{} }

// Unanswered records that a request to the target cluster has failed. The report is that of a drain
// that waits until the cluster answers, or, after the time of the order, of one that is given up:
// otherwise the VM would remain for as long as its cluster does not answer. ok is false for as long
// as the request is to be retried without a report.
func (d *Drain) Unanswered(ctx context.Context, order drain.Order, node string, err error) (report drain.Report, ok bool) {
	now := d.of.own.Now()
	d.afterOutage(order)
	if d.failingSince.IsZero() {
		d.failingSince = now
	}
	switch failing := now.Sub(d.failingSince); {
	case order.Force, order.IsOver() && failing >= d.of.cfg.Confirm:
		klog.FromContext(ctx).Error(err, "Drain timed out while requests to the target cluster fail; deleting VM", "node", node)
		report = drain.ReportGivenUp(node)
		d.end(report.State)
		d.of.detaches.forget(d.errand)
		return report, true
	case failing < d.of.cfg.ReportAfter:
		return drain.Report{}, false
	}
	klog.FromContext(ctx).V(1).Info("Failed to drain Node; retrying", "node", node, "err", err)
	d.Reported, report = d.Reported.Unanswered(order.Now, node, err)
	return report, true
}

// afterOutage forgets, after an outage of an API server, since when the drain is blocked: nothing
// could make progress meanwhile. The drain continues as in a process that has just taken over.
func (d *Drain) afterOutage(order drain.Order) {
	if order.Reach.Back.After(d.back) {
		d.back, d.memory, d.failingSince = order.Reach.Back, drain.Memory{Forced: d.memory.Forced}, time.Time{}
	}
}

// goTo ends the session if it is in another cluster: the target of the namespace has another server
// or CA now. The drain begins again there, since what it knows is of objects that may not exist.
func (d *Drain) goTo(cluster *target.Cluster) {
	d.mu.Lock()
	session := d.session
	leaves := session != nil && session.cluster.of.Client != cluster.Client
	if leaves {
		d.session = nil
	}
	d.mu.Unlock()
	if leaves {
		session.End()
		d.memory, d.failingSince, d.removed = drain.Memory{Forced: d.memory.Forced}, time.Time{}, true
	}
}

func (d *Drain) state() drain.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

// end records how the drain has ended, and ends its session.
func (d *Drain) end(state drain.State) {
	d.mu.Lock()
	session := d.session
	d.session, d.isOver, d.ended = nil, true, state
	d.mu.Unlock()
	if session != nil {
		session.End()
	}
}

// begin begins a session, unless the drain has one or has ended in the meantime, and reports
// whether it has begun one.
func (d *Drain) begin(session func() *watchSession) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOver || d.session != nil {
		return false
	}
	d.session = session()
	return true
}

// wasNeeded reports whether there was something to drain.
func (d *Drain) wasNeeded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session != nil || d.removed
}

// current returns the session, or nil.
func (d *Drain) current() *watchSession {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}
