package agent

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

const prefix = "machine-config-daemon.v1.openshift.com/"

// joined is a machine whose daemon runs against an API server in memory.
type joined struct {
	*machine

	server     *apiserver.Server
	newCluster func() *Cluster // as a process has it that starts
	writes     []string
}

// RoundTrip records writes.
func (j *joined) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		j.writes = append(j.writes, r.Method+" "+r.URL.Path)
	}
	return j.server.RoundTrip(r)
}

// join runs test in a bubble, with the Node n.
func join(t *testing.T, test func(j *joined)) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{machine: newMachine(t), server: apiserver.New("c", time.Now)}
		j.store("nodes", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n"}})
		j.store("nodes", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
			"name": "other", "annotations": map[string]any{prefix + "desiredConfig": "evil"},
		}})
		clients := apiserver.ClientsThrough(j)
		j.newCluster = func() *Cluster {
			return NewCluster(clients.Metadata.Resource(Nodes()), clients.Configs.RenderedMachineConfigs(), "n", v1alpha1.DaemonPrefix)
		}
		test(j)
	})
}

func (j *joined) store(resource string, document map[string]any) {
	j.Helper()
	if _, err := j.server.Put(resource, document); err != nil {
		j.Fatal(err)
	}
}

// publish stores a rendered configuration.
func (j *joined) publish(name, ignition string, spec map[string]any) {
	j.Helper()
	all := map[string]any{"config": map[string]any{"ignition": map[string]any{"version": "3.5.0"}}}
	if ignition != "" {
		all["config"] = map[string]any{"ignition": map[string]any{"version": "3.5.0"}, "storage": map[string]any{"files": []any{
			map[string]any{"path": "/etc/a", "contents": map[string]any{"source": "data:," + ignition}},
		}}}
	}
	maps.Copy(all, spec)
	j.store("renderedmachineconfigs", map[string]any{
		"apiVersion": "fleet.machine.sapcloud.io/v1alpha1", "kind": "RenderedMachineConfig", "metadata": map[string]any{"name": name},
		"spec": all,
	})
}

// daemon starts a daemon, and returns a function that ends it.
func (j *joined) daemon() (end func()) {
	j.Helper()
	cluster := j.newCluster()
	a, err := New(j.cfg, cluster)
	if err != nil {
		j.Fatal(err)
	}
	ctx, cancel := context.WithCancel(j.Context())
	var running sync.WaitGroup
	running.Go(func() { cluster.Run(ctx) })
	running.Go(func() {
		if err := a.Run(ctx, cluster.Changed()); err != nil {
			j.Errorf("the daemon has ended: %v", err)
		}
	})
	synctest.Wait()
	return func() {
		cancel()
		running.Wait()
	}
}

// annotate sets annotations of the Node.
func (j *joined) annotate(values map[string]string) {
	j.Helper()
	j.server.Edit("nodes", "", "n", func(u *unstructured.Unstructured) {
		all := u.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		for key, value := range values {
			all[prefix+key] = value
		}
		u.SetAnnotations(all)
	})
	synctest.Wait()
}

// expect compares the daemon's annotations. The reason has to contain the expected one.
func (j *joined) expect(current, state, reason, drain string) {
	j.Helper()
	u := j.server.Get("nodes", "", "n").DeepCopy()
	got := u.GetAnnotations()
	for key, want := range map[string]string{"currentConfig": current, "state": state, "desiredDrain": drain} {
		if got[prefix+key] != want {
			j.Errorf("%s: got %q, want %q (%s)", key, got[prefix+key], want, got[prefix+"reason"])
		}
	}
	if !strings.Contains(got[prefix+"reason"], reason) || reason == "" && got[prefix+"reason"] != "" {
		j.Errorf("reason: got %q, want %q", got[prefix+"reason"], reason)
	}
}

func TestUpdateInAClusterIsComplete(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		j.publish("b", "2", nil)
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		j.expect("a", "done", "", "")
		j.expectFile("/etc/a", "1")
		j.ran()

		j.annotate(map[string]string{"desiredConfig": "b"})
		j.expect("a", "working", "drained", "drain-b")
		j.expectFile("/etc/a", "1") // nothing is written before the drain
		j.annotate(map[string]string{"lastAppliedDrain": "drain-b"})
		j.expect("a", "working", "rebooting into b", "drain-b")
		j.ran("reboot")
		end()

		j.boot = "boot-2"
		end = j.daemon()
		j.expect("b", "working", "uncordoned", "uncordon-b")
		j.annotate(map[string]string{"lastAppliedDrain": "uncordon-b"})
		j.expect("b", "done", "", "uncordon-b")
		j.expectFile("/etc/a", "2")

		j.writes = nil
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(j.writes) > 0 {
			t.Errorf("writes at rest: %q", j.writes)
		}
		end()
	})
}

