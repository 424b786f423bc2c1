package simulation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// beat is the longest time between two steps, as in the product.
const beat = time.Second

// pod is where processes of one replica run, normally one after the other.
type pod struct {
	name    string
	uid     string
	desired bool // by the StatefulSet
}

// mode is the mode of a process.
type mode int

const (
	running mode = iota
	stopped
	gone
)

// process is one session: the real protocol.Session, with a process around it that does what the
// product does.
type process struct {
	w       *world
	pod     *pod
	podUID  string
	session string
	clock   clock
	machine *protocol.Session
	all     *protocol.Session // the same, but it decides all slots in each step; nil: nothing is compared
	mode    mode
	resumed time.Duration // when it was last stopped

	mail     []protocol.Event
	stepping bool
	deferred []func() // what a stopped process will do when it is resumed
	timer    int      // the generation of the timer that counts
	watch    *watch

	leads  bool
	active bool // it has been
	// As read after the last step.
	fence    member.Moment
	entitled []bool
	epochs   []int64
	seen     []int64 // the version of each slot Lease that the session has observed

	work    []work
	weighed time.Duration
	leaving bool
	// trap stops the process for that long between its next check and the send.
	trap        time.Duration
	suspensions int
}

// start runs a new process in a pod.
func (w *world) start(p *pod) *process {
	session := member.Identity(p.name, suffix(len(w.processes)))
	lockFree := !slices.ContainsFunc(w.processes, func(other *process) bool { return other.mode != gone && other.podUID == p.uid })
	settings := protocol.Settings{
		Config: w.config, Assignment: w.plan, Fleet: fleetName, Namespace: namespace, Replica: p.name, Session: session, PodUID: p.uid,
		Exclusive: lockFree || w.broken.lockForAll, Slots: w.slots, ShardBy: string(assignment.ByDeployment), RingVersion: assignment.RingVersion,
	}
	machine, err := protocol.NewSession(settings)
	if err != nil {
		w.checker.fail("settings: %v", err)
		return nil
	}
	all := w.decidesAll(settings)
	c := &process{
		w: w, all: all, pod: p, podUID: p.uid, session: session, machine: machine, resumed: w.now, clock: w.faults.clock(),
		entitled: make([]bool, w.slots), epochs: make([]int64, w.slots),
		seen: make([]int64, w.slots), work: make([]work, w.slots),
	}
	w.processes = append(w.processes, c)
	w.report("%s starts in pod %s (lock %v)", session, p.uid, settings.Exclusive)
	if w.lists != nil {
		w.lists.begin(c)
	}
	c.post(protocol.Started{})
	c.list()
	c.soon(w.between(0, 500*time.Millisecond), c.startCalls)
	return c
}

func suffix(n int) string {
	text := strconv.FormatInt(int64(n), 36)
	return strings.Repeat("0", 5-len(text)) + text
}

func (p *process) moment() member.Moment { return p.clock.read(p.w.now) }

// soon does something in the process after a while: if it is stopped then, once it is resumed, and
// never if it is gone.
func (p *process) soon(d time.Duration, do func()) {
	p.w.after(d, func() {
		switch p.mode {
		case running:
			do()
		case stopped:
			p.deferred = append(p.deferred, do)
		case gone:
		}
	})
}

// post adds an event to the mailbox.
func (p *process) post(e protocol.Event) {
	p.mail = append(p.mail, e)
	p.read()
}

// read processes the mailbox.
func (p *process) read() {
	if p.stepping {
		return
	}
	p.stepping = true
	for len(p.mail) > 0 && p.mode == running && p.w.checker.violation == "" {
		event := p.mail[0]
		p.mail = p.mail[1:]
		p.step(event)
	}
	p.stepping = false
}

