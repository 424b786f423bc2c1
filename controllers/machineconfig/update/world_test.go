package update

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// world is a pool with its Nodes and their daemons, replicas that own it one after the other, and
// faults drawn from a seed.
//
// What a daemon does with a configuration depends on the first letter of its name: "g" works after
// a reboot, "r" without one; "k" is applied, and the kubelet does not start with it; "d" cannot be
// applied; "h" leaves the Node not Ready in the middle.
type world struct {
	*cluster

	random   *rand.Rand
	replicas []*replica
	nodes    []string
	serial   int
	dead     map[string]bool
	reboots  map[string]string // the configuration that a Node boots into
	isQuiet  bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{cluster: newCluster(t), random: rand.New(rand.NewPCG(seed, 1)), dead: map[string]bool{}, reboots: map[string]string{}}
	w.pool("p", "g0", selecting)
	w.pool("p", "g0", func(p *v1alpha1.MachineConfigPool) { p.Status.CompletedMachineConfig = "g0" })
	for range 2 + w.random.IntN(6) {
		w.joinOne()
	}
	w.limit()
	return w
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

func (w *world) joinOne() {
	w.serial++
	name := fmt.Sprint("n", w.serial)
	w.nodes = append(w.nodes, name)
	w.join(name, "g0", func(n *corev1.Node) {
		if zone := w.random.IntN(3); zone > 0 {
			n.Labels[corev1.LabelTopologyZone] = fmt.Sprint("z", zone)
		}
	})
	if w.chance(50) {
		w.pod(name, "pod-"+name)
	}
}

func (w *world) limit() {
	w.pool("p", w.target(), func(p *v1alpha1.MachineConfigPool) {
		most := []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("40%")}[w.random.IntN(4)]
		p.Spec.MaxUnavailable = &most
	})
}

func (w *world) target() string { return w.getPool("p").Status.CurrentMachineConfig }

// retarget moves the target as the RenderController does.
func (w *world) retarget(kinds string) {
	w.serial++
	status := w.getPool("p").Status
	target := fmt.Sprint(string(kinds[w.random.IntN(len(kinds))]), w.serial)
	if back := status.CompletedMachineConfig; w.chance(30) && strings.ContainsAny(back[:1], kinds) {
		target = back
	}
	w.pool("p", target, func(p *v1alpha1.MachineConfigPool) {
		p.Status.AbandonedMachineConfigs = merge.Abandoned(status, target)
	})
}

// startOne starts a replica with its own faults.
func (w *world) startOne() *replica {
	lag := time.Duration(w.random.IntN(3000)) * time.Millisecond
	dies := w.chance(50)
	after := w.random.IntN(12)
	r := w.start(false, func(r *replica) {
		if !w.isQuiet {
			r.lag = lag
		}
		if dies && !w.isQuiet {
			r.writesTo = after
		}
		if w.isLate && !w.isQuiet {
			r.late = w.late
		}
	})
	w.replicas = append(w.replicas, r)
	return r
}

// late returns for how long an assignment is on its way.
func (w *world) late(body []byte) time.Duration {
	if !strings.Contains(string(body), prefix.DesiredConfig()) {
		return 0
	}
	return time.Duration(len(body)%7) * 2 * time.Second
}

// take has a replica own the pool, and no other one any more.
func (w *world) take(r *replica) {
	for _, other := range w.replicas {
		if other != r && other.isOwner() {
			other.own(false)
		}
	}
	r.own(true)
}

// sustain starts a replica when the owner is dead, as the others take over after a while.
func (w *world) sustain() {
	if !slices.ContainsFunc(w.replicas, (*replica).isOwner) {
		w.take(w.startOne())
	}
}

// step is one step of a Node's daemon and kubelet.
func (w *world) step(name string) {
	n := w.node(name)
	get := func(key string) string { return n.Annotations[string(prefix)+"/"+key] }
	desired, current := get("desiredConfig"), get("currentConfig")
	if w.dead[name] {
		return
	}
	if boots := w.reboots[name]; boots != "" {
		if boots[0] == 'h' && desired == boots {
			return // until it is assigned another one
		}
		delete(w.reboots, name)
		w.setReady(name, boots[0] != 'k')
		w.daemon(name, "currentConfig", boots)
		return
	}
	switch drained := get("desiredDrain") == get("lastAppliedDrain"); {
	case desired == current && strings.HasPrefix(get("desiredDrain"), "drain-"):
		w.daemon(name, "state", "working", "desiredDrain", "uncordon-"+current)
	case desired == current && !drained:
	case desired == current:
		w.daemon(name, "state", "done", "reason", "")
	case desired[0] == 'd':
		w.daemon(name, "state", "degraded", "reason", "cannot")
	case desired[0] == 'r':
		w.daemon(name, "currentConfig", desired, "state", "working")
	case get("desiredDrain") != "drain-"+desired:
		w.daemon(name, "state", "working", "desiredDrain", "drain-"+desired)
	case drained:
		w.reboots[name] = desired
		w.setReady(name, false)
	}
}

