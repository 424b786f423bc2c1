package replica

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

// agreement has a change with its plan and with the events that followed it.
type agreement struct {
	change    string
	plan      plan.Plan
	happened  happened
	wrong     []string // where counts and orders differ
	deviation float64  // of the time: 0.1 means that it took 10 % longer than planned
}

// happened records the creations and deletions of the machines of a MachineDeployment.
type happened struct {
	created, deleted [][]string // in turn, those at the same moment together; of created ones the set
	most, after      int
	took             time.Duration
}

// TestPlansAgreeWithWhatHappens makes generated changes of MachineDeployments in a whole replica
// whose VMs take different times to join and to end. Each plan, which is computed from what a
// client reads before, has the same machines replaced in the same order, and as many at once; and
// the time of nine in ten is within 30 %.
func TestPlansAgreeWithWhatHappens(t *testing.T) {
	t.Parallel()
	count, within, timed := worlds.Some(50), 0, 0
	var table strings.Builder
	for seed := range uint64(count) {
		a := agreementOf(t, seed)
		for _, wrong := range a.wrong {
			t.Errorf("seed %d, %s: %s", seed, a.change, wrong)
		}
		m := a.plan.Machines
		if m.Created+m.Deleted > 0 {
			timed++
		}
		if m.Created+m.Deleted > 0 && a.deviation < 0.3 && a.deviation > -0.3 {
			within++
		}
		fmt.Fprintf(&table, "| %d | %s | %d | %d | %d | %s | %s | %+.0f %% |\n", seed, a.change, m.Created, m.Deleted, m.Most,
			a.plan.Time.Median.Round(time.Second), a.happened.took.Round(time.Second), 100*a.deviation)
	}
	t.Logf("of %d changes %d create or delete machines; the time of %d of these is within 30 %%\n%s", count, timed, within, table.String())
	if timed-within > max(1, timed/10) {
		t.Errorf("the time of %d of %d changes was within 30 %%, want nine in ten", within, timed)
	}
}

// agreementOf runs one change.
func agreementOf(t *testing.T, seed uint64) (a agreement) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, replicaOptions(), seed, nil)
		defer r.end()
		dice := rand.New(rand.NewPCG(seed, 9))
		r.cloud.Created = func(v *fakecloud.Resource) {
			r.checkCreate(v)
			v.Boots = time.Now().Add(time.Duration(40+dice.IntN(20)) * time.Second)
		}
		r.cloud.Ends = func(v *fakecloud.Resource) { v.Ends = time.Now().Add(time.Duration(8+dice.IntN(4)) * time.Second) }
		r.createClass("a")
		r.createClassNamed("a", "large")
		p := r.start("fleet-0")
		r.putDeployment(measuredBefore, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 12 })
		before := r.putDeployment(planned, func(d *v1alpha1.MachineDeployment) { drawDeployment(dice, d) })
		r.awaitDone(planned)
		r.awaitDone(measuredBefore)
		r.control.Delete("machinedeployments", "a", measuredBefore)
		r.waitCheaply("the durations of deletions are measured", func() bool {
			return len(r.control.List("machines")) == int(before.Spec.Replicas)
		})
		after := before.DeepCopy()
		a.change = drawChange(dice, after)
		a.plan = r.planOf(p, after)
		a.happened = r.apply(after)
		a.compare()
	})
	return a
}

const planned, measuredBefore = "planned", "measured"

// createClassNamed creates another class.
func (t *trial) createClassNamed(namespace, name string) {
	t.put(t.control, "machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": namespace, "name": name},
		"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "small"},
	})
}

// putDeployment creates a MachineDeployment.
func (t *trial) putDeployment(name string, draw func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	labels := map[string]string{"root": name}
	d := &v1alpha1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
		Spec: v1alpha1.MachineDeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}},
			},
		},
	}
	draw(d)
	t.put(t.control, "machinedeployments", documentOf(t, d))
	return d
}