func (p *process) step(event protocol.Event) {
	now := p.moment()
	out := p.machine.Step(now, event)
	p.compare(now, event, out)
	p.look(event)
	for _, change := range out.Changes {
		p.w.report("%s: slot %d %s (epoch %d, ticket %d)", p.session, change.Slot, change.Kind, change.Epoch, change.Ticket)
		if change.Kind == protocol.Suspended {
			p.suspensions++
		}
		p.end(change)
	}
	p.follow(out)
	p.w.checker.stepped(p)
	if out.Exit != nil {
		p.exit(out.Exit)
		return
	}
	for _, request := range out.Requests {
		p.sendRequest(request)
	}
	for _, change := range out.Changes {
		p.begin(change)
	}
	for i, change := range out.Changes {
		if !slices.ContainsFunc(out.Changes[i+1:], func(later protocol.Change) bool { return later.Slot == change.Slot }) {
			p.end(change) // the last change that ends something is applied last
		}
		if change.Ticket != 0 {
			p.onIdle(change.Slot, func() { p.post(protocol.Idle{Slot: change.Slot, Ticket: change.Ticket}) })
		}
	}
	p.arm(out.WakeAt)
}

// look records which versions of slot Leases an event has shown.
func (p *process) look(event protocol.Event) {
	var leases []*coordinationv1.Lease
	switch e := event.(type) {
	case protocol.Seen:
		leases = append(leases, e.Lease)
	case protocol.Gone:
		leases = append(leases, e.Lease)
	case protocol.Listed:
		leases = e.Leases
	case protocol.Replied:
		leases = append(slices.Clone(e.Leases), e.Lease)
	}
	for _, l := range leases {
		if l == nil {
			continue
		}
		slot, ok := member.SlotOfLease(fleetName, l.Name, p.w.slots)
		version, err := strconv.ParseInt(l.ResourceVersion, 10, 64)
		if ok && err == nil {
			p.seen[slot] = max(p.seen[slot], version)
		}
	}
}

// follow copies what the session reports of its entitlements.
func (p *process) follow(out protocol.Output) {
	p.fence = p.machine.Fence()
	p.active = p.active || !p.machine.Suspended()
	for _, slot := range out.Slots {
		p.epochs[slot], p.entitled[slot] = p.machine.Entitled(slot)
	}
	for slot := range p.entitled {
		if epoch, entitled := p.machine.Entitled(slot); out.Exit == nil && (entitled != p.entitled[slot] || entitled && epoch != p.epochs[slot]) {
			p.w.checker.fail("%s: its entitlement to slot %d has changed, and the step does not name the slot", p.session, slot)
		}
	}
}

// passed reports whether the fence has passed, by the process's own clock.
func (p *process) passed() bool { return p.fence.IsZero() || p.moment().Reached(p.fence) }

// owns is the check before each side effect.
func (p *process) owns(slot int) bool { return p.mode != gone && p.entitled[slot] && !p.passed() }

// holds reports whether the process holds a slot.
func (p *process) holds() bool { return slices.Contains(p.entitled, true) }

// arm sets the timer.
func (p *process) arm(at member.Moment) {
	wait := beat
	if !at.IsZero() {
		wait = min(wait, max(at.Since(p.moment()), 0))
	}
	p.timer++
	generation := p.timer
	p.soon(p.clock.until(wait), func() {
		if generation == p.timer {
			p.post(protocol.Woke{})
		}
	})
}

// sendRequest sends a request: first the time is taken, then the need is checked, then the request
// is sent. A process can be stopped in between.
func (p *process) sendRequest(req member.Request) {
	p.call(req, func() {}, func(reply member.Reply) { p.post(protocol.Replied{Reply: reply}) })
}

// call sends a request and calls answer once.
func (p *process) call(req member.Request, atServer func(), answer func(member.Reply)) {
	sent := p.moment()
	open := true
	once := func(reply member.Reply) {
		if !open {
			return
		}
		open = false
		reply.ID, reply.Sent = req.ID, sent
		if p.w.broken.fenceFromAnswer {
			reply.Sent = p.moment()
		}
		if p.w.broken.lossIsRefusal && reply.Outcome == member.Unanswered && req.Verb == member.Update {
			reply.Outcome = member.Refused
		}
		if p.w.story != nil && (reply.Outcome != member.Done || req.Verb != member.Update) {
			p.w.report("%s: %s %s: %s %s", p.session, req.Verb, req.Name, reply.Outcome, brief(reply.Lease))
		}
		answer(reply)
	}
	if !p.has(req.Need) {
		p.soon(0, func() { once(member.Reply{Outcome: member.Refused}) })
		return
	}
	p.soon(p.w.between(0, time.Millisecond), func() {
		p.w.transmit(p, req, atServer, func(reply member.Reply) { p.soon(0, func() { once(reply) }) })
	})
	timeout := p.w.config.RequestTimeout
	if p.w.broken.fenceFromAnswer {
		timeout = time.Minute
	}
	p.soon(p.clock.until(timeout), func() { once(member.Reply{Outcome: member.Unanswered}) })
}

