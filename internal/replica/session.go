package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach/check"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

const (
	// quietWatch is after how many renewals without an event the watch of the Leases is replaced.
	quietWatch = 3
	// loopSilence is for how long the loop of the session may not answer before the process ends. A step takes microseconds.
	loopSilence = 30 * time.Second
)

// session is one session of this replica.
type session struct {
	settings    protocol.Settings
	time        *fence.Time
	metrics     *shardsession.Metrics
	fence       *fence.Fence
	faultPoint  *fence.FaultPoint // nil without --debug-hooks
	lock        *leases.Lock
	replica     *shardsession.Replica
	whenLeading []func()            // called when the session begins to lead; add to it before protocol is called
	servers     check.Servers       // for the debug page
	die         func(reason string) // terminates the process immediately
}

// newSession prepares a session: no work may be done under it before it runs. Errors: the state folder.
func newSession(o Options, registry prometheus.Registerer, around Environment) (*session, error) {
	s := &session{time: fence.NewTime(around.Clock), metrics: shardsession.NewMetrics(registry), die: around.Die}
	if o.Fleet.StateDir != "" {
		var err error
		if s.lock, err = leases.AcquireLock(o.Fleet.StateDir); err != nil {
			return nil, err
		}
	}
	if o.Fleet.DebugHooks {
		s.faultPoint = fence.NewFaultPoint(o.Fleet.DebugFaultPoint)
	}
	identity := member.Identity(o.Name, randomSuffix())
	s.settings = o.Fleet.settings(o.Name, identity, s.lock != nil)
	s.fence = fence.New(o.Name, identity, o.Fleet.Slots, s.time, registry, s.faultPoint)
	return s, nil
}

// randomSuffix distinguishes the sessions of a replica.
func randomSuffix() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[rand.IntN(len(letters))] //nolint:gosec // it is a name, not a secret
	}
	return string(suffix)
}

// protocol creates the replica of the session. Errors: invalid settings.
func (s *session) protocol(f *Replica, reporter *shardsession.Reporter) error {
	durations := s.settings.Config
	store, err := leases.NewStore(leases.Config{
		Client: f.leases, Namespace: s.settings.Namespace, Fleet: s.settings.Fleet, Timeout: durations.RequestTimeout,
		Quiet: quietWatch * durations.RenewEvery, Clock: s.time, Now: s.time.Moment,
	})
	if err != nil {
		return err
	}
	s.replica, err = shardsession.New(shardsession.Config{
		Settings: s.settings, Leases: store, Fence: s.fence, Time: s.time, Grants: f.slots, Metrics: s.metrics,
		Weigh: f.slots.weigh, Roots: f.slots.countRoots, Unowned: reporter.ReportUnowned, Unfit: reporter.ReportUnfit, Unserved: f.noteUnserved, UnservedSlot: f.noteUnservedSlot,
		Led: s.led, LeaderLease: f.holds.LeaderLease, Tracer: f.tracer,
		Count: f.breakers.Report, Accounts: f.accounts.report, Heard: func(reported protocol.Reports) {
			f.breakers.Receive(reported.Counts, reported.Holders)
			f.accounts.heard(reported.Accounts)
		},
	})
	return err
}

// led begins the leader's work.
func (s *session) led() {
	for _, begin := range s.whenLeading {
		begin()
	}
}

// watch terminates the process when work continues that should have ended.
func (s *session) watch(ctx context.Context) {
	dog := leases.Watchdog{
		Clock: s.time, Now: s.time.Moment, Fence: s.fence.Until, Busy: s.fence.Busy, Beat: s.replica.Beat,
		After: s.settings.Config.ExitAfterFence, Silence: loopSilence, Exit: s.die,
	}
	dog.Run(ctx)
}

// run runs the session until it has handed over its slots, or fails.
func (s *session) run(ctx context.Context, leave <-chan struct{}) error {
	klog.FromContext(ctx).Info("Session started", "session", s.settings.Session, "numberOfSlots", s.settings.Slots, "shardBy", s.settings.ShardBy, "fileLock", s.lock != nil)
	err := s.replica.Run(ctx, leave)
	exit, ended := errors.AsType[*shardsession.ExitError](err)
	if ended && exit.Reason == protocol.ReasonInFlight {
		s.die(exit.Error()) // requests and calls in flight end with the process: it does not wait for them
	}
	return err
}

// pause waits before the process ends and is restarted; a process that hands over its slots does not wait.
func (s *session) pause(leave <-chan struct{}) {
	timer := s.time.NewTimer(rand.N(restartDelay)) //nolint:gosec // it spreads restarts
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-leave:
	}
}

// restartDelay is how long a process at most waits before it ends because its session has: replicas that lose theirs
// together do not all restart at the same time.
const restartDelay = 2 * time.Second