func (w *world) setReady(name string, is bool) {
	status := corev1.ConditionTrue
	if !is {
		status = corev1.ConditionUnknown
	}
	w.edit(name, func(n *corev1.Node) {
		n.Status.Conditions[0].Status = status
		n.Status.Conditions[0].LastTransitionTime.Time = time.Now()
	})
}

// disturb does one thing that the fleet has no power over.
func (w *world) disturb() {
	name := w.nodes[w.random.IntN(len(w.nodes))]
	switch w.random.IntN(8) {
	case 0:
		w.dead[name] = !w.dead[name]
		w.setReady(name, !w.dead[name])
	case 1:
		if n := w.node(name); n.Annotations[v1alpha1.AnnotationCordonedBy] == "" { // a user does not undo what the fleet does
			w.edit(name, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
		}
	case 2:
		w.retarget("ggrkdh")
	case 3:
		w.pool("p", w.target(), func(p *v1alpha1.MachineConfigPool) { p.Spec.Paused = !p.Spec.Paused })
	case 4:
		w.limit()
	case 5:
		w.take(w.startOne())
	case 6:
		w.take(w.replicas[w.random.IntN(len(w.replicas))])
	case 7:
		if len(w.nodes) > 2 {
			w.nodes = slices.DeleteFunc(w.nodes, func(other string) bool { return other == name })
			w.server.Remove("nodes", "", name)
		}
	}
}

// settle has users repair what they have broken, sets a target that works, and lets everything
// finish.
func (w *world) settle() {
	w.isQuiet = true
	w.take(w.startOne())
	w.pool("p", w.target(), func(p *v1alpha1.MachineConfigPool) { p.Spec.Paused = false })
	w.retarget("g")
	for _, name := range w.nodes {
		if w.dead[name] {
			w.dead[name] = false
			w.setReady(name, w.reboots[name] == "" && w.node(name).Annotations[prefix.CurrentConfig()][0] != 'k')
		}
		if n := w.node(name); n.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
			w.edit(name, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		}
	}
	for range 40 * len(w.nodes) {
		w.live(100)
	}
	w.run(time.Minute)
	status := w.getPool("p").Status
	for _, name := range w.nodes {
		n := w.node(name)
		if !isServing(n) || n.Annotations[prefix.CurrentConfig()] != status.CurrentMachineConfig || len(n.Spec.Taints) > 0 {
			w.violate("Node %s was left behind the target %s: %v, cordoned %t, taints %v, conditions %v; status %+v",
				name, status.CurrentMachineConfig, n.Annotations, n.Spec.Unschedulable, n.Spec.Taints, n.Status.Conditions, status.Conditions)
		}
	}
	if status.CompletedMachineConfig != status.CurrentMachineConfig || int(status.ReadyMachineCount) != len(w.nodes) {
		w.violate("status %+v with %d Nodes", status, len(w.nodes))
	}
}

// live lets some time pass, in which some daemons take a step.
func (w *world) live(percent int) {
	w.run(time.Duration(100+w.random.IntN(900)) * time.Millisecond)
	w.sustain()
	for _, name := range w.nodes {
		if w.chance(percent) {
			w.step(name)
		}
	}
}

// explains checks that the status has the cause for each Node that is not on the target, while
// nothing happens.
func (w *world) explains() {
	status := w.getPool("p").Status
	named := ""
	for _, c := range status.Conditions {
		named += c.Message + "\n"
	}
	behind := 0
	for _, name := range w.nodes {
		if n := w.node(name); n.Annotations[prefix.CurrentConfig()] != status.CurrentMachineConfig {
			behind++
			if behind <= 5 && !strings.Contains(named, name) && !strings.Contains(named, "and ") {
				w.violate("the status does not name Node %s: %s", name, named)
			}
		}
	}
}

// play runs a world with a change at its beginning, and returns what was wrong.
func play(t *testing.T, seed uint64, plant func(w *world)) (wrong []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer func() {
			for _, r := range w.replicas {
				r.kill()
			}
			for _, r := range w.replicas {
				r.end()
			}
		}()
		if plant != nil {
			plant(w)
		}
		w.take(w.startOne())
		for range 10 + w.random.IntN(30) {
			if w.chance(40) {
				w.disturb()
			}
			w.live(60)
		}
		w.take(w.startOne())
		w.run(time.Minute)
		w.sustain()
		w.run(time.Minute)
		if slices.ContainsFunc(w.replicas, (*replica).isOwner) {
			w.explains()
		}
		w.settle()
		wrong = w.wrong
	})
	return wrong
}

