package candidates

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// simulated is a Node with its daemon and its kubelet. What it does with a configuration depends on
// the first letter of the name: "g" works; "k" is applied, and the kubelet does not start with it;
// "d" cannot be applied; "u" cannot be applied in place; "h" leaves the Node not Ready in the
// middle, until it is assigned another one.
type simulated struct {
	name, zone       string
	age              int
	current, desired string
	state            string
	reason           string
	cordonedByDaemon bool
	cordonedByUser   bool
	dead             bool // for a cause outside of the cluster
	kubeletFails     bool
	drifted          bool
	noDaemon         bool
	tainted          bool
}

func (s *simulated) node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.name, Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(start.Add(-time.Duration(s.age) * time.Hour)),
	}}
	if s.zone != "" {
		n.Labels[corev1.LabelTopologyZone] = s.zone
	}
	if !s.noDaemon {
		prefix := v1alpha1.DaemonPrefix
		n.Annotations = map[string]string{
			prefix.CurrentConfig(): s.current, prefix.DesiredConfig(): s.desired, prefix.State(): s.state, prefix.Reason(): s.reason,
		}
	}
	n.Spec.Unschedulable = s.cordonedByDaemon || s.cordonedByUser
	if s.tainted {
		n.Spec.Taints = []corev1.Taint{v1alpha1.UpdateInProgress()}
	}
	status := corev1.ConditionTrue
	if s.dead || s.kubeletFails {
		status = corev1.ConditionUnknown
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}

// step is one step of the daemon.
func (s *simulated) step() {
	switch {
	case s.dead || s.noDaemon || s.desired == "":
	case s.current == s.desired && s.drifted:
		s.state = "degraded"
	case s.current == s.desired:
		s.finish() // there may be an update to undo
	case s.desired[0] == 'd':
		s.state, s.reason = "Degraded", "cannot"
	case s.desired[0] == 'u':
		s.state, s.reason = "Unreconcilable", "cannot"
	case s.state != "working":
		s.state, s.cordonedByDaemon = "working", true
	case s.desired[0] == 'h':
		s.kubeletFails = true
	default:
		s.finish()
	}
}

// finish completes an update.
func (s *simulated) finish() {
	s.current, s.state, s.reason, s.cordonedByDaemon, s.drifted = s.desired, "done", "", false, false
	s.kubeletFails = s.desired[0] == 'k'
}

// serves is a second definition of what the budget protects: pods can run here, and no update is
// under way or has failed.
func (s *simulated) serves() bool {
	settled := s.state == "done" && (s.desired == "" || s.desired == s.current)
	return !s.dead && !s.kubeletFails && !s.cordonedByDaemon && !s.cordonedByUser && settled
}

// fleet is a pool with its Nodes, and caches that lag.
type fleet struct {
	t       *rapid.T
	pool    *v1alpha1.MachineConfigPool
	nodes   []*simulated
	cached  []*corev1.Node
	serial  int
	isQuiet bool
}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{t: t, pool: &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}}
	f.pool.Status = v1alpha1.MachineConfigPoolStatus{CurrentMachineConfig: "g0", CompletedMachineConfig: "g0"}
	for range rapid.IntRange(1, 8).Draw(t, "nodes") {
		f.join()
	}
	f.limit()
	return f
}

func (f *fleet) join() {
	f.serial++
	f.nodes = append(f.nodes, &simulated{
		name: fmt.Sprint("n", f.serial), current: "g0", desired: rapid.SampledFrom([]string{"g0", "g0", ""}).Draw(f.t, "desired"), state: "done",
		zone: rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(f.t, "zone"), age: rapid.IntRange(0, 3).Draw(f.t, "age"),
		noDaemon: rapid.IntRange(0, 9).Draw(f.t, "daemon") == 0,
	})
}

func (f *fleet) limit() {
	most := rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("40%")}).
		Draw(f.t, "maxUnavailable")
	f.pool.Spec.MaxUnavailable = &most
}

// retarget moves the target as the render package does.
func (f *fleet) retarget(kinds string) {
	f.serial++
	target := fmt.Sprint(string(rapid.SampledFrom([]byte(kinds)).Draw(f.t, "kind")), f.serial)
	if rapid.Bool().Draw(f.t, "back") && f.pool.Status.CompletedMachineConfig[0] == 'g' {
		target = f.pool.Status.CompletedMachineConfig
	}
	f.pool.Status.AbandonedMachineConfigs = merge.Abandoned(f.pool.Status, target)
	f.pool.Status.CurrentMachineConfig = target
}

func (f *fleet) live() (all []*corev1.Node) {
	for _, s := range f.nodes {
		all = append(all, s.node())
	}
	return all
}

// most is maxUnavailable by hand.
func (f *fleet) most() int {
	value := f.pool.Spec.MaxUnavailable
	if value.Type == intstr.String {
		return max(len(f.nodes)*4/10, 1)
	}
	return max(int(value.IntVal), 1)
}

// missing counts the Nodes that do not serve. Those without a daemon are none of the pool's
// updates.
func (f *fleet) missing() (n int) {
	for _, s := range f.nodes {
		if !s.serves() && !s.noDaemon {
			n++
		}
	}
	return n
}

