package machinesim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

const (
	prefix   = fleetv1alpha1.DaemonPrefix
	rendered = "rendered-p-" // and the template that a configuration stands for
)

// joinedPool is a pool that refers to the deployment, and what its owner remembers.
type joinedPool struct {
	*fleetv1alpha1.MachineConfigPool

	failing map[string]time.Time // by Node and configuration
	// breaks is a template that fails on every Node; "" is none.
	breaks string
}

// failureOf names a failure of a Node with what it is assigned.
func failureOf(node *corev1.Node) string {
	return node.Name + " " + node.Annotations[prefix.DesiredConfig()]
}

// newJoined creates a deployment of template a that no pool has stamped, and a pool with the target
// b.
func newJoined(t *testing.T, seed uint64, strategy v1alpha1.MachineDeploymentStrategy, replicas int32) *rolling {
	t.Helper()
	r := newRolling(t, seed, strategy, replicas)
	pool := &fleetv1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-p"}}
	pool.Spec.Rollout = fleetv1alpha1.RolloutMachineDeployment
	pool.Spec.MachineRef = &fleetv1alpha1.MachineReference{Kind: stamp.KindDeployment, Namespace: "n", Name: rolled}
	r.pool = &joinedPool{MachineConfigPool: pool, failing: map[string]time.Time{}}
	r.aim("b")
	return r
}

// aim gives the pool another target.
func (r *rolling) aim(template string) {
	r.note("the target is %s", template)
	r.pool.Status.CurrentMachineConfig = rendered + template
}

// passPool runs one pass over the pool, if there is one.
func (r *rolling) passPool() {
	if r.pool == nil {
		return
	}
	c := r.owner.shown[0]
	cached, known := catchUp(r.world, r.deployments, &c.deployments)[rolled]
	if !known {
		return
	}
	pool := r.pool.MachineConfigPool
	d := newest(r, cached)
	config, _ := stamp.Stamp(stamp.World{Pool: pool, Live: true, Pools: []*fleetv1alpha1.MachineConfigPool{pool}, Deployment: d})
	if config != "" {
		d = stamp.Stamped(d, config)
		d.Spec.Template.Annotations["template"] = strings.TrimPrefix(config, rendered)
		d.Generation++
		put(r, r.deployments, d)
		return
	}
	sets, machines := catchUp(r.world, r.sets, &c.sets), catchUp(r.world, r.machines, &c.machines)
	var fresh *v1alpha1.MachineSet
	if !d.Spec.Paused {
		fresh = rollout.NewSet(d, sorted(sets))
	}
	for _, node := range sorted(catchUp(r.world, r.nodes, &c.nodes)) {
		m, known := machines[strings.TrimPrefix(node.Name, nodeName(""))]
		if !known {
			continue
		}
		node = newest(r, node)
		v := stamp.DecideNode(stamp.NodeWorld{
			Now: r.owner.clock(), Prefix: prefix, Pool: pool, Machine: newest(r, m), Node: node,
			To: sets[node.Annotations[v1alpha1.AnnotationUpdateTo]], New: fresh, FailingSince: r.pool.failing[failureOf(node)],
		})
		switch since := r.pool.failing[failureOf(node)]; {
		case !v.IsFailing:
			delete(r.pool.failing, failureOf(node))
		case since.IsZero():
			r.pool.failing[failureOf(node)] = r.owner.clock()
		}
		if v.Node == node {
			continue
		}
		if _, goOn := put(r, r.nodes, v.Node); !goOn {
			return
		}
	}
}

// bootDaemon has a Node boot with the configuration of its machine.
func (r *rolling) bootDaemon(m *v1alpha1.Machine, node *corev1.Node) {
	if config := m.Annotations[fleetv1alpha1.AnnotationMachineConfig]; config != "" {
		node.Annotations[prefix.CurrentConfig()], node.Annotations[prefix.State()] = config, string(fleetv1alpha1.StateDone)
	}
}

// joinedStage does what the machine controller and the kubelet do on a Node that reaches a stage.
func (r *rolling) joinedStage(node *corev1.Node, stage string) {
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
	if stage == v1alpha1.NodeReasonReadyForUpdate {
		node.Spec.Unschedulable = true
	}
}

// hasDaemonFor reports whether the daemon of a Node is the agent of its update. One to a template
// that names no configuration, from before the pool, is left to another agent.
func (r *rolling) hasDaemonFor(node *corev1.Node) bool {
	set := r.sets.now()[node.Annotations[v1alpha1.AnnotationUpdateTo]]
	return r.pool != nil && set != nil && set.Spec.Template.Annotations[fleetv1alpha1.AnnotationMachineConfig] != ""
}

// isBeingApplied reports whether the VM of a Node may have another template than its machine,
// because its update has not ended.
func (r *rolling) isBeingApplied(node *corev1.Node) bool {
	stage := machinefacts.InPlaceStage(node)
	return stage == v1alpha1.NodeReasonReadyForUpdate || stage == v1alpha1.NodeReasonUpdateFailed
}

// liveDaemons lets the daemons take a step, at times.
func (r *rolling) liveDaemons() {
	if r.pool == nil {
		return
	}
	for _, node := range sorted(r.nodes.now()) {
		if _, there := r.machines.now()[strings.TrimPrefix(node.Name, nodeName(""))]; there && r.dice.IntN(3) == 0 {
			r.daemon(node)
		}
	}
}