func documentOf(t *trial, o any) (document map[string]any) {
	content, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(content, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// drawDeployment draws replicas and strategy.
func drawDeployment(dice *rand.Rand, d *v1alpha1.MachineDeployment) {
	d.Spec.Replicas = int32(1 + dice.IntN(8))
	d.Spec.Strategy = drawStrategy(dice)
	if dice.IntN(4) == 0 {
		d.Spec.MinReadySeconds = int32(10 + dice.IntN(20))
		d.Annotations = map[string]string{v1alpha1.AnnotationCountMinReady: "true"}
	}
}

func drawStrategy(dice *rand.Rand) v1alpha1.MachineDeploymentStrategy {
	if dice.IntN(6) == 0 {
		return v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
	}
	limits := []string{"0", "1", "2", "3", "25%", "50%"}
	surge, unavailable := intstr.Parse(limits[dice.IntN(6)]), intstr.Parse(limits[dice.IntN(6)])
	if surge.String() == "0" && unavailable.String() == "0" {
		surge = intstr.FromInt32(1)
	}
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &surge, MaxUnavailable: &unavailable},
		},
	}
}

// drawChange changes a deployment, and returns in words how.
func drawChange(dice *rand.Rand, d *v1alpha1.MachineDeployment) string {
	var words []string
	for len(words) == 0 {
		if dice.IntN(5) > 1 {
			metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "version", "2")
			words = append(words, "template")
		}
		if dice.IntN(4) == 0 {
			d.Spec.Template.Spec.Class.Name = "large"
			words = append(words, "class")
		}
		if dice.IntN(3) == 0 {
			was := d.Spec.Replicas
			if d.Spec.Replicas = int32(dice.IntN(10)); d.Spec.Replicas != was {
				words = append(words, fmt.Sprintf("replicas %d → %d", was, d.Spec.Replicas))
			}
		}
		if dice.IntN(4) == 0 {
			d.Spec.Strategy = drawStrategy(dice)
			words = append(words, "strategy")
		}
		if dice.IntN(8) == 0 {
			d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "x"}
			words = append(words, "labels of Nodes")
		}
	}
	strategy := string(d.Spec.Strategy.Type)
	if u := d.Spec.Strategy.RollingUpdate; u != nil {
		strategy = u.MaxSurge.String() + "/" + u.MaxUnavailable.String()
	}
	return fmt.Sprintf("%s (%d replicas, %s)", strings.Join(words, ", "), d.Spec.Replicas, strategy)
}

// awaitDone waits until all machines of a deployment are available.
func (t *trial) awaitDone(name string) {
	t.waitCheaply(name+" is done", func() bool { return t.isDone(name) })
}

