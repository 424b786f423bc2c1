package drain

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// world is a small model of all that a drain has to do with. Passes run over it as the controller
// runs them: they see it late, and are broken off anywhere.
type world struct {
	t         *rapid.T
	facts     Facts // as it is; the memory is that of the process
	shown     Facts // as the watches show it
	state     State
	faultless bool // no more faults
	// refused is when pods were refused first.
	refused map[types.UID]time.Time
	// written is how many versions of budgets there were, and counted are those that were counted
	// since the process began.
	written int
	counted map[types.UID]bool
}

func draw[T any](w *world, name string, from ...T) T { return rapid.SampledFrom(from).Draw(w.t, name) }

func (w *world) chance(name string, of int) bool {
	return rapid.IntRange(1, of).Draw(w.t, name) == 1
}

func newWorld(t *rapid.T) *world {
	s := newStory()
	w := &world{t: t, facts: s.facts, refused: map[types.UID]time.Time{}, counted: map[types.UID]bool{}}
	w.facts.Node.Spec.Unschedulable = w.chance("cordoned", 2)
	w.facts.Settings.VolumeParallelism = rapid.IntRange(1, 4).Draw(t, "parallelism")
	w.facts.Settings.SeveralBudgets = !w.chance("one budget", 4)
	w.facts.Order.Timeout = draw(w, "timeout", 0, time.Minute, 20*time.Minute)
	w.facts.Order.EvictTime = draw(w, "evict time", 0, time.Minute, time.Hour)
	w.facts.Order.Force, w.facts.Order.Stays = w.chance("force", 10), w.chance("stays", 3)
	w.facts.Order.IsShut = w.facts.Order.Stays && w.chance("shut", 2)
	if w.chance("not ready", 5) {
		w.facts.Node.Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(born),
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "budgets") {
		s.budget(fmt.Sprint("budget", i), options{
			"app": fmt.Sprint(i % 2), "allowed": fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "allowed")), "healthy": "2", "desired": "1",
			"expected": "2",
		})
	}
	w.facts.Budgets = s.facts.Budgets
	s.volume("v3", options{"driver": "unheard-of"})
	s.volume("v4", options{"driver": "unheard-of", "id": "disk-4"})
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		o := options{"priority": fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "priority")), "app": fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "app"))}
		if owner := draw(w, "owner", "", "StatefulSet", "ReplicaSet", "DaemonSet"); owner != "" {
			o["owner"] = owner
		}
		if w.chance("volumes", 2) {
			o["volumes"] = fmt.Sprint("v", rapid.IntRange(0, 5).Draw(t, "volume"))
			s.attached(o["volumes"], nil)
		}
		s.pod(fmt.Sprint("pod", i), o)
	}
	w.facts.Pods, w.facts.Volumes = s.facts.Pods, s.facts.Volumes
	w.facts.Sight = Unseen
	w.reportAttached()
	w.watch()
	return w
}

// reportAttached has the Node say what is attached to it.
func (w *world) reportAttached() {
	node := w.facts.Node.DeepCopy()
	node.Status.VolumesAttached = nil
	for _, a := range w.facts.Volumes.Attachments {
		if pv := w.facts.Volumes.PVs[attachmentKey(a)]; a.Spec.NodeName == node.Name && pv != nil {
			name := "kubernetes.io/csi/" + pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle
			node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
		}
	}
	w.facts.Node = node
}

// watch has the watches show everything as it is.
func (w *world) watch() {
	w.shown = w.facts
	w.shown.Pods = nil
	for _, p := range w.facts.Pods {
		w.shown.Pods = append(w.shown.Pods, p.DeepCopy())
	}
	w.shown.Budgets = nil
	for _, b := range w.facts.Budgets {
		w.shown.Budgets = append(w.shown.Budgets, b.DeepCopy())
	}
	w.shown.Volumes.Attachments = nil
	for _, a := range w.facts.Volumes.Attachments {
		w.shown.Volumes.Attachments = append(w.shown.Volumes.Attachments, a.DeepCopy())
	}
}

