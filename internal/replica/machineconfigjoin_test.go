package replica

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// joined is a trial with a pool "p" whose configurations go through the MachineDeployment a/d.
type joined struct {
	*trial

	daemons *daemons
	pool    *fleetv1alpha1.MachineConfigPool
	root    *root
}

const replicasOfJoined = 3

// onJoined runs replicas with machine configuration, and a MachineDeployment with a strategy.
func onJoined(t *testing.T, strategy map[string]any, test func(j *joined)) {
	t.Helper()
	o := replicaOptions(func(o *Options) {
		o.Configs.Enabled, o.Machine.ComponentsTaint = true, false
		o.Health.Timeout, o.Machine.InPlaceUpdateTimeout = 2*time.Minute, 10*time.Minute
	})
	t.Parallel()
	for seed := range uint64(worlds.Some(4)) {
		synctest.Test(t, func(t *testing.T) {
			j := &joined{trial: newTrial(t, o, seed, &strings.Builder{})}
			defer j.end()
			j.daemons = newDaemons(j.trial)
			j.createUnmanaged()
			j.createClass("a")
			j.control.Edit("secrets", "a", "small", func(u *unstructured.Unstructured) {
				u.Object["data"] = map[string]any{"userData": base64.StdEncoding.EncodeToString([]byte(v1alpha1.PlaceholderMachineConfig))}
			})
			j.pool = &fleetv1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			j.pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "p"}}
			j.pool.Spec.MachineRef = &fleetv1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: "a", Name: "d"}
			j.pool.Spec.Rollout = fleetv1alpha1.RolloutMachineDeployment
			j.putTyped("machineconfigpools", "MachineConfigPool", j.pool)
			j.root = j.putRoot("a", "d", replicasOfJoined)
			j.control.Edit("machinedeployments", "a", "d", func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedMap(u.Object, strategy, "spec", "strategy") // it is an object
			})
			for i := range 2 {
				j.start(fmt.Sprint("fleet-", i))
			}
			test(j)
			if j.wrong != "" || t.Failed() {
				j.logObjects()
				t.Errorf("seed %d: %s\n%s", seed, j.wrong, j.story)
			}
		})
	}
}

func (j *joined) putTyped(resource, kind string, o any) {
	j.Helper()
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		j.Fatal(err)
	}
	document["apiVersion"], document["kind"] = fleetv1alpha1.SchemeGroupVersion.String(), kind
	j.put(j.target, resource, document)
}

// configure changes the MachineConfig of the pool, and has it rendered, like the RenderController
// does; it returns the target.
func (j *joined) configure(content string) string {
	j.Helper()
	mc := &fleetv1alpha1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-base", Labels: map[string]string{"pool": "p"}}}
	mc.Spec.Config.Raw = fmt.Appendf(nil,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,%s"}}]}}`, content)
	w := merge.World{Now: time.Now(), Pool: j.pool, Configs: []*fleetv1alpha1.MachineConfig{mc}, Replaced: true}
	v := merge.Prepare(w).Decide(w)
	if v.Create == nil {
		j.Fatalf("nothing was rendered: %+v", v)
	}
	j.putTyped("machineconfigs", "MachineConfig", mc)
	if j.target.Get("renderedmachineconfigs", "", v.Target) == nil {
		j.putTyped("renderedmachineconfigs", "RenderedMachineConfig", v.Create)
	}
	j.editPool(func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, v.Target, "status", "currentMachineConfig") // it is an object
	})
	j.logf("the target is %s, of %s", v.Target, content)
	return v.Target
}

func (j *joined) editPool(edit func(u *unstructured.Unstructured)) {
	j.target.Edit("machineconfigpools", "", "p", edit)
}

func (j *joined) pause(paused bool) {
	j.editPool(func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, paused, "spec", "paused") // it is an object
	})
}

// until lets time pass, with the daemons, until cond holds, and fails if it does not. As long as
// kills is true, a process is killed at times.
func (j *joined) until(what string, kills bool, cond func() bool) {
	j.Helper()
	next := time.Now()
	if !j.run(time.Hour, func() bool {
		j.daemons.step()
		j.checkBudget()
		if alive := j.alive(); kills && len(alive) == 2 && time.Now().After(next) {
			alive[j.random.IntN(2)].crash()
			next = time.Now().Add(j.between(10*time.Second, 2*time.Minute))
		}
		return cond()
	}) {
		j.Errorf("%s does not come true: %s %s", what, j.missing(), j.wrong)
		j.logObjects()
		j.Fatal(j.story)
	}
	j.checkSizes()
}

// checkBudget: no more Nodes are unavailable than the MachineDeployment allows.
func (j *joined) checkBudget() {
	updated := 0
	for _, node := range j.target.List("nodes") {
		cordoned, _, _ := unstructured.NestedBool(node.Object, "spec", "unschedulable")
		if cordoned && node.GetLabels()[v1alpha1.LabelSelectedForUpdate] == "true" {
			updated++
		}
	}
	if updated > 1 {
		j.fail("%d Nodes are updated at a time, and 1 is allowed", updated)
	}
}

