package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// leaderLock is the leader Lease for client-go's election. It differs from client-go's own lock in
// what a fence needs: an update carries the UID, the fence counts from the send and not from the
// answer, a session that may begin nothing is no candidate, and only the holder releases the Lease.
type leaderLock struct {
	*Replica

	mu       sync.Mutex
	lease    *coordinationv1.Lease // as last read or written
	reported string                // the difference between settings that was last logged
}

var _ resourcelock.Interface = (*leaderLock)(nil)

// elect takes part in the election until ctx ends, again after each time as leader. It begins when
// the session may act, resigns when the session can no longer observe the fleet, and takes part
// again when it can.
func (r *Replica) elect(ctx context.Context) {
	select {
	case <-r.held:
	case <-ctx.Done():
		return
	}
	lock := &leaderLock{Replica: r}
	durations := r.cfg.Settings.Config
	// client-go's election logs each attempt, and rejections as errors; changes are logged here.
	quiet := klog.NewContext(ctx, klog.Logger{})
	for r.candidacy.wait(ctx, true) {
		term, end := context.WithCancel(quiet)
		leads := &leadership{Replica: r}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: member.LeaderLeaseName(r.cfg.Settings.Fleet), ReleaseOnCancel: true,
			LeaseDuration: durations.TakeOver, RenewDeadline: durations.Fence, RetryPeriod: durations.RenewEvery / 2,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: leads.beginLeading,
				OnStoppedLeading: func() { leads.endLeading(ctx) },
				OnNewLeader:      func(identity string) { r.leaderIs(ctx, identity) },
			},
		})
		if err != nil { // Config.Validate is stricter
			end()
			klog.FromContext(ctx).Error(err, "Failed to start leader election")
			return
		}
		go func() {
			if r.candidacy.wait(term, false) {
				klog.FromContext(ctx).Info("Resigning: this session cannot observe the fleet, or leaves")
				end()
			}
		}()
		elector.Run(term)
		end()
	}
}

// leaderIs logs which session leads.
func (r *Replica) leaderIs(ctx context.Context, identity string) {
	klog.FromContext(ctx).Info("Observed leader", "session", identity, "self", identity == r.cfg.Settings.Session)
}

// leadership is one time as leader. The callbacks arrive in any order.
type leadership struct {
	*Replica

	mu sync.Mutex
	in bool
}

// beginLeading begins the time as leader, unless it is over already.
func (l *leadership) beginLeading(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.in = true
	l.cfg.Fence.BeginLeading()
	l.post(protocol.Elected{})
	l.cfg.Led()
}

// endLeading ends the time as leader.
func (l *leadership) endLeading(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.in {
		return
	}
	l.in = false
	l.cfg.Fence.EndLeading()
	l.post(protocol.Deposed{})
	klog.FromContext(ctx).Info("Stopped leading")
}

// Get returns the leader Lease, as the API server has it or as newerLeader. This session's settings
// were compared with those of the fleet before it acted, so other settings on the Lease are an
// edit, which the next write of the leader replaces.
func (l *leaderLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease := l.newerLeader()
	if lease == nil {
		var err error
		if lease, err = l.readLeader(ctx); err != nil {
			return nil, nil, err
		}
	}
	l.remember(lease)
	l.compare(ctx, lease)
	// Any write is a sign of life, also one that does not change the record.
	return resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec), []byte(string(lease.UID) + "/" + lease.ResourceVersion), nil
}

// newerLeader returns the leader Lease as the watch shows it, when another session has it and it
// has changed since it was last read; otherwise nil. It is news only that this leader lives: a
// session that may lead, because the Lease is free or has not changed for long, reads it first.
func (l *leaderLock) newerLeader() *coordinationv1.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	shown := l.shown.Load()
	if shown == nil || l.lease == nil || shown.ResourceVersion == l.lease.ResourceVersion {
		return nil
	}
	if holder := member.Holder(shown); holder == "" || holder == l.cfg.Settings.Session {
		return nil
	}
	return shown
}

// Create creates the leader Lease, with this session's settings on it.
func (l *leaderLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: member.LeaderLeaseName(l.cfg.Settings.Fleet), Namespace: l.cfg.Settings.Namespace,
			Labels:      map[string]string{v1alpha1.LabelFleet: l.cfg.Settings.Fleet},
			Annotations: protocol.Record(l.cfg.Settings),
		},
		Spec: resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}
	return l.write(ctx, member.Create, lease)
}

// errNotHolder is returned instead of releasing a Lease of another session.
var errNotHolder = errors.New("expected this session to hold the leader Lease, got another holder: it is not released")

// compare logs that the leader Lease records other settings, once for each difference.
func (l *leaderLock) compare(ctx context.Context, lease *coordinationv1.Lease) {
	differs := ""
	err := protocol.CheckLease(l.cfg.Settings, lease)
	if err != nil {
		differs = err.Error()
	}
	if err != nil && differs != l.reported {
		klog.FromContext(ctx).Error(err, "Leader Lease records other settings than those of the running fleet; the leader replaces them")
	}
	l.reported = differs
}