// seen are the facts of a pass that begins.
func (w *world) seen() Facts {
	f := w.shown
	f.Now, f.Sight, f.Memory, f.Live, f.Order = w.facts.Now, w.facts.Sight, w.facts.Memory, false, w.facts.Order
	f.Node, f.FreeDetaches = w.facts.Node, rapid.IntRange(0, MaxDetaches).Draw(w.t, "free")
	if w.faultless {
		f.FreeDetaches = MaxDetaches
	}
	if w.chance("blind", 3) {
		f.Blind = "no route to host"
	}
	return f
}

// pass runs one pass and returns when the next one is due.
func (w *world) pass() time.Duration {
	f := w.seen()
	for range 32 {
		v := Decide(f)
		if diff := w.check(f, v); diff != "" {
			w.t.Fatalf("%s\nverdict: %+v", diff, v)
		}
		if !w.faultless && w.chance("dies", 15) {
			w.facts.Memory, w.facts.Sight, w.counted = Memory{}, Unseen, map[types.UID]bool{}
			return time.Millisecond
		}
		w.facts.Memory = v.Memory
		switch v.Do {
		case Rest:
			w.state = v.State
			return v.Wake
		case Cordon:
			node := w.facts.Node.DeepCopy()
			node.Spec.Unschedulable = true
			w.facts.Node, f.Node, f.Live = node, node, false
		case List:
			f.Pods, f.Live = slices.Clone(w.facts.Pods), true
			w.facts.Sight = max(w.facts.Sight, Listed)
		case Watch:
			w.facts.Sight = draw(w, "sight", Awaited, Watched)
			if w.faultless {
				w.facts.Sight = Watched
			}
		case RequestRecount:
			w.mark(v)
		case Remove:
			w.remove(v)
		}
		f.Sight, f.Memory = w.facts.Sight, w.facts.Memory
	}
	w.t.Fatal("32 actions and no end of the pass")
	return 0
}

// check returns the guarantee that the verdict breaks.
func (w *world) check(f Facts, v Verdict) string {
	isForced := f.Order.Force || !f.Now.Before(f.Order.deadline()) ||
		!isReadyNode(f.Node) && !f.Now.Before(born.Add(unhealthyTime))
	if v.Do == Rest && v.State == Drained {
		switch left := leaving(w.facts.Pods); {
		case isForced:
			return "drained, although it is forced"
		case len(left) > 0:
			return fmt.Sprintf("drained, and %s is left", left[0].Name)
		}
		for _, a := range w.facts.Volumes.Attachments {
			if a.Spec.NodeName == "n" && !slices.ContainsFunc(f.Pods, func(p *corev1.Pod) bool {
				return slices.ContainsFunc(volumesOf(f, p), func(v volume) bool { return v.key == attachmentKey(a) })
			}) {
				return fmt.Sprintf("drained, and %s is attached", attachmentKey(a))
			}
		}
	}
	switch {
	case v.Do != Rest && v.Do != Cordon && v.Do != List && !f.Node.Spec.Unschedulable && !f.Order.IsShut:
		return "something is done before the Node is cordoned"
	case f.Order.IsShut && v.Do == Cordon:
		return "a Node is cordoned that something else keeps pods from"
	case f.Order.Stays && len(v.Attachments) > 0:
		return "a volume is taken from a VM that stays"
	case f.Order.Stays && v.Do == Rest && v.State == GivenUp && v.Progress.Left == 0 && len(leaving(w.facts.Pods)) > 0:
		return "given up as if all pods had left"
	}
	if v.Do == Rest && v.State == GivenUp && !isForced && v.Cause != CauseVolumes {
		return "given up for no reason"
	}
	if v.Do == Rest && v.State == Draining && v.Wake == 0 {
		return "it waits without end"
	}
	if f.Blind != "" && v.Do == Rest && v.State == Draining {
		switch since := f.Memory.BlindSince; {
		case since.IsZero() && v.Wake > blindTime:
			return "no later check whether objects can be watched again"
		case !since.IsZero() && !f.Now.Before(since.Add(blindTime)) && (!v.Progress.IsStuck() || v.Progress.String() == ""):
			return "objects cannot be watched, and that is not reported"
		}
	}
	if diff := checkBlocked(f, v); diff != "" {
		return diff
	}
	return w.checkRemovals(f, v, isForced)
}

