package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// beat is the maximum time between two steps, so that a wall clock that was set is detected, and so
// is a loop that blocks.
const beat = time.Second

// Grants caches the objects of this replica's slots. Its methods return at once.
type Grants interface {
	// Add begins to list and watch the objects of slots that were just acquired, and calls ready once
	// when all of them are cached. They are not announced until Open.
	Add(slots []int, ready func(slots []int))
	// Drop removes the objects of slots that were lost. ready is no longer called for them.
	Drop(slots []int)
	// Open announces the objects of the slots as additions, each time that it is called.
	Open(slots []int)
	// Unlisted returns, by slot that is not ready, a kind of objects that is missing; "" while none
	// was requested.
	Unlisted() map[int]string
	// Broken returns, by target cluster, what has not been delivered for a long time.
	Broken() map[string]string
}

// Config describes a Replica. All fields are required. Its functions are called by the loop and
// have to return at once, except for Unowned and Unfit.
type Config struct {
	Settings protocol.Settings
	Leases   *leases.Store
	Fence    *fence.Fence
	Time     *fence.Time
	Grants   Grants
	Metrics  *Metrics
	// Weigh returns the weights of slots by number, of those that are held and possibly others; a
	// missing slot weighs 1.
	Weigh func() map[int]int64
	// Roots returns how many roots a slot has whose objects are known.
	Roots func(slot int) int
	// Count returns the report of this replica about its machines, at the same times; ok is false
	// while the machines were not counted yet. The text is passed on without being parsed. Heard
	// receives about every second the reports of all replicas, while the session may act.
	Count func() (text string, ok bool)
	Heard func(protocol.Reports)
	// Accounts returns what this replica has found out about accounts at clouds. It is called about
	// every second.
	Accounts func() member.Accounts
	// Unowned reports slots that have had no holder for 30 s. The leader calls it once for each time
	// that a slot is without a holder, with the leadership in the context, and again after an error.
	Unowned func(ctx context.Context, slots []int) error
	// Unfit reports replicas that renew their Leases and have not been able for some time to serve all
	// of their slots. The leader calls it once for each such time, with the leadership in the context,
	// and again after an error.
	Unfit func(ctx context.Context, troubles []Trouble) error
	// Unserved is called at most once, before this session acquires a slot, with the last time in
	// which no session of the fleet lived.
	Unserved func(gap member.Gap)
	// UnservedSlot is called with each time in which a slot had no holder that lived, when it has one
	// again, whichever session that is.
	UnservedSlot func(slot int, gap member.Gap)
	// Led is called each time that this session begins to lead: work under the leadership may begin
	// then.
	Led func()
	// LeaderLease is called with each version of the leader Lease that the watch shows, and with nil
	// when it is gone: people annotate it. Slots may be acquired before the first call, because the
	// session lists without the watch.
	LeaderLease func(lease *coordinationv1.Lease)
	// Tracer for the spans of hand-overs and take-overs.
	Tracer trace.Tracer
}

// Replica runs the protocol. Create it with New, and run it once.
type Replica struct {
	cfg     Config
	machine *protocol.Session
	mail    *mailbox

	// Used by the loop only:
	opening   map[int]*opening // slots that are held
	news      []int            // slots whose objects have to be announced
	holders   *holders
	service   *service
	arrival   *arrivals
	leaving   *departures
	changes   changeLog
	outages   outages[int]
	unfit     outages[string]   // sessions that are unfit, while this one leads
	broken    map[string]string // as it was last reported to the protocol
	reached   string            // the report about accounts, in the same way
	candidacy *candidacy
	wakeAt    member.Moment // when the protocol's next step is due; zero: none
	begun     bool          // held is closed
	ticked    time.Duration // when tick was last due
	weighed   time.Duration // when the weights were last taken

	beaten atomic.Pointer[member.Moment]
	shown  atomic.Pointer[coordinationv1.Lease] // the leader Lease, by the watch; nil when it is gone
	held   chan struct{}                        // closed when the session has its Lease
	sent   sync.WaitGroup
}