// Regardless of what happens, maxUnavailable is respected; and when users have repaired what they
// broke and the target works, every Node ends on it.
func TestWorlds(t *testing.T) {
	for seed := range uint64(worlds.Some(40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, wrong := range play(t, seed, nil) {
				t.Error(wrong)
			}
		})
	}
}

// A roll-out costs at most five writes for each Node, one list for each time that Nodes are
// assigned or drains begin, and a write of the status every few seconds.
func TestRollOutWritesAndLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			cluster: newCluster(t), random: rand.New(rand.NewPCG(1, 1)), dead: map[string]bool{}, reboots: map[string]string{}, isQuiet: true,
		}
		w.pool("p", "g0", selecting)
		for range 20 {
			w.joinOne()
		}
		w.pool("p", "g1", func(p *v1alpha1.MachineConfigPool) {
			most := intstr.FromString("40%")
			p.Spec.MaxUnavailable, p.Status.CompletedMachineConfig = &most, "g0"
		})
		w.take(w.startOne())
		defer w.replicas[0].end()
		begun, isDone := time.Now(), func() bool { return w.getPool("p").Status.CompletedMachineConfig == "g1" }
		for !isDone() && time.Since(begun) < time.Hour {
			w.live(100)
		}
		seconds := int(time.Since(begun) / time.Second)
		for _, name := range w.nodes {
			if writes := len(w.writes[name]); writes > 5 {
				t.Errorf("%d writes of Node %s: %q", writes, name, w.writes[name])
			}
		}
		if w.refused > 0 { // a Node is written once in a pass
			t.Errorf("%d writes of Nodes were refused", w.refused)
		}
		if w.status > 5+seconds || w.lists > len(w.nodes) {
			t.Errorf("%d writes of the status and %d lists in %d s", w.status, w.lists, seconds)
		}
		t.Logf("%d Nodes in %d s: %d writes of the status, %d lists", len(w.nodes), seconds, w.status, w.lists)
		w.fine()
	})
}

// An assignment that a former owner has sent may arrive after the next owner has counted. The
// drains of the next owner respect maxUnavailable all the same.
func TestLateAssignmentsRespectMaxUnavailable(t *testing.T) {
	for seed := range uint64(worlds.Some(30)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, wrong := range play(t, seed, func(w *world) { w.isLate = true }) {
				t.Error(wrong)
			}
		})
	}
}

// plants are bugs that the oracle has to find: what it says, and the bug.
func plants() map[string]func(w *world) {
	edit := func(change func(metadata, annotations map[string]any)) func(*http.Request, []byte) []byte {
		return func(_ *http.Request, body []byte) []byte {
			var patch map[string]any
			if err := json.Unmarshal(body, &patch); err != nil {
				return body
			}
			metadata, _ := patch["metadata"].(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			change(metadata, annotations)
			body, _ = json.Marshal(patch)
			return body
		}
	}
	return map[string]func(w *world){
		"that do not serve": func(w *world) { // assignments are decided on an old list, and without a precondition
			w.stale = 2 * time.Minute
			w.bug = edit(func(metadata, _ map[string]any) { delete(metadata, "resourceVersion") })
		},
		"was left behind": func(w *world) { // the record of the cordon is not written
			w.bug = edit(func(_, annotations map[string]any) { delete(annotations, v1alpha1.AnnotationCordonedBy) })
		},
	}
}

// The oracle finds what protects maxUnavailable and Nodes, when it is missing.
func TestOracleFindsPlantedDefects(t *testing.T) {
	for want, plant := range plants() {
		t.Run(want, func(t *testing.T) {
			for seed := range uint64(60) {
				for _, wrong := range play(t, seed, plant) {
					if strings.Contains(wrong, want) {
						t.Logf("seed %d: %s", seed, wrong[:min(len(wrong), 200)])
						return
					}
				}
			}
			t.Error("it was not found in 60 worlds")
		})
	}
}