// checkBlocked checks the reported reasons that block pods: never a disruption that was taken for
// the pod itself. A budget that is about to be counted holds all of its pods, regardless of what
// was taken from it.
func checkBlocked(f Facts, v Verdict) string {
	for _, h := range v.Progress.Blocked {
		for _, b := range f.Budgets {
			if _, taken := b.Status.DisruptedPods[h.Pod.Name]; taken && !isStale(b) && slices.Contains(h.Budgets, b.Namespace+"/"+b.Name) {
				return fmt.Sprintf("%s is held by what was taken from %s for it", h.Pod.Name, b.Name)
			}
		}
	}
	return ""
}

func (w *world) checkRemovals(f Facts, v Verdict, isForced bool) string {
	moving, last := v.Moving, int32(1<<30)
	for _, r := range v.Pods {
		switch {
		case stays(r.Pod):
			return r.Pod.Name + " is to stay"
		case r.How == Delete && !isForced && w.isEarly(f, r.Pod):
			return r.Pod.Name + " is deleted before its time"
		case r.How != Delete && isForced:
			return r.Pod.Name + " is given grace"
		case r.How != Delete && f.Now.Before(f.Memory.Attempts[r.Pod.UID].NotBefore):
			return r.Pod.Name + " is tried again before the retryAfter of the server"
		case slices.ContainsFunc(r.Budgets, func(b *policyv1.PodDisruptionBudget) bool { return !w.counted[b.UID] }):
			return r.Pod.Name + " is removed before all of its budgets were counted"
		case priority(r.Pod) > last:
			return r.Pod.Name + " is removed after one of lower priority"
		case r.How == Delete: // it waits for no volume but for all those that move in the cluster
		case r.Moves > 0 && moving >= f.Settings.VolumeParallelism:
			return fmt.Sprintf("%s begins to move volumes while %d do", r.Pod.Name, moving)
		case r.Moves > 0 && moving > 0 && usesUnknown(f, r.Pod):
			return fmt.Sprintf("%s begins to move a volume of an unknown driver while %d move", r.Pod.Name, moving)
		}
		last, moving = priority(r.Pod), moving+r.Moves
	}
	if moving-v.Moving > f.FreeDetaches {
		return fmt.Sprintf("%d volumes begin to move where %d may", moving-v.Moving, f.FreeDetaches)
	}
	if len(v.Attachments) > f.FreeDetaches {
		return fmt.Sprintf("%d attachments are deleted where %d may be", len(v.Attachments), f.FreeDetaches)
	}
	return checkOverdue(f, v)
}

// isEarly reports whether a pod has been refused for a shorter time than its machine allows. One
// with several budgets is not evicted.
func (w *world) isEarly(f Facts, pod *corev1.Pod) bool {
	since, isRefused := w.refused[pod.UID]
	if len(guards(f, pod)) > 1 { // it may have been held before it was asked for
		since, isRefused = f.Order.Since, true
	}
	return !isRefused || f.Now.Before(since.Add(f.Order.EvictTime))
}

func usesUnknown(f Facts, pod *corev1.Pod) bool {
	return slices.ContainsFunc(volumesOf(f, pod), func(v volume) bool { return !v.known })
}

// remove carries a verdict out as an API server would.
func (w *world) remove(v Verdict) {
	attempts := maps.Clone(v.Memory.Attempts)
	if attempts == nil {
		attempts = map[types.UID]Attempt{}
	}
	for _, r := range v.Pods {
		attempts[r.Pod.UID] = w.removePod(r)
		if _, before := w.refused[r.Pod.UID]; !before && r.How != Delete && !attempts[r.Pod.UID].Accepted {
			w.refused[r.Pod.UID] = w.facts.Now
		}
	}
	for _, a := range v.Attachments {
		if !w.faultless && w.chance("refuses", 5) {
			attempts[a.UID] = Refused(w.facts.Now, Delete, false, 0, "no")
			continue
		}
		attempts[a.UID] = Accepted(attempts[a.UID], w.facts.Now, Delete, "")
		w.changeAttachment(a, func(a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: w.facts.Now} })
	}
	w.facts.Memory.Attempts = attempts
}