// pass runs one pass of a controller: on its cache first, and on live Nodes when the verdict
// requests them. It may die between writes.
func (f *fleet) pass() (assigned int) {
	w := World{Now: start, Pool: f.pool, Nodes: f.cached, Prefix: v1alpha1.DaemonPrefix}
	v := Decide(w)
	if v.ListLive {
		w.Live, w.Nodes = true, f.live()
		v = Decide(w)
		f.deterministic(w, v)
	} else if len(v.Assign) > 0 {
		f.t.Fatalf("assigned %d Nodes as a cache has them", len(v.Assign))
	}
	before := f.missing()
	for _, a := range v.Assign {
		if !f.isQuiet && rapid.IntRange(0, 9).Draw(f.t, "dies") == 0 {
			return assigned
		}
		f.assign(a)
		assigned++
		if after := f.missing(); after > max(before, f.most()) {
			f.t.Fatalf("%s was assigned %s: %d Nodes do not serve, %d did not before, maxUnavailable is %d",
				a.Node.Name, a.Config, after, before, f.most())
		}
	}
	for _, s := range f.nodes {
		s.tainted = (s.tainted || slices.Contains(v.Taint, s.name)) && !slices.Contains(v.Untaint, s.name)
	}
	status := v.Status
	f.pool.Status.CompletedMachineConfig = status.CompletedMachineConfig
	f.pool.Status.Conditions = status.Conditions
	return assigned
}

func (f *fleet) assign(a Assignment) {
	s := f.nodes[slices.IndexFunc(f.nodes, func(s *simulated) bool { return s.name == a.Node.Name })]
	switch {
	case f.pool.Spec.Paused:
		f.t.Fatalf("%s was assigned %s while the pool is paused", s.name, a.Config)
	case s.noDaemon:
		f.t.Fatalf("%s was assigned %s without a daemon", s.name, a.Config)
	case s.cordonedByUser && s.state == "done" && s.current == s.desired:
		f.t.Fatalf("%s was assigned %s although a user has cordoned it", s.name, a.Config)
	case a.Counted == s.serves() && (s.desired != "" || s.current != a.Config):
		f.t.Fatalf("%s was assigned %s with Counted=%t; it serves: %t", s.name, a.Config, a.Counted, s.serves())
	case a.Config != f.pool.Status.CurrentMachineConfig || s.desired == a.Config:
		f.t.Fatalf("%s was assigned %s; it had %s", s.name, a.Config, s.desired)
	}
	s.desired = a.Config
}

// deterministic checks that the order of Nodes has no effect.
func (f *fleet) deterministic(w World, v Verdict) {
	w.Nodes = rapid.Permutation(w.Nodes).Draw(f.t, "order")
	if diff := cmp.Diff(v, Decide(w), cmpopts.EquateEmpty()); diff != "" {
		f.t.Fatalf("in another order (-first +second):\n%s", diff)
	}
}

// disturb does one thing that the pool has no power over.
func (f *fleet) disturb() {
	s := rapid.SampledFrom(f.nodes).Draw(f.t, "node")
	switch rapid.IntRange(0, 9).Draw(f.t, "event") {
	case 0:
		s.dead = !s.dead
	case 1:
		s.cordonedByUser = !s.cordonedByUser
	case 2:
		f.retarget("ggkduh")
	case 3:
		f.pool.Spec.Paused = !f.pool.Spec.Paused
	case 4:
		f.limit()
	case 5:
		f.join()
	case 6:
		if len(f.nodes) > 1 {
			f.nodes = slices.DeleteFunc(f.nodes, func(other *simulated) bool { return other == s })
		}
	case 7:
		if s.state == "done" && s.current == s.desired {
			s.drifted, s.state = true, "degraded"
		}
	case 8:
		s.noDaemon = false
	case 9:
		f.cached = f.live()
	}
}

// settle has users repair what they have broken, sets a target that works, and lets everything
// finish.
func (f *fleet) settle() {
	f.isQuiet, f.pool.Spec.Paused = true, false
	f.retarget("g")
	for _, s := range f.nodes {
		s.dead, s.noDaemon, s.cordonedByUser, s.drifted = false, false, false, false
	}
	for range 6 * len(f.nodes) {
		f.cached = f.live()
		f.pass()
		for _, s := range f.nodes {
			s.step()
			s.step()
		}
	}
	f.cached = f.live()
	f.pass()
	for _, s := range f.nodes {
		if s.current != f.pool.Status.CurrentMachineConfig || !s.serves() || s.tainted {
			f.t.Errorf("left behind the target %s: %+v\nabandoned %v", f.pool.Status.CurrentMachineConfig, *s, f.pool.Status.AbandonedMachineConfigs)
		}
	}
	if f.pool.Status.CompletedMachineConfig != f.pool.Status.CurrentMachineConfig {
		f.t.Errorf("completed %s, target %s", f.pool.Status.CompletedMachineConfig, f.pool.Status.CurrentMachineConfig)
	}
}

// Regardless of what happens, assignments never leave more Nodes out of service than maxUnavailable
// allows; and when users have repaired what they broke and the target works, every Node ends on it.
func TestWorlds(t *testing.T) {
	worlds.Check(t, 10, func(t *rapid.T) {
		f := newFleet(t)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				f.disturb()
			case 1:
				f.pass()
			case 2:
				rapid.SampledFrom(f.nodes).Draw(t, "daemon").step()
			}
		}
		f.settle()
	})
}