// Update writes the leader Lease as it was last read, with the annotations that people have added.
// An annotation that was added since leads to a conflict, after which client-go reads the Lease and
// tries again. It does not release a Lease that another session holds: after its last renewal has
// failed, client-go reads the Lease again and releases it although the holder may have changed
// meanwhile. Errors: errNotHolder, and those of write.
func (l *leaderLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	last := l.lease
	l.mu.Unlock()
	if last == nil {
		return errors.New("expected the leader Lease to be read before it is updated")
	}
	if record.HolderIdentity == "" && member.Holder(last) != l.cfg.Settings.Session {
		return errNotHolder
	}
	if record.LeaderTransitions > math.MaxInt32 {
		record.LeaderTransitions = 1 // the API server rejects numbers that are too large
	}
	lease := last.DeepCopy()
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	maps.Copy(lease.Annotations, protocol.Record(l.cfg.Settings))
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[v1alpha1.LabelFleet] = l.cfg.Settings.Fleet // without it no replica would see what people annotate
	return l.write(ctx, member.Update, lease)
}

// write sends a leader Lease and, when that gives this session the leadership or renews it, moves
// the leadership's fence.
func (l *leaderLock) write(ctx context.Context, verb member.Verb, lease *coordinationv1.Lease) error {
	need := member.NeedFence
	holder := lease.Spec.HolderIdentity
	if holder == nil || *holder == "" {
		need = member.NeedNothing // releasing it is harmless, and from the send on the session no longer leads
		l.cfg.Fence.MoveLeaderFence(member.Moment{})
	}
	reply := l.send(ctx, member.Request{Verb: verb, Name: lease.Name, Lease: lease, Need: need})
	if reply.Outcome != member.Done {
		return l.failure(verb, reply.Outcome)
	}
	l.remember(reply.Lease)
	if need == member.NeedFence {
		l.cfg.Fence.MoveLeaderFence(reply.Sent.Add(l.cfg.Settings.Config.Fence))
	}
	return nil
}

func (l *leaderLock) remember(lease *coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease = lease
}

// failure returns the errors that client-go's election distinguishes.
func (r *Replica) failure(verb member.Verb, outcome member.Outcome) error {
	name, resource := member.LeaderLeaseName(r.cfg.Settings.Fleet), coordinationv1.Resource("leases")
	switch outcome { //nolint:exhaustive // client-go's election treats all others alike
	case member.NotFound:
		return apierrors.NewNotFound(resource, name)
	case member.Conflict:
		return apierrors.NewConflict(resource, name, errors.New("another writer changed it"))
	case member.Exists:
		return apierrors.NewAlreadyExists(resource, name)
	}
	return fmt.Errorf("%s of leader Lease %s/%s: %s", verb, r.cfg.Settings.Namespace, name, outcome)
}

// RecordEvent does nothing: elections are logged.
func (*leaderLock) RecordEvent(string) {}

// Identity returns the session.
func (l *leaderLock) Identity() string { return l.cfg.Settings.Session }

// Describe returns the name of the Lease for client-go's logs.
func (l *leaderLock) Describe() string {
	return l.cfg.Settings.Namespace + "/" + member.LeaderLeaseName(l.cfg.Settings.Fleet)
}

// readLeader reads the leader Lease live. Errors: what client-go's election distinguishes.
func (r *Replica) readLeader(ctx context.Context) (*coordinationv1.Lease, error) {
	reply := r.send(ctx, member.Request{Verb: member.Get, Name: member.LeaderLeaseName(r.cfg.Settings.Fleet), Need: member.NeedNothing})
	if reply.Outcome != member.Done {
		return nil, r.failure(member.Get, reply.Outcome)
	}
	return reply.Lease, nil
}

// checkSettings compares the settings with those that the leader Lease and the session Leases
// record, and retries until they can be read. Errors: a *ExitError if a setting differs, or that of
// ctx.
func (r *Replica) checkSettings(ctx context.Context) error {
	for first := true; ; first = false {
		err := r.compareSettings(ctx)
		if _, differs := errors.AsType[*ExitError](err); differs || err == nil {
			return err
		}
		if first {
			klog.FromContext(ctx).Error(err, "The Leases of the fleet cannot be read yet; retrying")
		}
		now := r.cfg.Time.Moment()
		r.beaten.Store(&now) // Beat is about this process, not about the API server
		timer := r.cfg.Time.NewTimer(r.cfg.Settings.Config.RenewEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// noteUnserved finds out from the Leases when no session of the fleet lived last. It is called
// before the session writes one.
func (r *Replica) noteUnserved(ctx context.Context, leases []*coordinationv1.Lease) {
	gap := member.LastGap(r.cfg.Settings.Fleet, leases, r.cfg.Time.Moment().Cluster())
	if gap.IsZero() {
		return
	}
	klog.FromContext(ctx).Info("No replica lived for some time; it does not count for the deadlines of machines", "began", gap.From,
		"ended", gap.To)
	r.machine.NoteUnserved(gap)
	r.cfg.Unserved(gap)
}

// compareSettings reads the Leases once. The leader Lease is read by its name: it may have lost the
// label that it is listed by.
func (r *Replica) compareSettings(ctx context.Context) error {
	var leases []*coordinationv1.Lease
	leader, err := r.readLeader(ctx)
	switch {
	case err == nil:
		leases = append(leases, leader)
	case !apierrors.IsNotFound(err):
		return err
	}
	listed := r.send(ctx, member.Request{Verb: member.List, Need: member.NeedNothing})
	if listed.Outcome != member.Done {
		return fmt.Errorf("list of the Leases of fleet %s: %s", r.cfg.Settings.Fleet, listed.Outcome)
	}
	for _, lease := range append(leases, listed.Leases...) {
		if err := protocol.CheckLease(r.cfg.Settings, lease); err != nil {
			return &ExitError{protocol.Exit{Reason: protocol.ReasonMismatch, Message: err.Error()}}
		}
	}
	observer{r}.note(listed.Leases...) // this session's first write replaces what an earlier one of this replica has written
	r.noteUnserved(ctx, listed.Leases)
	return nil
}