// mark marks budgets as an API server would have it, which refuses versions that are not the last.
func (w *world) mark(v Verdict) {
	for _, marked := range v.Budgets {
		i := slices.IndexFunc(w.facts.Budgets, func(b *policyv1.PodDisruptionBudget) bool { return b.UID == marked.UID })
		switch {
		case w.facts.Budgets[i].ResourceVersion != marked.ResourceVersion:
			w.facts.Memory = w.facts.Memory.RequestFailed(marked.UID, "")
		case !w.faultless && w.chance("is not marked", 5):
			w.facts.Memory = w.facts.Memory.RequestFailed(marked.UID, "no")
		default:
			w.changeBudget(i, func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 })
		}
	}
}

// count has budgets counted that are marked, some of them.
func (w *world) count(some func(string, int) bool) {
	for i, b := range w.facts.Budgets {
		if isStale(b) && some("is counted", 2) {
			w.counted[b.UID] = true
			w.changeBudget(i, func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = b.Generation })
		}
	}
}

func (w *world) changeBudget(i int, change func(*policyv1.PodDisruptionBudget)) {
	w.facts.Budgets = slices.Clone(w.facts.Budgets)
	b := w.facts.Budgets[i].DeepCopy()
	w.written++
	b.ResourceVersion = fmt.Sprint("w", w.written)
	change(b)
	w.facts.Budgets[i] = b
}

func (w *world) removePod(r Removal) Attempt {
	i := slices.IndexFunc(w.facts.Pods, func(p *corev1.Pod) bool { return p.UID == r.Pod.UID })
	if i < 0 {
		return Accepted(w.facts.Memory.Attempts[r.Pod.UID], w.facts.Now, r.How, "")
	}
	pod := w.facts.Pods[i].DeepCopy()
	blockers := blocking(pod, guards(w.facts, pod))
	switch {
	case !w.faultless && w.chance("refuses", 5):
		return Refused(w.facts.Now, r.How, false, 0, "no")
	case r.How == Take && len(blockers) == 0 && w.chance("is broken off", 2):
		w.takeDisruption(r.Budgets[0].Name, pod.Name)
		return Refused(w.facts.Now, r.How, true, 0, "conflict")
	case r.How != Delete && len(blockers) > 0:
		return Refused(w.facts.Now, r.How, true, draw(w, "retry after", 0, 10*time.Second), "no")
	case r.How == Delete && w.chance("finalizer", 3):
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: w.facts.Now}, new(int64(0))
		w.facts.Pods = slices.Clone(w.facts.Pods)
		w.facts.Pods[i] = pod
	case r.How == Delete:
		w.facts.Pods = slices.Delete(slices.Clone(w.facts.Pods), i, i+1)
	default:
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: w.facts.Now}, new(int64(30))
		w.facts.Pods = slices.Clone(w.facts.Pods)
		w.facts.Pods[i] = pod
		for j, b := range w.facts.Budgets {
			if slices.ContainsFunc(guards(w.facts, r.Pod), func(g *policyv1.PodDisruptionBudget) bool { return g.Name == b.Name }) {
				w.changeBudget(j, func(b *policyv1.PodDisruptionBudget) {
					b.Status.DisruptionsAllowed = max(0, b.Status.DisruptionsAllowed-1)
				})
			}
		}
	}
	return Accepted(w.facts.Memory.Attempts[r.Pod.UID], w.facts.Now, r.How, "")
}