// isDone reports whether all machines of a deployment have its template, are available, and no
// other is left.
func (t *trial) isDone(name string) bool {
	stored := t.control.Get("machinedeployments", "a", name)
	d := &v1alpha1.MachineDeployment{}
	content, err := json.Marshal(stored.Object)
	if err == nil {
		err = json.Unmarshal(content, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := view.RolloutOf(d, nil)
	return v.Done && v.Total == v.Desired && v.Available == v.Desired
}

// planOf returns the plan of a change, from what a client reads.
func (t *trial) planOf(p *process, after *v1alpha1.MachineDeployment) plan.Plan {
	reader := observe.Reader{
		Machines: t.control.Machines(), Control: t.control.Core(), Target: t.target.Core(), FleetNamespace: fleetNamespace, FleetName: "fleet",
		Timeouts: view.DefaultTimeouts(),
	}
	s, err := reader.Read(t.Context(), time.Now(), observe.Scope{
		Namespace: "a", Machines: true, Classes: true, Leases: true, Nodes: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	metrics := httptest.NewRecorder()
	promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}).ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	i := slices.IndexFunc(s.Deployments, func(d *v1alpha1.MachineDeployment) bool { return d.Name == after.Name })
	changed := s.Deployments[i].DeepCopy()
	changed.Spec = after.Spec
	of, err := plan.OfDeployment(plan.Input{Snapshot: s, Durations: plan.ReadDurations([]string{metrics.Body.String()}, "")},
		plan.Change{Before: s.Deployments[i], After: changed})
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// apply applies a change, and records what happens until it is done.
func (t *trial) apply(after *v1alpha1.MachineDeployment) (h happened) {
	begun := time.Now()
	last := begun
	t.control.Edit("machinedeployments", "a", after.Name, func(u *unstructured.Unstructured) {
		u.Object["spec"] = documentOf(t, after)["spec"]
	})
	known, deleted := map[types.UID]bool{}, map[types.UID]bool{}
	observe := func(isFirst bool) {
		now, standing := t.control.List("machines"), map[types.UID]bool{}
		var created, begins []string
		for _, m := range now {
			uid := m.GetUID()
			standing[uid] = true
			if !known[uid] && !isFirst {
				created = append(created, m.GetOwnerReferences()[0].Name)
			}
			known[uid] = true
			if m.GetDeletionTimestamp() != nil && !deleted[uid] {
				deleted[uid] = true
				begins = append(begins, m.GetName())
			}
		}
		gone := len(known)
		maps.DeleteFunc(known, func(uid types.UID, _ bool) bool { return !standing[uid] })
		if len(created) > 0 {
			h.created = append(h.created, created)
		}
		if len(begins) > 0 {
			h.deleted = append(h.deleted, begins)
		}
		if len(created)+len(begins) > 0 || gone != len(known) {
			last = time.Now()
		}
		h.most, h.after = max(h.most, len(now)), len(now)
	}
	observe(true)
	available := int64(-1)
	quiet := 0
	t.waitCheaply("the change is done", func() bool {
		observe(false)
		d := t.control.Get("machinedeployments", "a", after.Name)
		replicas, _, _ := unstructured.NestedInt64(d.Object, "status", "availableReplicas")
		if replicas != available {
			available, last = replicas, time.Now()
		}
		if quiet++; !t.isDone(after.Name) {
			quiet = 0
		}
		return quiet > 20 // some seconds, in which a step of the rollout would follow
	})
	h.took = last.Sub(begun)
	return h
}

// compare compares what has happened with the plan.
func (a *agreement) compare() {
	note := func(what string, planned, is any) {
		if fmt.Sprint(planned) != fmt.Sprint(is) {
			a.wrong = append(a.wrong, fmt.Sprintf("%s: planned %v, happened %v", what, planned, is))
		}
	}
	m := a.plan.Machines
	note("machines created", m.Created, len(slices.Concat(a.happened.created...)))
	note("machines deleted", m.Deleted, len(slices.Concat(a.happened.deleted...)))
	note("machines at once", m.Most, a.happened.most)
	note("machines in the end", m.After, a.happened.after)
	note("end", true, a.plan.Ends)
	at, created := map[string]time.Duration{}, map[string]int{}
	for _, step := range a.plan.Steps {
		switch step.Do { //nolint:exhaustive // the others follow from these
		case plan.DeleteMachine:
			at[step.Name] = step.After.Duration
		case plan.CreateMachine:
			created[step.Set]++
		}
	}
	latest := time.Duration(-1)
	for _, batch := range a.happened.deleted { // no machine is deleted before one that is planned earlier
		next := latest
		for _, name := range batch {
			planned, known := at[name]
			switch {
			case !known && a.plan.Machines.Created > 0 && !slices.ContainsFunc(a.plan.Steps, func(s plan.Step) bool {
				return s.Name == name
			}):
				a.wrong = append(a.wrong, "machine "+name+" is deleted, and no plan says so")
			case planned < latest:
				a.wrong = append(a.wrong, fmt.Sprintf("machine %s is deleted after others, and is planned before: %v, happened %v",
					name, at, a.happened.deleted))
			}
			next = max(next, planned)
		}
		latest = next
	}
	is := map[string]int{}
	for _, set := range slices.Concat(a.happened.created...) {
		is[set]++
	}
	note("machines created by MachineSet", created, is)
	switch planned := a.plan.Time.Median.Duration; {
	case planned == 0 && a.happened.took < 10*time.Second:
	case planned == 0:
		a.deviation = 1
	default:
		a.deviation = float64(a.happened.took-planned) / float64(planned)
	}
}
