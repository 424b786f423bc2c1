package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// faults are the faults that may occur in a run, and those that are occurring now.
type faults struct {
	w           *world
	on          bool
	kinds       []func()
	onlyOutages bool

	lossOneIn, repeatOneIn, refusalOneIn, lateOneIn, longCallOneIn int
	drift                                                          float64
	delayMost, lagMost                                             time.Duration
	cut, stuck, delayed, denied, shut                              map[*process]time.Duration // until when
}

// promises lists what the protocol relies on, and what the environment of a test breaks.
type promises struct {
	fenceFromAnswer  bool // the time of a send is taken when the answer arrives, which is waited for
	noCompare        bool // the API server does not compare resourceVersions
	noUID            bool // it does not compare UIDs, and creates what is missing
	staleReads       bool // reads are answered from a cache
	createdForgotten bool // that a session Lease was created is not stored
	idleAtOnce       bool // the process reports that nothing is in flight when something is
	lockForAll       bool // every process gets the file lock
	lossIsRefusal    bool // a write without an answer counts as one without effect
	quickRestore     bool // etcd is restored within less than the fence
	fastClocks       bool // clocks drift more than is allowed
	blindWall        bool // the wall clock stands still while the machine is suspended
}

// adjustment changes what was drawn for a run; nil changes nothing.
type adjustment func(w *world, f *faults)

// outagesOnly allows outages of the API server only.
func outagesOnly(w *world, f *faults) {
	*f = faults{
		w: w, onlyOutages: true, kinds: []func(){w.outage}, delayMost: f.delayMost, lagMost: f.lagMost, drift: f.drift, cut: f.cut,
		stuck: f.stuck, delayed: f.delayed, denied: f.denied, shut: f.shut,
	}
}

// handWrittenHolders makes users write holders into slot Leases, again and again, while watches are
// late and replicas start and leave.
func handWrittenHolders(w *world, f *faults) {
	f.kinds = []func(){w.writeHolder, w.writeHolder, w.writeHolder, w.writeHolder, w.stallWatch, w.pause, w.crash, w.scale}
}

// newFaults draws the kinds of faults of a run.
func newFaults(w *world) faults {
	f := faults{
		w: w, cut: map[*process]time.Duration{}, stuck: map[*process]time.Duration{}, delayed: map[*process]time.Duration{},
		denied: map[*process]time.Duration{}, shut: map[*process]time.Duration{},
		delayMost: 50 * time.Millisecond, lagMost: 100 * time.Millisecond, drift: 0.02,
	}
	if w.broken.fastClocks {
		f.drift = 0.6
	}
	// A wall clock that is set back while its machine is suspended hides the suspension from both
	// clocks: no run has both.
	clocks := w.setClock
	if w.chance(2) {
		clocks = w.sleep
	}
	for _, kind := range []func(){
		w.outage, w.pause, w.pause, clocks, w.crash, w.crash, w.replacePod, w.twin, w.cutOff, w.delayAnswers, w.stallWatch, w.breakWatch,
		w.deleteLease, w.editLease, w.writeHolder, w.restoreBackup, w.restart, w.restart, w.scale, w.deny, w.shut,
	} {
		if w.chance(3) {
			f.kinds = append(f.kinds, kind)
		}
	}
	if w.seed%4 == 0 {
		f.kinds = append(f.kinds, w.reportAccounts)
	}
	rates := []int{0, 0, 100, 20}
	f.lossOneIn, f.repeatOneIn = rates[w.random.IntN(4)], rates[w.random.IntN(4)]
	f.refusalOneIn, f.lateOneIn = rates[w.random.IntN(4)], rates[w.random.IntN(4)]
	f.longCallOneIn = rates[w.random.IntN(4)]
	if w.chance(3) {
		f.delayMost = 3 * time.Second
	}
	if w.chance(3) {
		f.lagMost = 5 * time.Second
	}
	return f
}

func (f *faults) lost(p *process) bool {
	return f.w.now < f.cut[p] || f.on && f.w.chance(f.lossOneIn)
}