// opening is a slot from its acquisition to its loss. It is ready when its objects are known.
type opening struct {
	epoch int64
	ready bool
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error { return required.Fields(c) }

// New returns a Replica. Errors: fields that are missing, and invalid settings.
func New(cfg Config) (*Replica, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	machine, err := protocol.NewSession(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("settings of the fleet: %w", err)
	}
	now := cfg.Time.Moment()
	holders := newHolders(cfg.Settings, now)
	r := &Replica{
		cfg: cfg, machine: machine, mail: newMailbox(), held: make(chan struct{}),
		holders: holders, service: &service{metrics: cfg.Metrics, holders: holders, roots: cfg.Roots, begun: now, last: now},
		opening: map[int]*opening{}, arrival: newArrivals(cfg.Settings, cfg.Tracer, cfg.Metrics, holders),
		leaving: newDepartures(cfg.Settings, cfg.Tracer), changes: changeLog{}, outages: outages[int]{}, unfit: outages[string]{},
		candidacy: newCandidacy(),
	}
	r.beaten.Store(&now)
	return r, nil
}

// ExitError is the reason why a session has ended without a request to leave.
type ExitError struct{ protocol.Exit }

// Error returns the reason and the message.
func (e *ExitError) Error() string {
	return fmt.Sprintf("the session has ended (%s): %s", e.Reason, e.Message)
}

// Run runs a session until it has ended. It returns nil when the session has left because leave was
// closed, a *ExitError when the session cannot continue and the process has to be restarted, and
// the error of ctx when ctx has ended, without a hand-over. In all cases, no work may begin
// afterwards.
func (r *Replica) Run(ctx context.Context, leave <-chan struct{}) error {
	if err := r.checkSettings(ctx); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	var around sync.WaitGroup
	defer func() {
		cancel()
		around.Wait()
		r.sent.Wait()
	}()
	around.Go(func() { r.cfg.Leases.Watch(inner, observer{r}) })
	around.Go(func() { r.elect(inner) })
	r.post(protocol.Started{})
	timer := r.cfg.Time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.cfg.Fence.Close()
			return ctx.Err()
		case <-leave:
			leave = nil
			klog.FromContext(ctx).Info("Handing over slots before leaving")
			r.post(protocol.Leaving{})
		case <-r.mail.filled:
		case <-timer.C():
			r.post(protocol.Woke{})
		}
		wake, ended, err := r.work(inner)
		if ended {
			r.cfg.Fence.Close()
			return err
		}
		timer.Stop()
		timer.Reset(wake)
	}
}

// work processes the mailbox, and returns the time after which it must be called again without a
// letter, or how the session has ended.
func (r *Replica) work(ctx context.Context) (wake time.Duration, ended bool, err error) {
	for _, l := range r.mail.receive() {
		switch {
		case l.do != nil:
			l.do()
		default:
			out := r.machine.Step(r.cfg.Time.Moment(), l.event)
			r.wakeAt = out.WakeAt
			r.carryOut(ctx, out)
			if out.Exit != nil && out.Exit.Reason == protocol.ReasonLeft {
				return 0, true, nil
			}
			if out.Exit != nil {
				return 0, true, &ExitError{*out.Exit}
			}
		}
	}
	if len(r.news) > 0 { // in one call: for each, the labeler reads much more than these slots
		r.cfg.Grants.Open(r.news)
		r.news = nil
	}
	now := r.cfg.Time.Moment()
	r.beaten.Store(&now)
	r.candidacy.set(r.machine.MayLead(now))
	r.service.hold(now, r.opening, r.idle(), r.machine.Suspended())
	r.tick(ctx, now)
	wake = beat
	if !r.wakeAt.IsZero() {
		wake = min(wake, max(r.wakeAt.Since(now), 0))
	}
	return wake, false, nil
}

// idle returns how many slots are held and not worked on.
func (r *Replica) idle() (slots int) {
	for slot, o := range r.opening {
		if !o.ready || r.leaving.has(slot) {
			slots++
		}
	}
	return slots
}