// daemon takes one step: it requests a drain, applies, requests the end of the cordon, and is done.
// At times it fails, and tries again.
func (r *rolling) daemon(node *corev1.Node) {
	node = node.DeepCopy()
	a := node.Annotations
	current, desired, state := a[prefix.CurrentConfig()], a[prefix.DesiredConfig()], a[prefix.State()]
	drain, uncordon := fleetv1alpha1.DrainFor(desired), fleetv1alpha1.UncordonFor(desired)
	switch {
	case desired == "" || current == desired && state == string(fleetv1alpha1.StateDone):
		return
	case current == desired && a[prefix.LastAppliedDrain()] == uncordon:
		a[prefix.State()] = string(fleetv1alpha1.StateDone)
	case current == desired:
		a[prefix.DesiredDrain()] = uncordon
	case a[prefix.DesiredDrain()] != drain:
		a[prefix.DesiredDrain()], a[prefix.State()] = drain, string(fleetv1alpha1.StateWorking)
	case a[prefix.LastAppliedDrain()] != drain:
		return
	case !node.Spec.Unschedulable:
		r.Fatalf("seed %d: %s applies %s, and is not drained:\n%s", r.seed, node.Name, desired, r.tale())
	case desired == rendered+r.pool.breaks, r.fails > 0 && r.dice.IntN(r.fails) == 0,
		state == string(fleetv1alpha1.StateDegraded) && r.dice.IntN(20) > 0:
		a[prefix.State()] = string(fleetv1alpha1.StateDegraded)
	default:
		a[prefix.CurrentConfig()], a[prefix.State()], a[prefix.DesiredDrain()] = desired, string(fleetv1alpha1.StateWorking), uncordon
		a[has] = strings.TrimPrefix(desired, rendered)
	}
	r.nodes.update(node)
}

// mustHaveTarget fails unless the template and all Nodes have the pool's target.
func (r *rolling) mustHaveTarget() {
	target := r.pool.Status.CurrentMachineConfig
	if got := r.deployment().Spec.Template.Annotations[fleetv1alpha1.AnnotationMachineConfig]; got != target {
		r.Errorf("seed %d: the template has %s, want %s:\n%s", r.seed, got, target, r.tale())
	}
	for _, m := range sorted(r.machines.now()) {
		node := r.nodes.now()[nodeName(m.Name)]
		if node.Annotations[prefix.CurrentConfig()] != target || node.Annotations[prefix.DesiredConfig()] != target ||
			m.Annotations[fleetv1alpha1.AnnotationMachineConfig] != target {
			r.Errorf("seed %d: machine %v, Node %v, want %s:\n%s", r.seed, m.Annotations, node.Annotations, target, r.tale())
		}
	}
}

// TestJoinedPoolUnderFaults: the target of a pool changes at any moment of an update in place, the
// pool and the deployment are paused and resumed, daemons fail, at times or with one of the targets
// always, processes die, caches lag and writes are late. The limits of the deployment hold, no
// daemon applies anything on a Node that is not drained, and in the end all Nodes have the last
// target.
func TestJoinedPoolUnderFaults(t *testing.T) {
	strategies := []v1alpha1.MachineDeploymentStrategy{
		inPlaceUpdate("1", "0", auto), inPlaceUpdate("0", "1", auto), inPlaceUpdate("50%", "50%", auto),
	}
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		dice := newDice(seed * 7919)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newJoined(t, seed, strategies[dice.IntN(len(strategies))], int32(1+dice.IntN(5)))
			r.fails, r.pool.breaks = []int{0, 3}[dice.IntN(2)], []string{"", "c"}[dice.IntN(2)]
			for range dice.IntN(6) {
				r.storm(dice.IntN(300))
				switch dice.IntN(5) {
				case 0, 1:
					r.aim(string(rune('b' + dice.IntN(3))))
				case 2:
					r.pool.Spec.Paused = !r.pool.Spec.Paused
					r.note("the pool is paused: %t", r.pool.Spec.Paused)
				case 3:
					r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = !s.Paused })
				case 4:
					if r.deployment().Spec.RollbackTo == nil {
						r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.RollbackTo = &v1alpha1.RollbackConfig{} })
					}
				}
			}
			r.storm(300)
			r.fails, r.pool.breaks, r.pool.Spec.Paused = 0, "", false
			r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = false })
			r.withoutFaults(3 * time.Hour)
			r.mustBeDone()
			r.mustBeFree()
			r.mustHaveTarget()
		})
	}
}

// TestJoinedPoolTakenBackStaysOnItsMachines: a configuration that fails on every Node is taken
// back, or corrected, at any moment. The Nodes on which it has failed are healed in place, and all
// machines stay.
func TestJoinedPoolTakenBackStaysOnItsMachines(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newJoined(t, seed, inPlaceUpdate("0", "1", auto), int32(1+seed%4))
			r.withoutFaults(time.Hour)
			r.mustBeDone()
			before := r.names()
			r.pool.breaks, r.keepsFailed = "c", true
			r.aim("c")
			r.withoutFaults(time.Duration(r.dice.IntN(300)) * time.Second)
			r.aim(string("bd"[seed%2]))
			r.withoutFaults(30 * time.Minute)
			if got := r.names(); got != before {
				t.Fatalf("seed %d: machines %s, want %s:\n%s", seed, got, before, r.tale())
			}
			r.mustBeDone()
			r.mustBeFree()
			r.mustHaveTarget()
		})
	}
}
