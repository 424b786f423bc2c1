package replica

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// applyTime is how long a daemon takes for a configuration, with the reboot.
const applyTime = 20 * time.Second

// daemons are the machine config daemons on the VMs of the trial. The real decisions of a daemon
// are taken; files and reboots are times.
type daemons struct {
	*trial

	refused map[string]bool // configurations that differ in a field which cannot be changed in place

	mu    sync.Mutex
	first map[string]string  // configuration in the user data, by machine
	on    map[string]*daemon // by Node
}

// daemon is the disk of the machine config daemon of one Node.
type daemon struct {
	current, applying string
	since             time.Time
	hasApplied        bool // anything but its first configuration
}

func newDaemons(t *trial) *daemons {
	d := &daemons{trial: t, refused: map[string]bool{}, first: map[string]string{}, on: map[string]*daemon{}}
	t.wrapDriver = func(inner driver.Driver) driver.Driver { return &recordingDriver{Driver: inner, daemons: d} }
	return d
}

// recordingDriver keeps the configurations in user data.
type recordingDriver struct {
	driver.Driver

	daemons *daemons
}

// CreateMachine is driver.Driver's.
func (r *recordingDriver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	var o fleetv1alpha1.RenderedMachineConfig
	content, err := base64.StdEncoding.DecodeString(string(req.UserData))
	if err == nil {
		var unzip *gzip.Reader
		if unzip, err = gzip.NewReader(bytes.NewReader(content)); err == nil {
			if content, err = io.ReadAll(unzip); err == nil {
				err = json.Unmarshal(content, &o)
			}
		}
	}
	if err != nil || !o.Verify() {
		r.daemons.fail("machine %s boots with %q (%v), which is no RenderedMachineConfig", req.Machine.Name, req.UserData, err)
	}
	r.daemons.mu.Lock()
	r.daemons.first[req.Machine.Name] = o.Name
	r.daemons.mu.Unlock()
	return r.Driver.CreateMachine(ctx, req)
}

// step lets every daemon observe its Node, and report.
func (d *daemons) step() {
	for _, cluster := range d.clusters() {
		for _, node := range cluster.List("nodes") {
			d.mu.Lock()
			first, isMachine := d.first[node.GetName()]
			if isMachine && d.on[node.GetName()] == nil {
				d.on[node.GetName()] = &daemon{current: first}
			}
			d.mu.Unlock()
			if isMachine {
				d.on[node.GetName()].step(d, cluster, node)
			}
		}
	}
}

// clusters returns all target clusters.
func (t *trial) clusters() []*apiserver.Server {
	all := []*apiserver.Server{t.target}
	for _, own := range t.ownTargets {
		if !slices.Contains(all, own) {
			all = append(all, own)
		}
	}
	return all
}

func (m *daemon) step(d *daemons, cluster *apiserver.Server, node *apiserver.Object) {
	prefix, annotations := fleetv1alpha1.DaemonPrefix, node.GetAnnotations()
	if m.applying != "" && time.Since(m.since) >= applyTime {
		m.current, m.applying, m.hasApplied = m.applying, "", true
		d.setReady(cluster, node.GetName(), "True")
	}
	if m.applying != "" {
		return // the VM boots
	}
	w := lifecycle.World{
		Now: time.Now(), Desired: annotations[prefix.DesiredConfig()], Current: m.current, DrainsNode: true,
		Drain: annotations[prefix.DesiredDrain()], Drained: annotations[prefix.LastAppliedDrain()],
	}
	w.Target = lifecycle.Target{IsKnown: true, Digest: w.Desired, NeedsDrain: true, DrainSince: time.Now()}
	if d.refused[w.Desired] {
		w.Target.Refused = []plan.Refusal{{Field: "fips", Message: "it cannot be changed in place"}}
	}
	v := lifecycle.Decide(w)
	report := map[string]string{
		prefix.CurrentConfig(): v.Report.Current, prefix.State(): string(v.Report.State), prefix.Reason(): v.Report.Reason,
		prefix.DesiredDrain(): v.Report.Drain,
	}
	differs := func(key string) bool { return annotations[key] != report[key] }
	if slices.ContainsFunc([]string{prefix.CurrentConfig(), prefix.State(), prefix.Reason(), prefix.DesiredDrain()}, differs) {
		cluster.Edit("nodes", "", node.GetName(), func(u *unstructured.Unstructured) {
			all := u.GetAnnotations()
			if all == nil {
				all = map[string]string{}
			}
			for key, value := range report {
				if all[key] = value; value == "" {
					delete(all, key)
				}
			}
			u.SetAnnotations(all)
		})
	}
	if v.Do == lifecycle.Apply {
		if cordoned, _, _ := unstructured.NestedBool(node.Object, "spec", "unschedulable"); !cordoned {
			d.fail("the daemon of Node %s applies %s, and pods may be on the Node", node.GetName(), w.Desired)
		}
		m.applying, m.since = w.Desired, time.Now()
		d.setReady(cluster, node.GetName(), "False")
	}
}

// setReady sets the condition Ready of a Node, as its kubelet does.
func (d *daemons) setReady(cluster *apiserver.Server, node, status string) {
	cluster.Edit("nodes", "", node, func(u *unstructured.Unstructured) {
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
				c["status"], c["lastTransitionTime"] = status, time.Now().UTC().Format(time.RFC3339)
			}
		}
		_ = unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions") // it is an object
	})
}