// turnsAway reports whether a request is refused, and whether that is answered.
func (f *faults) turnsAway(p *process, req member.Request) (refused, answered bool) {
	if _, isSlot := member.SlotOfLease(fleetName, req.Name, f.w.slots); isSlot && req.Verb == member.Update && f.w.now < f.denied[p] {
		return true, f.w.chance(2)
	}
	refused = f.on && f.w.chance(f.refusalOneIn)
	return refused, refused
}

func (f *faults) repeated() bool { return f.on && f.w.chance(f.repeatOneIn) }

func (f *faults) delay() time.Duration {
	if !f.on {
		return f.w.between(0, 20*time.Millisecond)
	}
	if f.w.chance(f.lateOneIn) {
		return f.w.between(time.Second, 60*time.Second)
	}
	if f.w.chance(10) {
		return f.w.between(0, f.delayMost)
	}
	return f.w.between(0, 20*time.Millisecond)
}

// answer returns the delay of an answer.
func (f *faults) answer(p *process) time.Duration {
	return f.delay() + max(0, f.delayed[p]-f.w.now)
}

func (f *faults) lag(*process) time.Duration {
	if f.on && f.w.chance(10) {
		return f.w.between(0, f.lagMost)
	}
	return f.w.between(0, 20*time.Millisecond)
}

func (f *faults) watchStuck(p *process) bool {
	return f.w.now < f.cut[p] || f.w.now < f.stuck[p] || f.w.api.unavailable()
}

// clock returns the clock of a new process's machine: wall clocks differ by up to an hour.
func (f *faults) clock() clock {
	return clock{
		rate: 1 + f.drift*(2*f.w.random.Float64()-1), blind: f.w.broken.blindWall,
		wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(f.w.between(-time.Hour, time.Hour)),
	}
}

// begin lets faults occur until they are ended.
func (f *faults) begin() {
	f.on = true
	if len(f.kinds) == 0 {
		return
	}
	var next func()
	next = func() {
		if f.on {
			f.kinds[f.w.random.IntN(len(f.kinds))]()
			f.w.after(f.w.between(500*time.Millisecond, 30*time.Second), next)
		}
	}
	f.w.after(f.w.between(0, 60*time.Second), next)
}

// end ends all faults: of each replica that is wanted, one process runs; the others are gone.
func (f *faults) end() {
	w := f.w
	w.report("all faults end")
	f.on = false
	if w.api.backAt = 0; w.checker.restored != 0 && !w.broken.quickRestore {
		w.api.backAt = w.checker.restored + w.config.Fence + 2*time.Second
	}
	clear(f.cut)
	clear(f.stuck)
	clear(f.delayed)
	clear(f.denied)
	clear(f.shut)
	newest := map[*pod]bool{}
	for _, p := range slices.Backward(w.processes) {
		if p.mode == gone {
			continue
		}
		if newest[p.pod] || p.podUID != p.pod.uid || !p.pod.desired && !p.leaving {
			p.die()
			continue
		}
		newest[p.pod] = true
		p.resume()
	}
	desired := 0
	for _, name := range sortedPods(w.pods) {
		pod := w.pods[name]
		if pod.desired {
			desired++
		}
		if pod.desired && !newest[pod] {
			w.start(pod)
		}
	}
	if desired == 0 {
		w.join()
	}
}

// elect elects and deposes leaders from time to time, with all that may happen in client-go's
// election.
func (w *world) elect() {
	var leaders, others []*process
	for _, p := range w.processes {
		switch {
		case p.mode == gone:
		case p.leads:
			leaders = append(leaders, p)
		case p.mode == running && !p.machine.Suspended():
			others = append(others, p)
		}
	}
	depose := func(p *process) {
		p.leads = false
		w.report("%s does not lead any more", p.session)
		p.soon(0, func() { p.post(protocol.Deposed{}) })
	}
	for _, p := range leaders {
		if len(leaders) > 1 || p.machine.Suspended() && p.mode == running || w.faults.on && w.chance(30) {
			depose(p)
		}
	}
	if (len(leaders) == 0 && w.chance(2) || w.faults.on && w.chance(50)) && len(others) > 0 {
		p := others[w.random.IntN(len(others))]
		p.leads = true
		w.report("%s leads", p.session)
		p.post(protocol.Elected{})
	}
	w.after(w.between(time.Second, 5*time.Second), w.elect)
}

