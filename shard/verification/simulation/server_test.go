package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// server is the API server with its etcd. What it stores is never changed, only replaced.
type server struct {
	w       *world
	leases  map[string]*coordinationv1.Lease
	version int64
	uids    int
	watches []*watch
	backAt  time.Duration // it is unavailable until then
	// before contains what a lagging cache shows, for a server that breaks its promise of consistent
	// reads.
	before map[string]*coordinationv1.Lease
	backup *backup
}

// backup is a snapshot of etcd.
type backup struct {
	leases  map[string]*coordinationv1.Lease
	version int64
}

func newServer(w *world) *server {
	return &server{w: w, leases: map[string]*coordinationv1.Lease{}, before: map[string]*coordinationv1.Lease{}, version: 100}
}

func (s *server) unavailable() bool { return s.w.now < s.backAt }

// makeUnavailable makes the server unavailable for a time, and sometimes breaks all its
// connections.
func (s *server) makeUnavailable(d time.Duration) {
	s.w.report("the API server is unavailable for %v", d)
	s.backAt = max(s.backAt, s.w.now+d)
	if s.w.chance(2) {
		s.breakWatches()
	}
}

// handle executes a request of a process; by is nil for users.
func (s *server) handle(by *process, req member.Request) (reply member.Reply) {
	reply.Outcome = member.Done
	stored := s.leases[req.Name]
	if req.Lease != nil && member.Transitions(req.Lease) < 0 {
		return member.Reply{Outcome: member.Refused} // it is invalid
	}
	switch req.Verb {
	case member.Get:
		if s.w.broken.staleReads && s.w.chance(2) {
			stored = s.before[req.Name]
		}
		if reply.Lease = stored; stored == nil {
			reply.Outcome = member.NotFound
		}
	case member.List:
		leases := s.leases
		if s.w.broken.staleReads && s.w.chance(2) {
			leases = s.before
		}
		reply.Leases = sorted(leases)
	case member.Create:
		if stored != nil {
			return member.Reply{Outcome: member.Exists}
		}
		reply.Lease = s.create(by, req)
	case member.Update:
		s.w.checker.preconditions(by, req)
		switch {
		case stored == nil && s.w.broken.noUID:
			reply.Lease = s.create(by, req) // as a PUT does
		case stored == nil:
			reply.Outcome = member.NotFound
		case req.Lease.UID != stored.UID && !s.w.broken.noUID, req.Lease.ResourceVersion != stored.ResourceVersion && !s.w.broken.noCompare:
			reply.Outcome = member.Conflict
		default:
			reply.Lease = s.commit(by, stored, req)
		}
	}
	return reply
}

func (s *server) create(by *process, req member.Request) *coordinationv1.Lease {
	s.uids++
	req.Verb = member.Create
	return s.commit(by, nil, req)
}

// commit stores a new version.
func (s *server) commit(by *process, stored *coordinationv1.Lease, req member.Request) *coordinationv1.Lease {
	l := req.Lease.DeepCopy()
	l.UID = types.UID("uid-" + strconv.Itoa(s.uids))
	if stored != nil {
		l.UID = stored.UID
	}
	if s.w.broken.createdForgotten {
		member.Annotate(l, v1alpha1.AnnotationCreated, "")
	}
	s.version++
	l.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.w.checker.written(by, stored, l, req)
	s.store(l.Name, l)
	s.announce(notice{lease: l})
	return l
}

func (s *server) store(name string, l *coordinationv1.Lease) {
	if old := s.leases[name]; old != nil {
		s.before[name] = old
	} else {
		delete(s.before, name)
	}
	if l == nil {
		delete(s.leases, name)
		return
	}
	s.leases[name] = l
}

// remove deletes a Lease as a user does with kubectl delete.
func (s *server) remove(name string) {
	l := s.leases[name]
	if l == nil {
		return
	}
	s.version++
	s.store(name, nil)
	gone := l.DeepCopy()
	gone.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.announce(notice{lease: gone, gone: true})
}

// edit changes a Lease as a user does with kubectl edit.
func (s *server) edit(name string, change func(*coordinationv1.Lease)) {
	if stored := s.leases[name]; stored != nil {
		l := stored.DeepCopy()
		change(l)
		s.commit(nil, stored, member.Request{Lease: l})
	}
}

func (s *server) save() { s.backup = &backup{leases: maps.Clone(s.leases), version: s.version} }

// restore restores the backup. All connections break. Whether resourceVersions are restored too
// depends on the way of restoring.
func (s *server) restore(bump bool) {
	if s.backup == nil {
		return
	}
	s.leases, s.before = maps.Clone(s.backup.leases), map[string]*coordinationv1.Lease{}
	if bump {
		s.version += 1000
	} else {
		s.version = s.backup.version
	}
	s.breakWatches()
}

func (s *server) breakWatches() {
	for _, watch := range slices.Clone(s.watches) {
		watch.close()
	}
}

func (s *server) announce(n notice) {
	for _, watch := range s.watches {
		watch.add(n)
	}
}

func sorted(leases map[string]*coordinationv1.Lease) []*coordinationv1.Lease {
	all := make([]*coordinationv1.Lease, 0, len(leases))
	for _, l := range leases {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *coordinationv1.Lease) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func brief(l *coordinationv1.Lease) string {
	if l == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%s@%s %s holder=%q", l.Name, l.ResourceVersion, l.UID, member.Holder(l))
	for _, key := range []string{
		v1alpha1.AnnotationAssignedReplica, v1alpha1.AnnotationQuarantine, v1alpha1.AnnotationLeaseUID, v1alpha1.AnnotationConfirmed,
		v1alpha1.AnnotationLeaving, v1alpha1.AnnotationCreated,
	} {
		if value := l.Annotations[key]; value != "" {
			text += fmt.Sprintf(" %s=%s", strings.TrimPrefix(key, v1alpha1.FleetDomain), value)
		}
	}
	if l.Spec.RenewTime != nil {
		text += " renewed " + l.Spec.RenewTime.Format("04:05.000000")
	}
	return text
}

// notice is an event of a watch.
type notice struct {
	lease *coordinationv1.Lease
	gone  bool
}

// watch is a connection over which a process receives changes, all of them, in order, and some time
// later.
type watch struct {
	w      *world
	p      *process
	queue  []notice
	ready  bool // the list before it has been delivered
	pumped bool // the next delivery is scheduled
	closed bool
}

func (c *watch) add(n notice) {
	c.queue = append(c.queue, n)
	c.pump()
}

// pump schedules the next delivery.
func (c *watch) pump() {
	if c.pumped || c.closed || !c.ready || len(c.queue) == 0 {
		return
	}
	c.pumped = true
	c.w.after(c.w.faults.lag(c.p), c.deliver)
}

func (c *watch) deliver() {
	c.pumped = false
	if c.closed {
		return
	}
	if c.w.faults.watchStuck(c.p) {
		c.pumped = true
		c.w.after(500*time.Millisecond, c.deliver)
		return
	}
	for _, n := range c.queue { // what has arrived meanwhile is delivered with it
		c.p.notice(n)
	}
	c.queue = c.queue[:0]
	c.pump()
}

// close ends the connection. After a while the process lists and watches again.
func (c *watch) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.w.api.watches = slices.DeleteFunc(c.w.api.watches, func(other *watch) bool { return other == c })
	if c.p.mode != gone {
		c.w.after(c.w.between(10*time.Millisecond, 2*time.Second), c.p.list)
	}
}
