package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

const (
	// quietWatch is after how many renewals without an event the watch of the Leases is replaced.
	quietWatch = 3
	// loopSilence is for how long the loop of the session may not answer before the process ends. A
	// step takes microseconds.
	loopSilence = 30 * time.Second
)

// session is the right of one session of this replica to act. The loop that keeps it is
// shard/session's Replica.
type session struct {
	settings   protocol.Settings
	time       *fence.Time
	metrics    *shardsession.Metrics
	fence      *fence.Fence
	faultPoint *fence.FaultPoint // nil without --debug-hooks
	lock       *leases.Lock
	die        func(reason string) // terminates the process immediately
}

// newSession prepares a session: no work may be done under it before it runs. control is the time
// of the control cluster. Errors: the state folder.
func newSession(o Options, around Environment, control *apianswers.Clock) (*session, error) {
	s := &session{time: fence.NewTime(around.Clock), metrics: shardsession.NewMetrics(around.Registry), die: around.Die}
	s.time.Ahead = control.Ahead
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
	s.fence = fence.New(o.Name, identity, o.Fleet.Slots, s.time, around.Registry, s.faultPoint)
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

// newProtocol returns the loop that keeps the session, and its slots. Errors: invalid settings.
func newProtocol(d *deps, c *controllers) (*shardsession.Replica, error) {
	s := d.session
	durations, breakers := s.settings.Config, c.remediation.Breakers()
	reporter := &shardsession.Reporter{
		Settings: s.settings, Metadata: d.metadata, Namespace: d.o.Namespace, Events: d.recorder(v1alpha1.EventSourceMachineDeployment),
	}
	store, err := leases.NewStore(leases.Config{
		Client: d.leases, Namespace: s.settings.Namespace, Fleet: s.settings.Fleet, Timeout: durations.RequestTimeout,
		Quiet: quietWatch * durations.RenewEvery, Clock: s.time, Now: s.time.Moment,
	})
	if err != nil {
		return nil, err
	}
	return shardsession.New(shardsession.Config{
		Settings: s.settings, Leases: store, Fence: s.fence, Time: s.time, Grants: d.slots, Metrics: s.metrics,
		Weigh: d.slots.weigh, Roots: d.slots.countRoots, Unowned: d.reportUnowned(reporter), Unfit: reporter.ReportUnfit,
		Unserved: d.unserved.note, UnservedSlot: d.unserved.noteSlot, Led: c.led, LeaderLease: d.holds.LeaderLease, Tracer: d.tracer,
		Count: breakers.Report, Accounts: d.accounts.report, Heard: func(reported protocol.Reports) {
			breakers.Receive(reported.Counts, reported.Holders)
			d.accounts.heard(reported.Accounts)
		},
	})
}

// watch terminates the process when work continues that should have ended.
func (f *Replica) watch(ctx context.Context) {
	dog := leases.Watchdog{
		Clock: f.time, Now: f.time.Moment, Fence: f.fence.Until, Busy: f.fence.Busy, Beat: f.replica.Beat,
		After: f.settings.Config.ExitAfterFence, Silence: loopSilence, Exit: f.die,
	}
	dog.Run(ctx)
}

// runSession runs the session until it has handed over its slots, or fails.
func (f *Replica) runSession(ctx context.Context, leave <-chan struct{}) error {
	klog.FromContext(ctx).Info("Session started", "session", f.settings.Session, "numberOfSlots", f.settings.Slots,
		"shardBy", f.settings.ShardBy, "fileLock", f.lock != nil)
	err := f.replica.Run(ctx, leave)
	exit, ended := errors.AsType[*shardsession.ExitError](err)
	if ended && exit.Reason == protocol.ReasonInFlight {
		f.die(exit.Error()) // requests and calls in flight end with the process: it does not wait for them
	}
	return err
}

// pause waits before the process ends and is restarted; a process that hands over its slots does
// not wait.
func (f *Replica) pause(leave <-chan struct{}) {
	timer := f.time.NewTimer(rand.N(restartDelay)) //nolint:gosec // it spreads restarts
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-leave:
	}
}

// restartDelay is how long a process at most waits before it ends because its session has: replicas
// that lose theirs together do not all restart at the same time.
const restartDelay = 2 * time.Second