// carryOut executes the result of a step: first it stops what ends, then it updates what the
// session is entitled to, and only then it sends requests. One step may resume a slot and stop it
// again: the last change of a slot decides, and a ticket is answered when nothing that is in flight
// after that is left.
func (r *Replica) carryOut(ctx context.Context, out protocol.Output) {
	for _, change := range out.Changes {
		r.end(change)
	}
	r.cfg.Fence.Follow(r.machine, out.Slots)
	if !r.machine.Suspended() && !r.begun {
		r.begun = true
		close(r.held)
	}
	for _, change := range out.Changes {
		r.show(ctx, change)
	}
	for i, change := range out.Changes {
		isLast := !slices.ContainsFunc(out.Changes[i+1:], func(later protocol.Change) bool { return later.Slot == change.Slot })
		if isLast && change.Slot != protocol.Everything {
			r.end(change)
		}
		if change.Ticket != 0 {
			r.onIdle(change.Slot, func() {
				r.post(protocol.Idle{Slot: change.Slot, Ticket: change.Ticket})
				r.mail.put(letter{do: func() { r.leaving.idle(change.Slot, r.cfg.Time.Moment()) }})
			})
		}
	}
	for _, request := range out.Requests {
		r.sent.Go(func() {
			reply := r.send(ctx, request)
			if reply.Lease != nil { // the protocol may act on it before the watch shows it
				observer{r}.note(reply.Lease)
			}
			r.post(protocol.Replied{Reply: reply})
		})
	}
}

// send sends a request about a Lease, and returns the reply.
func (r *Replica) send(ctx context.Context, req member.Request) member.Reply {
	return r.cfg.Leases.Do(fence.WithNeed(ctx, req.Need), req)
}

// onIdle calls idle once when nothing of a slot, or of everything, is in flight.
func (r *Replica) onIdle(slot int, idle func()) {
	if slot == protocol.Everything {
		r.cfg.Fence.OnAllIdle(idle)
		return
	}
	r.cfg.Fence.OnIdle(slot, idle)
}

// end executes the part of a change that stops work.
func (r *Replica) end(change protocol.Change) {
	switch change.Kind {
	case protocol.Stopped:
		r.cfg.Fence.Stop(change.Slot)
	case protocol.Cancelled:
		r.cfg.Fence.Cancel(change.Slot)
	case protocol.Suspended:
		r.cfg.Fence.Suspend()
		r.cfg.Metrics.suspensions.Inc()
	case protocol.Lost:
		r.cfg.Fence.Shut(change.Slot)
	case protocol.Acquired, protocol.Resumed:
	}
}

// show executes the part of a change that concerns the objects of a slot.
func (r *Replica) show(ctx context.Context, change protocol.Change) {
	r.changes.add(change)
	switch change.Kind {
	case protocol.Acquired:
		o := &opening{epoch: change.Epoch}
		r.opening[change.Slot] = o
		r.cfg.Fence.Resume(change.Slot)
		r.arrival.acquired(change, r.cfg.Time.Moment())
		r.cfg.Grants.Add([]int{change.Slot}, func(slots []int) {
			r.mail.put(letter{do: func() {
				for _, slot := range slots {
					if r.opening[slot] == o {
						r.open(ctx, slot)
					}
				}
			}})
		})
	case protocol.Lost:
		if o := r.opening[change.Slot]; o != nil {
			r.leaving.lost(ctx, change.Slot, o.epoch, r.cfg.Time.Moment())
		}
		delete(r.opening, change.Slot)
		r.news = slices.DeleteFunc(r.news, func(slot int) bool { return slot == change.Slot })
		r.arrival.forget(change.Slot)
		r.cfg.Grants.Drop([]int{change.Slot})
	case protocol.Resumed:
		r.leaving.resumed(change.Slot)
		r.resume(change.Slot)
	case protocol.Stopped:
		r.leaving.stopped(change.Slot, r.cfg.Time.Moment())
	case protocol.Cancelled, protocol.Suspended:
	}
}