// takeDisruption has one of several budgets give a disruption for a pod that then stays.
func (w *world) takeDisruption(budget, pod string) {
	for i, b := range w.facts.Budgets {
		if _, taken := b.Status.DisruptedPods[pod]; b.Name != budget || taken {
			continue
		}
		b = b.DeepCopy()
		b.Status.DisruptionsAllowed--
		b.Status.DisruptedPods = map[string]metav1.Time{pod: metav1.NewTime(w.facts.Now)}
		w.facts.Budgets = slices.Clone(w.facts.Budgets)
		w.facts.Budgets[i] = b
	}
}

func (w *world) changeAttachment(a *storagev1.VolumeAttachment, f func(*storagev1.VolumeAttachment)) {
	for i, was := range w.facts.Volumes.Attachments {
		if was.UID == a.UID {
			w.facts.Volumes.Attachments = slices.Clone(w.facts.Volumes.Attachments)
			w.facts.Volumes.Attachments[i] = was.DeepCopy()
			f(w.facts.Volumes.Attachments[i])
		}
	}
}

// happen has something of the world go on.
func (w *world) happen() {
	switch rapid.IntRange(0, 4).Draw(w.t, "happens") {
	case 0:
		w.endPods(w.chance)
	case 1:
		w.detachIdle(w.chance)
	case 2:
		if len(w.facts.Budgets) > 0 {
			i := rapid.IntRange(0, len(w.facts.Budgets)-1).Draw(w.t, "budget")
			w.changeBudget(i, func(b *policyv1.PodDisruptionBudget) {
				b.Status.DisruptionsAllowed = int32(rapid.IntRange(0, 1).Draw(w.t, "allowed"))
			})
		}
		w.count(w.chance)
	case 3:
		w.reportAttached()
	case 4:
		w.watch()
	}
}

// endPods has pods go that are ending, some of them.
func (w *world) endPods(some func(string, int) bool) {
	var left []*corev1.Pod
	for _, p := range w.facts.Pods {
		if p.DeletionTimestamp == nil || wasForced(p) || !some("ends", 2) {
			left = append(left, p)
		}
	}
	w.facts.Pods = left
}

// detachIdle has volumes go that no pod uses, some of them.
func (w *world) detachIdle(some func(string, int) bool) {
	var left []*storagev1.VolumeAttachment
	for _, a := range w.facts.Volumes.Attachments {
		used := slices.ContainsFunc(w.facts.Pods, func(p *corev1.Pod) bool {
			return slices.ContainsFunc(ClaimsOf(p), func(c types.NamespacedName) bool { return c.Name == attachmentKey(a) })
		})
		if used || !some("detaches", 2) {
			left = append(left, a)
		}
	}
	w.facts.Volumes.Attachments = left
}

// rounds of rapid's 100 worlds each: what only one in a thousand shows is found.
const rounds = 100

func TestEveryDrainKeepsItsPromises(t *testing.T) {
	worlds.Check(t, rounds, aDrain)
}

func aDrain(t *rapid.T) {
	w := newWorld(t)
	for range rapid.IntRange(0, 40).Draw(t, "steps") {
		if w.state.Ended() {
			return
		}
		if w.chance("goes on", 2) {
			w.happen()
			continue
		}
		w.facts.Now = w.facts.Now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
		w.pass()
	}
	w.settle()
}

// settle ends all faults. Pods and volumes may go or stay; the drain ends in any case, and only its
// own requests wake it.
func (w *world) settle() {
	w.faultless = true
	goes := w.chance("pods and volumes go", 2)
	last := w.facts.Now
	if deadline := w.facts.Order.deadline(); last.Before(deadline) {
		last = deadline
	}
	last = last.Add(forceTime + 3*w.facts.Settings.DetachTimeout)
	for range 1000 {
		if w.state.Ended() {
			return
		}
		if w.facts.Now.After(last) {
			break
		}
		if goes {
			all := func(string, int) bool { return true }
			w.endPods(all)
			w.detachIdle(all)
			w.count(all)
			w.reportAttached()
		}
		w.watch()
		w.facts.Now = w.facts.Now.Add(w.pass())
	}
	w.t.Fatalf("%s after it began the drain has not ended: state %d, facts %+v", w.facts.Now.Sub(born), w.state, w.facts)
}