// The Node is read while the health of the machine is checked: what was decided without it does not
// remove its request for a drain.
func TestNodeIsReadDuringAStep(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", nil)
		j.publish("b", "2", nil)
		j.annotate(map[string]string{"desiredConfig": "a"})
		j.boot = "boot-0"
		end := j.daemon()
		j.annotate(map[string]string{"lastAppliedDrain": "drain-a"})
		end()
		j.boot = "boot-1"
		j.cfg.Unhealthy = func(context.Context) string {
			time.Sleep(time.Second)
			return ""
		}
		end = j.daemon()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		j.expect("a", "working", "uncordoned", "uncordon-a")
		end()
	})
}

func TestUnreconcilableConfigurationIsNeitherWrittenNorDrainedFor(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", map[string]any{"fips": true})
		j.publish("b", "2", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		j.expect("", "unreconcilable", "fips: ", "")
		j.expectFile("/etc/a", "absent")
		j.annotate(map[string]string{"desiredConfig": "b"})
		j.expect("b", "done", "", "")
		end()
	})
}

func TestMissingAndInvalidConfigurationsAreReported(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("bad", "", map[string]any{"actions": []any{map[string]any{"path": "x", "action": "None"}}})
		j.annotate(map[string]string{"desiredConfig": "bad"})
		end := j.daemon()
		j.expect("", "unreconcilable", "absolute path", "")
		j.annotate(map[string]string{"desiredConfig": "a"})
		j.expect("", "degraded", "not found", "")
		j.publish("a", "1", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		j.expect("a", "done", "", "")
		end()
	})
}

func TestDeletedCurrentConfigurationIsReadFromTheCopy(t *testing.T) {
	join(t, func(j *joined) {
		none := map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}, "osImageURL": "image"}
		j.cfg.Provisioned = true
		j.publish("a", "1", none)
		j.publish("b", "2", none)
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		j.expect("a", "done", "", "")
		j.server.Remove("renderedmachineconfigs", "", "a")
		j.annotate(map[string]string{"desiredConfig": "b"})
		j.expect("b", "done", "", "") // the field that both have did not change
		end()
	})
}

func TestUnhealthyMachineGetsAnotherTarget(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		j.publish("b", "2", nil)
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		j.annotate(map[string]string{"desiredConfig": "b"})
		j.annotate(map[string]string{"lastAppliedDrain": "drain-b"})
		end()
		j.boot = "boot-2"
		j.sick.Store(true)
		end = j.daemon()
		j.expect("a", "working", "the kubelet does not answer", "drain-b")
		j.annotate(map[string]string{"desiredConfig": "a"}) // back
		j.sick.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		j.expect("a", "working", "uncordoned", "uncordon-a")
		j.expectFile("/etc/a", "1")
		end()
	})
}

func TestHealthTimeoutRollsBackAndStops(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		j.publish("b", "2", nil)
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		j.annotate(map[string]string{"desiredConfig": "b"})
		j.annotate(map[string]string{"lastAppliedDrain": "drain-b"})
		for _, boot := range []string{"boot-2", "boot-4"} {
			j.ran("reboot")
			j.expectFile("/etc/a", "2")
			end()
			j.boot = boot
			j.sick.Store(true)
			end = j.daemon()
			time.Sleep(j.cfg.HealthWithin + time.Second)
			synctest.Wait()
			j.expectFile("/etc/a", "1")
			j.ran("reboot")
			end()
			j.boot = boot + "-back"
			j.sick.Store(false)
			end = j.daemon()
		}
		j.ran()
		j.expect("a", "degraded", "is not tried again", "drain-b")
		j.annotate(map[string]string{"desiredConfig": "a"})
		j.annotate(map[string]string{"lastAppliedDrain": "uncordon-a"})
		j.expect("a", "done", "", "uncordon-a")
		end()
	})
}

func TestDriftIsReportedUntilItEnds(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		good := j.file("/etc/a")
		j.put("/etc/a", "secret")
		time.Sleep(j.cfg.DriftInterval + time.Second)
		synctest.Wait()
		j.expect("a", "degraded", "/etc/a: expected content of 1 bytes", "")
		j.put("/etc/a", good)
		time.Sleep(j.cfg.DriftInterval + time.Second)
		synctest.Wait()
		j.expect("a", "done", "", "")
		end()
	})
}

func TestForeignEditOfAReportIsCorrected(t *testing.T) {
	join(t, func(j *joined) {
		j.publish("a", "1", map[string]any{"actions": []any{map[string]any{"path": "/etc", "action": "None"}}})
		j.annotate(map[string]string{"desiredConfig": "a"})
		end := j.daemon()
		j.annotate(map[string]string{"state": "Working", "currentConfig": "x"})
		j.expect("a", "done", "", "")
		end()
		for _, w := range j.writes {
			if diff := cmp.Diff("PATCH /api/v1/nodes/n", w); diff != "" {
				t.Errorf("a write of something else than the own Node: %s", w)
			}
		}
	})
}
