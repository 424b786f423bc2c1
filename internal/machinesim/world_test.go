package machinesim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
)

const (
	zone         = "z1"
	bootTime     = time.Minute
	reportsEvery = 10 * time.Second
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// world is the whole simulated world.
type world struct {
	*testing.T

	seed  uint64
	dice  *rand.Rand
	now   time.Time
	wild  bool // all faults occur
	story []string

	versions, serial int
	deployments      *store[*v1alpha1.MachineDeployment]
	sets             *store[*v1alpha1.MachineSet]
	machines         *store[*v1alpha1.Machine]
	nodes            *store[*corev1.Node] // of machines that are updated in place
	created          map[string]bool      // machines that were ever created
	vms              map[types.UID]*vm
	sick             map[string]bool // Nodes that are not Ready, by name

	limits         disruption.Limits
	replicas       int32 // of each deployment
	slots          int   // as many as there are deployments
	owners         []*process
	texts          map[string]string // reported by the processes
	reported       time.Time
	late           []func()
	failedMachines int // machines that ever failed for their health
	fallible       bool
	breakersSeen   map[string]bool // deployments whose circuit breaker was observed open
	cut            string          // the API server that is away: control or target; "" for none
	unchecked      bool            // no process checks API servers
	holding        *holding        // nil where deletions are never held
}

// newWorld creates deployments whose machines all run, owned in turns by as many processes.
func newWorld(t *testing.T, seed uint64, deployments int, replicas int32, processes int) *world {
	t.Helper()
	w := &world{
		T: t, seed: seed, dice: rand.New(rand.NewPCG(seed, seed)), now: start, vms: map[types.UID]*vm{}, created: map[string]bool{},
		sick: map[string]bool{}, replicas: replicas, slots: deployments, texts: map[string]string{}, breakersSeen: map[string]bool{},
		limits: disruption.Limits{HealthTimeout: 10 * time.Minute, Budget: intstr.FromInt32(1), Thresholds: disruption.DefaultThresholds()},
	}
	w.deployments = newStore[*v1alpha1.MachineDeployment](w)
	w.sets = newStore[*v1alpha1.MachineSet](w)
	w.machines = newStore[*v1alpha1.Machine](w)
	w.nodes = newStore[*corev1.Node](w)
	for i := range processes {
		w.owners = append(w.owners, newProcess(w, fmt.Sprint("replica-", i)))
	}
	for i := range deployments {
		w.plant(i)
	}
	for i := range deployments {
		w.owners[i%processes].acquire(i)
	}
	w.run(5 * time.Minute)
	if got := w.running(); got != int(replicas)*deployments {
		t.Fatalf("%d machines run, want %d", got, int(replicas)*deployments)
	}
	return w
}

// plant creates a deployment and its set, in the slot of its number.
func (w *world) plant(slot int) {
	labels := map[string]string{"pool": strconv.Itoa(slot)}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: "n", UID: types.UID("uid-" + name), Finalizers: []string{v1alpha1.FinalizerName},
			Labels: map[string]string{v1alpha1.LabelSlot: strconv.Itoa(slot)}, CreationTimestamp: metav1.NewTime(w.now),
		}
	}
	d := &v1alpha1.MachineDeployment{ObjectMeta: meta(fmt.Sprint("d", slot))}
	d.Spec.Replicas = w.replicas
	set := &v1alpha1.MachineSet{ObjectMeta: meta(fmt.Sprint("d", slot, "-set")), Spec: v1alpha1.MachineSetSpec{
		Replicas: w.replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1alpha1.MachineTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
		},
	}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))}
	w.deployments.create(d)
	w.sets.create(set)
}

func (w *world) limitsOfMachines() lifecycle.Limits {
	return lifecycle.Limits{CreationTimeout: 20 * time.Minute, HealthTimeout: w.limits.HealthTimeout, ResourceExhaustedRetry: 10 * time.Minute}
}

// note adds to the history of this run, which is printed when it fails.
func (w *world) note(format string, args ...any) {
	if w.wild {
		w.story = append(w.story, w.now.Sub(start).String()+" "+fmt.Sprintf(format, args...))
	}
}

// chance reports true once in n times, in a wild world.
func (w *world) chance(n int) bool { return w.wild && w.dice.IntN(n) == 0 }

// run lets time pass, in which all processes reconcile everything.
func (w *world) run(d time.Duration) { w.runIn(d, 5*time.Second) }

// runIn does so in steps.
func (w *world) runIn(d, step time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.tick(step)
		for _, p := range w.owners {
			p.all()
		}
		w.check()
	}
}

// tick lets time pass.
func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	if w.cut != target { // otherwise no Node can change
		w.boot()
	}
	for _, p := range w.owners {
		p.checkServers()
	}
	if w.now.Sub(w.reported) >= reportsEvery {
		w.reported = w.now
		for _, p := range w.owners {
			if !p.dead {
				p.report()
			}
		}
	}
}

// running counts the machines that run.
func (w *world) running() (n int) {
	for _, m := range w.machines.now() {
		if m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			n++
		}
	}
	return n
}

// check is the invariant: of no deployment are more machines being replaced than its disruption
// budget allows. Nothing else happens to machines here, so those that are wanted and neither run
// nor are merely unhealthy are being replaced.
func (w *world) check() {
	steady := map[types.UID]int{}
	for _, m := range w.machines.now() {
		phase := m.Status.CurrentStatus.Phase
		if m.DeletionTimestamp == nil && (phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineUnknown) {
			steady[metav1.GetControllerOfNoCopy(m).UID]++
		}
	}
	if !w.fallible {
		return
	}
	for _, set := range w.sets.now() {
		if n := int(w.replicas) - steady[set.UID]; n > w.limits.Budget.IntValue() {
			w.Fatalf("seed %d: at %s %d machines of %s are being replaced, and %s are allowed:\n%s", w.seed, w.now.Sub(start), n, set.Name,
				w.limits.Budget.String(), strings.Join(w.story, "\n"))
		}
	}
}