// haveAll reports whether all machines run, are of a template with the configuration, and have it.
func (j *joined) haveAll(config string) bool {
	for _, m := range j.control.List("machines") {
		node := j.target.Get("nodes", "", m.GetName())
		if node == nil || m.GetAnnotations()[fleetv1alpha1.AnnotationMachineConfig] != config {
			return false
		}
		a := node.GetAnnotations()
		p := fleetv1alpha1.DaemonPrefix
		cordoned, _, _ := unstructured.NestedBool(node.Object, "spec", "unschedulable")
		if a[p.CurrentConfig()] != config || a[p.DesiredConfig()] != config || a[p.State()] != "done" || cordoned ||
			node.GetLabels()[v1alpha1.LabelUpdateResult] != "" {
			return false
		}
	}
	return j.missing() == ""
}

func (j *joined) stamp() string {
	stamp, _, _ := unstructured.NestedString(j.control.Get("machinedeployments", "a", "d").Object, "spec", "template", "metadata",
		"annotations", fleetv1alpha1.AnnotationMachineConfig)
	return stamp
}

// machines returns the UIDs of the machines, sorted.
func (j *joined) machines() (uids []string) {
	for _, m := range j.control.List("machines") {
		uids = append(uids, string(m.GetUID()))
	}
	slices.Sort(uids)
	return uids
}

func inPlaceStrategy() map[string]any {
	return map[string]any{
		"type": "InPlaceUpdate", "inPlaceUpdate": map[string]any{"maxUnavailable": int64(1), "maxSurge": int64(0), "orchestrationType": "Auto"},
	}
}

// TestPoolUpdatesMachinesInPlace: the target of a pool goes into the template, and the daemons are
// the agents of the update in place. The VMs stay. Replicas are killed at any moment. A paused pool
// changes nothing. A target that changes in the middle is reached all the same.
func TestPoolUpdatesMachinesInPlace(t *testing.T) {
	onJoined(t, inPlaceStrategy(), func(j *joined) {
		first := j.configure("1")
		j.until("the machines run", false, func() bool { return j.haveAll(first) })
		machines := j.machines()
		second := j.configure("2")
		j.until("all are updated", true, func() bool { return j.haveAll(second) })
		j.pause(true)
		third := j.configure("3")
		j.run(10*time.Minute, func() bool { j.daemons.step(); return false })
		if got := j.stamp(); got != second {
			j.Errorf("the pool is paused, and the template has %s, want %s", got, second)
		}
		j.pause(false)
		j.until("the first one is assigned the third", false, func() bool {
			return slices.ContainsFunc(j.target.List("nodes"), func(n *apiserver.Object) bool {
				return n.GetAnnotations()[fleetv1alpha1.DaemonPrefix.DesiredConfig()] == third
			})
		})
		fourth := j.configure("4")
		j.until("all have the fourth", true, func() bool { return j.haveAll(fourth) })
		if got := j.machines(); !slices.Equal(got, machines) {
			j.Errorf("machines were replaced: %v, want %v", got, machines)
		}
	})
}

// TestUnreconcilableChangeReplacesMachines: what a daemon cannot change in place fails, and the
// machine is replaced by one that boots with it.
func TestUnreconcilableChangeReplacesMachines(t *testing.T) {
	onJoined(t, inPlaceStrategy(), func(j *joined) {
		first := j.configure("1")
		j.until("the machines run", false, func() bool { return j.haveAll(first) })
		machines := j.machines()
		second := j.configure("2")
		j.daemons.refused[second] = true
		j.until("all are replaced", true, func() bool { return j.haveAll(second) })
		j.mustHaveBooted(machines)
	})
}

// TestPoolReplacesMachines: with RollingUpdate machines boot with the new configuration, and no
// daemon changes one.
func TestPoolReplacesMachines(t *testing.T) {
	strategy := map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(1), "maxSurge": int64(1)}}
	onJoined(t, strategy, func(j *joined) {
		first := j.configure("1")
		j.until("the machines run", false, func() bool { return j.haveAll(first) })
		machines := j.machines()
		second := j.configure("2")
		j.daemons.refused[second] = true
		j.until("all are replaced", true, func() bool { return j.haveAll(second) })
		j.mustHaveBooted(machines)
	})
}

// mustHaveBooted fails unless all machines are others, and have what they have booted with.
func (j *joined) mustHaveBooted(before []string) {
	j.Helper()
	for _, m := range j.control.List("machines") {
		if slices.Contains(before, string(m.GetUID())) || j.daemons.on[m.GetName()].hasApplied {
			j.Errorf("machine %s was updated, and not replaced", m.GetName())
		}
	}
}

// TestMachineWaitsForAConfiguration: user data has a placeholder, and the pool is created later.
func TestMachineWaitsForAConfiguration(t *testing.T) {
	onJoined(t, inPlaceStrategy(), func(j *joined) {
		j.run(2*time.Minute, nil)
		j.checkSizes()
		for _, m := range j.control.List("machines") {
			why, _, _ := unstructured.NestedString(m.Object, "status", "lastOperation", "description")
			if !strings.Contains(why, "nothing was rendered for MachineConfigPool p") {
				j.Errorf("machine %s says %q", m.GetName(), why)
			}
		}
		if vms := len(j.cloud.Live()) - unmanagedVMs; vms > 0 {
			j.Errorf("%d VMs were created", vms)
		}
		begun := time.Now()
		first := j.configure("1")
		j.until("the machines run", false, func() bool { return j.haveAll(first) })
		if took := time.Since(begun); took > time.Minute {
			j.Errorf("it took %s", took)
		}
	})
}