// open admits keys of a slot whose objects are complete.
func (r *Replica) open(ctx context.Context, slot int) {
	o := r.opening[slot]
	o.ready = true
	r.cfg.Fence.Arrived(slot, o.epoch, r.arrival.opened(ctx, slot, r.cfg.Time.Moment()))
	r.cfg.Fence.Open(slot, o.epoch)
	r.service.opened(slot, r.cfg.Time.Moment())
	r.news = append(r.news, slot)
	r.post(protocol.Opened{Slot: slot, Epoch: o.epoch})
}

// resume admits a slot's keys again, and has those enqueued that were refused meanwhile.
func (r *Replica) resume(slot int) {
	if slot == protocol.Everything {
		for slot := range r.opening {
			r.resume(slot)
		}
		return
	}
	r.cfg.Fence.Resume(slot)
	if o := r.opening[slot]; o != nil && o.ready {
		r.news = append(r.news, slot)
	}
}

// tick does the work that is due once a second.
func (r *Replica) tick(ctx context.Context, now member.Moment) {
	if now.Monotonic-r.ticked < beat {
		return
	}
	r.ticked = now.Monotonic
	r.changes.flush(ctx)
	if broken := r.cfg.Grants.Broken(); !maps.Equal(broken, r.broken) {
		r.broken = broken
		r.post(protocol.Watched{Broken: broken})
	}
	r.compareAccounts()
	facts := r.machine.Facts(now)
	r.service.observe(now, facts.Observing)
	r.cfg.Metrics.observe(&facts, r.cfg.Fence.Busy())
	r.cfg.Metrics.observeFitness(facts.Fitness, r.unopened())
	r.report(ctx, now, &facts)
	if now.Monotonic-r.weighed >= r.cfg.Settings.Config.WeighEvery {
		r.weighed = now.Monotonic
		r.post(r.weigh())
	}
	if reported, ok := r.machine.Reports(); ok {
		r.cfg.Heard(reported)
	}
}

// weigh returns the weights of this replica's slots, and its report about its machines.
func (r *Replica) weigh() (weighed protocol.Weighed) {
	weighed.Weights = r.cfg.Weigh()
	if text, ok := r.cfg.Count(); ok {
		weighed.Counts = &text
	}
	return weighed
}

func (r *Replica) post(event protocol.Event) { r.mail.put(letter{event: event}) }

// Beat returns when the loop last finished a step.
func (r *Replica) Beat() member.Moment { return *r.beaten.Load() }

// Health is the report of the session to probes.
type Health struct {
	// Suspended reports whether the session does not hold its Lease, or its fence has passed.
	Suspended bool
	// Fitness reports what the session can do.
	Fitness member.Fitness
	// Unreached are the classes of accounts at clouds that do not answer this replica, and answer
	// another one.
	Unreached []string
	// Waiting are the slots that are held and not open, with the kind of objects that is missing.
	Waiting map[int]string
	// Held is the number of slots that are held, and Leads reports whether the session leads.
	Held  int
	Leads bool
}

// Health returns the health of the session. Errors: the loop of the session does not answer before
// ctx ends.
func (r *Replica) Health(ctx context.Context) (h Health, err error) {
	err = r.inLoop(ctx, func() error {
		h = Health{
			Suspended: r.machine.Suspended(), Fitness: r.machine.Fitness(), Unreached: r.machine.Unreached(), Waiting: r.waiting(),
			Held: len(r.opening), Leads: r.cfg.Fence.Leadership().Held,
		}
		return nil
	})
	if err != nil {
		return Health{}, err // the loop may write to h later
	}
	return h, nil
}

// inLoop runs f in the loop and waits for it. Errors: those of f, or that the loop does not answer.
func (r *Replica) inLoop(ctx context.Context, f func() error) error {
	answer := make(chan error, 1)
	r.mail.put(letter{do: func() { answer <- f() }})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the loop of the session does not answer: %w", ctx.Err())
	}
}
