//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

// TestPromises checks the guarantees of a lab to its users, with a working fleet.
func TestPromises(t *testing.T) {
	t.Parallel()
	newSpace(t, shared(t), "promises", "").promises()
}

// TestSmallLab uses a separate lab with one cluster, in addition to the shared one: a fleet that has to be idle must not serve
// other tests.
func TestSmallLab(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "small")
	// First, because it counts all writes.
	t.Run("Writes", func(t *testing.T) { newSpace(t, lab, "writes", "").fewWrites() })
	t.Run("Promises", func(t *testing.T) { newSpace(t, lab, "promises", "").promises() })
	t.Run("MainJob", func(t *testing.T) { newSpace(t, lab, "main-job", "").mainJob() })
	t.Run("Idle", func(t *testing.T) {
		s := newSpace(t, lab, "idle", "")
		s.deploy("pool", 3)
		s.running("pool", 3)
		s.reports("pool", 3)
		s.idle(5 * time.Second)
	})
	t.Run("StopTime", func(t *testing.T) { newSpace(t, lab, "stop-time", "").stops() })
	t.Run("MCMsDefinitions", func(t *testing.T) {
		installMCMs(t, lab)
		t.Run("MainJob", func(t *testing.T) { onMCMs(t, lab, "main-job").mainJob() })
	})
}

// promises checks that a lab has the files that its users rely on.
func (s *space) promises() {
	name := s.name + "-vm"
	s.createMachine(name)
	s.running("", 1)
	s.joined()

	for _, file := range []string{"admin.kubeconfig", "target.kubeconfig", "endpoints.json", "logs/fleet-0.log", "logs/cloudsim.log", "logs/etcd.log"} {
		if _, err := os.Stat(filepath.Join(s.lab.Dir, file)); err != nil {
			s.Error(err)
		}
	}
	pids, err := s.lab.Pids()
	s.must(err)
	alive := map[int]bool{}
	for p := range processes(s.T) {
		alive[p.pid] = true
	}
	for _, process := range []string{"launcher", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "cloudsim", "fleet-0"} {
		if !alive[pids[process]] {
			s.Errorf("pids.json names %d for %s, and that does not live", pids[process], process)
		}
	}
	requests, err := s.lab.Requests(harness.AuditPosition{})
	s.must(err)
	if !slices.ContainsFunc(requests, func(r harness.Request) bool {
		return r.User == harness.Fleet && r.IsWrite() && r.Resource == "machines" && r.Namespace == s.name && r.Name == name
	}) {
		s.Errorf("none of %d requests in the audit log is a write of %s to machine %s", len(requests), harness.Fleet, name)
	}
	calls, err := s.lab.Cloud.Calls()
	s.must(err)
	made := slices.DeleteFunc(calls, func(c cloudapi.Call) bool {
		return c.Operation != cloudapi.OpCreateInstance || c.Machine != name || !c.Changed
	})
	if len(made) != 1 || !strings.Contains(made[0].Caller, harness.Fleet) || made[0].Token == "" || !made[0].End.After(made[0].Start) {
		s.Errorf("want one create of %s in the call log, with caller, token and times, got %+v", name, made)
	}
	s.remove("machines", name)
	s.gone()
}

// fewWrites counts the fleet's writes from the creation of machines to their end. TestALifeTakesFewWrites in controllers/machine
// states the purpose of each of the 13 writes of a life: of the Machine, its Node and its token. The others are of the set, its
// parent, the class and its Secret. Their number depends on how many machines a pass sees change at once, 14 in all on an idle
// computer and 21 on a busy one, so that it takes twenty machines to measure what one costs.
func (s *space) fewWrites() {
	s.Helper()
	const machines, mostOfLives, most = 20, 13, 15
	position, err := s.lab.AuditEnd()
	s.must(err)
	s.deploy("pool", machines)
	s.running("pool", machines)
	s.joined()
	s.remove("machinedeployments", "pool")
	s.gone()
	requests, err := s.lab.Requests(position)
	s.must(err)
	total, ofLives, writes := 0, 0, map[string]int{}
	for _, r := range requests {
		if !r.IsFleet() || !r.IsWrite() {
			continue
		}
		total++
		if r.Resource == "machines" || r.Resource == "nodes" || r.Resource == "secrets" && r.Verb != "update" {
			ofLives++
		}
		writes[strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
	}
	if ofLives >= machines*(mostOfLives+1) { // a single write may be repeated
		s.Errorf("the lives of %d machines took %d writes, want about %d each: %v", machines, ofLives, mostOfLives, writes)
	}
	if total > machines*most {
		s.Errorf("%d machines took %d writes, want at most %d each: %v", machines, total, most, writes)
	}
	for _, what := range []string{"create secrets", "delete secrets", "patch nodes", "patch nodes/status", "patch machines", "patch machines/status", "delete nodes"} {
		if writes[what] < machines {
			s.Errorf("for %d machines there were %d of %q; is the log complete?", machines, writes[what], what)
		}
	}
	s.Logf("%d machines took %d writes: %v", machines, total, writes)
}

// idle checks that the fleet becomes idle: that for a span it writes nothing and reads almost nothing.
func (s *space) idle(span time.Duration) {
	s.Helper()
	s.eventually("the fleet rests", func(ctx context.Context) error {
		position, err := s.lab.AuditEnd()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(span):
		}
		requests, err := s.lab.Requests(position)
		if err != nil {
			return err
		}
		var wrong complaints
		reads := map[string]int{}
		for _, r := range requests {
			what := strings.TrimSuffix(fmt.Sprintf("%s %s/%s/%s", r.Verb, r.Resource, r.Name, r.Subresource), "/")
			wrong.unless(!r.IsFleet() || !r.IsWrite(), "in %s it wrote: %s", span, what)
			if r.IsFleet() && !r.IsWrite() {
				reads[what]++
			}
		}
		// A watch may end, and is restarted.
		wrong.unless(len(reads) <= 2, "in %s it read %v", span, reads)
		for what, times := range reads {
			wrong.unless(times == 1, "in %s it read %d times: %s", span, times, what)
		}
		return wrong.err()
	})
}

// installMCMs replaces the fleet's definitions by MCM's, and restarts the fleet on them. It waits until the fleet
// holds its slots: a replica that is killed before that gets them only after its session Lease has expired, and a quarantine.
func installMCMs(t *testing.T, lab *harness.Lab) {
	t.Helper()
	if err := lab.WaitHeld(t.Context(), lab.SlotCount); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(lab.Config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := mcmcrds.Lenient()
	if err != nil {
		t.Fatal(err)
	}
	if err := mcmcrds.Replace(t.Context(), client, definitions); err != nil {
		t.Fatal(err)
	}
	if err := lab.Restart(t.Context(), harness.Fleet); err != nil {
		t.Fatal(err)
	}
}

func onMCMs(t *testing.T, lab *harness.Lab, name string) *space {
	t.Helper()
	s := newSpace(t, lab, name, "")
	s.lenient = true
	return s
}