// ended starts the next process of a pod, as the kubelet does.
func (f *faults) ended(p *process) {
	w := f.w
	w.after(w.between(100*time.Millisecond, 5*time.Second), func() {
		if !p.pod.desired ||
			slices.ContainsFunc(w.processes, func(other *process) bool { return other.mode != gone && other.podUID == p.pod.uid }) {
			return
		}
		if p.leaving && p.podUID == p.pod.uid {
			p.pod.renew()
		}
		w.start(p.pod)
	})
}

func (p *pod) renew() {
	var name string
	var generation int
	_, _ = fmt.Sscanf(strings.ReplaceAll(p.uid, "/", " "), "%s %d", &name, &generation)
	p.uid = fmt.Sprintf("%s/%d", p.name, generation+1)
}

func sortedPods(pods map[string]*pod) []string {
	names := make([]string, 0, len(pods))
	for name := range pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// join adds one replica to the StatefulSet.
func (w *world) join() {
	for i := 0; ; i++ {
		name := fmt.Sprintf("r-%d", i)
		there := w.pods[name]
		if there == nil {
			w.pods[name] = &pod{name: name, uid: name + "/0", desired: true}
			w.start(w.pods[name])
			return
		}
		if !there.desired {
			there.desired = true
			if !slices.ContainsFunc(w.processes, func(p *process) bool { return p.pod == there && p.mode != gone }) {
				there.renew()
				w.start(there)
			}
			return
		}
	}
}

// anyProcess returns a process that lives.
func (w *world) anyProcess() *process {
	var alive []*process
	for _, p := range w.processes {
		if p.mode != gone {
			alive = append(alive, p)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[w.random.IntN(len(alive))]
}

// The kinds of faults.

func (w *world) outage() {
	w.api.makeUnavailable(w.between(time.Second, 90*time.Second))
}

func (w *world) pause() {
	p, d := w.anyProcess(), w.between(100*time.Millisecond, 60*time.Second)
	switch {
	case p == nil:
	case w.chance(2):
		p.trap = d
	default:
		p.stop()
		w.after(d, p.resume)
	}
}

func (w *world) sleep() {
	if p := w.anyProcess(); p != nil && p.mode == running {
		w.report("the machine of %s is suspended", p.session)
		p.stop()
		p.clock.sleep(w.now)
		w.after(w.between(time.Second, 60*time.Second), p.resume)
	}
}

func (w *world) crash() {
	if p := w.anyProcess(); p != nil {
		p.die()
	}
}

// replacePod creates a new pod of the same name while the old one's process may still run.
func (w *world) replacePod() {
	p := w.anyProcess()
	if p == nil || p.podUID != p.pod.uid || !p.pod.desired {
		return
	}
	w.report("pod %s is replaced by force", p.pod.name)
	p.pod.renew()
	switch w.random.IntN(3) {
	case 0:
		p.stop()
	case 1:
		w.faults.cut[p] = w.now + w.between(time.Second, 60*time.Second)
	}
	w.after(w.between(time.Second, 60*time.Second), p.die)
	w.start(p.pod)
}

// twin starts a second process in the same pod.
func (w *world) twin() {
	if p := w.anyProcess(); p != nil && p.pod.desired {
		twin := w.start(p.pod)
		if twin != nil {
			w.after(w.between(time.Second, 60*time.Second), twin.die)
		}
	}
}

// disturb begins a fault of one process that lasts from a second to the given time; until is when
// it ends, by process.
func (w *world) disturb(until map[*process]time.Duration, most time.Duration, what string) {
	if p := w.anyProcess(); p != nil {
		d := w.between(time.Second, most)
		w.report("%s %s for %v", p.session, what, d)
		until[p] = w.now + d
	}
}

func (w *world) cutOff() { w.disturb(w.faults.cut, time.Minute, "is disconnected") }

// delayAnswers delays the answers to a process, delivers them for a moment, and disconnects it.
func (w *world) delayAnswers() {
	if p := w.anyProcess(); p != nil {
		d := w.between(time.Second, 30*time.Second)
		w.report("the answers to %s are delayed for %v", p.session, d)
		w.faults.delayed[p] = w.now + d
		w.after(d+w.between(0, 200*time.Millisecond), func() {
			if w.faults.on {
				w.faults.cut[p] = w.now + w.between(time.Second, 60*time.Second)
			}
		})
	}
}

func (w *world) stallWatch() {
	w.disturb(w.faults.stuck, time.Minute, "receives no events of its watch")
}

// deny has writes of slot Leases by a process refused, or have no effect and no answer, while those
// of its session Lease succeed.
func (w *world) deny() { w.disturb(w.faults.denied, 2*time.Minute, "cannot write slot Leases") }

// shut prevents slots that a process acquires from opening.
func (w *world) shut() { w.disturb(w.faults.shut, 5*time.Minute, "cannot open slots") }

func (w *world) breakWatch() {
	if p := w.anyProcess(); p != nil && p.watch != nil {
		w.report("the watch of %s breaks", p.session)
		p.watch.close()
	}
}

// restoreBackup takes a backup, and restores it later. That is not possible while the API server
// runs; that it is unavailable for longer than the fence is a promise.
func (w *world) restoreBackup() {
	if w.api.backup != nil {
		return
	}
	w.report("etcd is backed up")
	w.api.save()
	w.after(w.between(5*time.Second, 60*time.Second), func() {
		if !w.faults.on {
			return
		}
		bump := w.chance(2)
		w.report("etcd is restored (later resourceVersions: %v)", bump)
		w.checker.restored, w.checker.epochs, w.checker.edits = w.now, map[string]int64{}, map[int]edit{}
		for _, p := range w.processes {
			clear(p.seen) // versions may be assigned again
		}
		if !w.broken.quickRestore {
			w.api.makeUnavailable(w.config.Fence + w.between(2*time.Second, 30*time.Second))
		}
		w.api.restore(bump)
	})
}

// restart is one step of a rolling restart.
func (w *world) restart() {
	if p := w.anyProcess(); p != nil && !p.leaving && p.mode == running {
		w.leave(p)
	}
}

func (w *world) leave(p *process) {
	w.report("%s is asked to leave", p.session)
	p.leaving = true
	p.post(protocol.Leaving{})
	w.after(90*time.Second, p.die) // the grace period
}

// scale removes a replica permanently, or adds one.
func (w *world) scale() {
	if w.chance(2) {
		w.join()
		return
	}
	if p := w.anyProcess(); p != nil && p.mode == running && !p.leaving {
		p.pod.desired = false
		w.leave(p)
	}
}

func (w *world) setClock() {
	if p := w.anyProcess(); p != nil {
		p.clock.wall = p.clock.wall.Add(w.between(-time.Hour, time.Hour))
		w.report("the wall clock of %s is set", p.session)
	}
}

// reportAccounts has a process report any state of two accounts at clouds, until it reports another
// one.
func (w *world) reportAccounts() {
	p := w.anyProcess()
	if p == nil {
		return
	}
	var accounts member.Accounts
	for _, key := range []string{"a", "b"} {
		account := member.Account{Key: key, Class: "n/" + key}
		for slot := range w.slots {
			if w.chance(2) {
				account.Slots = account.Slots.With(slot)
			}
		}
		switch w.random.IntN(4) {
		case 0, 1:
			accounts.Failing = append(accounts.Failing, account)
		case 2:
			account.Reached = true
			accounts.Asked = append(accounts.Asked, account)
		}
	}
	w.report("%s: accounts %s", p.session, accounts)
	p.post(protocol.Compared{Accounts: accounts})
}