func (p *process) has(need member.Need) bool {
	switch need {
	case member.NeedNothing:
		return true
	case member.NeedFence:
		return !p.passed()
	case member.NeedLeadership:
		return p.leads && !p.passed()
	}
	return false
}

// transmit is the network between a process and the API server: it delays, loses and repeats.
func (w *world) transmit(p *process, req member.Request, atServer func(), answer func(member.Reply)) {
	if w.faults.lost(p) {
		return
	}
	w.after(w.faults.delay(), func() {
		if w.api.unavailable() {
			return
		}
		if refused, answered := w.faults.turnsAway(p, req); refused {
			if answered {
				w.after(w.faults.delay(), func() { answer(member.Reply{Outcome: member.Refused}) })
			}
			return
		}
		reply := w.api.handle(p, req)
		atServer()
		if w.faults.repeated() {
			w.after(w.faults.delay(), func() {
				if !w.api.unavailable() {
					w.api.handle(p, req)
				}
			})
		}
		if !w.faults.lost(p) {
			w.after(w.faults.answer(p), func() { answer(reply) })
		}
	})
}

// list lists, and begins to watch.
func (p *process) list() {
	if p.mode == gone {
		return
	}
	if p.mode == stopped {
		p.deferred = append(p.deferred, p.list)
		return
	}
	connection := &watch{w: p.w, p: p}
	p.call(member.Request{Verb: member.List, Need: member.NeedNothing}, func() {
		if !connection.closed {
			p.w.api.watches = append(p.w.api.watches, connection) // shows what follows the list
		}
	}, func(reply member.Reply) {
		if reply.Outcome != member.Done {
			connection.closed = true
			p.w.api.watches = slices.DeleteFunc(p.w.api.watches, func(other *watch) bool { return other == connection })
			p.soon(time.Second, p.list)
			return
		}
		p.post(protocol.Listed{Leases: reply.Leases})
		connection.ready, p.watch = true, connection
		connection.pump()
	})
}

// notice receives an event of the watch. A stopped process receives it later.
func (p *process) notice(n notice) {
	if n.gone {
		p.post(protocol.Gone{Lease: n.lease})
		return
	}
	p.post(protocol.Seen{Lease: n.lease})
}

// stop and resume are SIGSTOP and SIGCONT.
func (p *process) stop() {
	if p.mode == running {
		p.mode = stopped
		p.w.report("%s is stopped", p.session)
	}
}

func (p *process) resume() {
	if p.mode != stopped {
		return
	}
	p.clock.wakeUp(p.w.now)
	p.mode, p.resumed = running, p.w.now
	p.w.report("%s is resumed", p.session)
	waiting := p.deferred
	p.deferred = nil
	p.w.random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	if p.w.chance(2) {
		p.read()
	}
	for _, do := range waiting {
		p.soon(p.w.between(0, 20*time.Millisecond), do)
	}
	p.soon(time.Millisecond, p.read)
}

// exit ends the process because its session requires it, die for any other reason.
func (p *process) exit(e *protocol.Exit) {
	p.w.report("%s exits: %s (empty %v): %s", p.session, e.Reason, e.Empty, e.Message)
	p.w.checker.exited(p, e)
	p.remove()
}

func (p *process) die() {
	if p.mode != gone {
		p.w.report("%s is killed", p.session)
		p.remove()
	}
}

// remove removes a process. What it has sent may still arrive.
func (p *process) remove() {
	p.mode, p.leads = gone, false
	if p.watch != nil {
		p.watch.close()
	}
	for slot := range p.entitled {
		p.entitled[slot] = false
	}
	p.w.faults.ended(p)
}
