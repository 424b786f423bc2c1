package orphans

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// fail has requests fail about objects whose names end with a text.
func (s *sweeping) fail(what, name string) {
	s.Fault(func(r apiserver.Request) error {
		if r.What() == what && strings.HasSuffix(r.Name, name) {
			return errors.New("the connection was closed")
		}
		return nil
	})
}

// A sweep in which a read or a write fails deletes nothing that depends on it, and reports the
// error.
func TestSweepWithAFailedRequestDeletesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		what, name string
		err        string
	}{
		"one Machine by its name":      {"get machines", "machine-of-1", "read Machine machine-of-1"},
		"the other Machine by name":    {"get machines", "machine-of-2", "read Machine machine-of-2"},
		"the list of Machines":         {"list machines", "", "list the Machines"},
		"the list of MachineClasses":   {"list machineclasses", "", "list the MachineClasses"},
		"the record of suspicions":     {"patch machineclasses", "", "record the suspicions"},
		"the read of the reservations": {"get leases", "fleet-safety", "read Lease"},
		"the reservation":              {"create leases", "", "reserve deletions"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.add(driver.ResourceVM, namespace, "1", "2")
			s.sweep(namespace)
			s.fail(c.what, c.name)
			s.fails(c.err)
			s.wantDeleted()
			s.Fault(nil)
			s.sweep(namespace)
			s.wantDeleted("1", "2")
		})
	}
}

func TestSweepReportsACloudThatCannotBeListed(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	s.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpResources)
	s.fails("injected by the test")
	s.wantDeleted()
}

// A driver that repeats pages must not occupy the leader, nor its memory.
func TestSweepOfRepeatedPagesEndsWithAnError(t *testing.T) {
	for name, c := range map[string]struct {
		pages int
		fails bool
	}{"as many as allowed": {4, false}, "one page more": {5, true}} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.cloud.Page = driver.MaxListed
			for range c.pages * driver.MaxListed {
				s.addResource(driver.Resource{Namespace: namespace})
			}
			if c.fails {
				s.fails("repeats pages")
				return
			}
			s.sweep(namespace)
		})
	}
}

// endless is a cloud whose lists do not end: its pages are empty, and each has another token.
type endless struct {
	driver.Sweeper

	pages int
	sends func()
}

func (e *endless) ListResources(context.Context, driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	e.pages++
	e.sends()
	return driver.ListResourcesResponse{Continue: fmt.Sprint(e.pages)}, nil
}

// A cloud without an end occupies the leader, which sweeps few namespaces at a time, neither by the
// number of its pages nor by their time.
func TestSweepOfAnEndlessListEndsWithAnError(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // each page
		want  int
	}{"quick": {0, mostPages}, "slow": {time.Minute, int(longestList/time.Minute) + 1}} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			cloud := &endless{Sweeper: s.cloud.Driver(), sends: func() { s.clock.Step(c.takes) }}
			s.config.Sweeper = func(string) (driver.Sweeper, bool) { return cloud, true }
			s.lead()
			s.fails("expected the end")
			if cloud.pages != c.want {
				t.Errorf("%d pages were read, want %d", cloud.pages, c.want)
			}
		})
	}
}

// Whether another manager serves the namespace is asked before the sweep, and again before the
// first deletion. Without an answer nothing is done.
func TestSweepUnknownWhetherServedIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error // for each time
		served  bool
	}{
		"before the sweep": {[]error{errors.New("no answer")}, false}, "before the sweep, with a value": {[]error{errors.New("no answer")}, true},
		"before the deletion": {[]error{nil, errors.New("no answer")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := newSweeping(t, 10), 0
			s.add(driver.ResourceVM, namespace, "vm")
			s.sweep(namespace)
			s.config.Served = func(context.Context, string) (bool, error) {
				err := c.answers[min(asked, len(c.answers)-1)]
				asked++
				return c.served || err == nil, err
			}
			s.orphans.cfg.Served = s.config.Served
			s.fails("no answer")
			s.wantDeleted()
			if asked != len(c.answers) {
				t.Errorf("asked %d times, want %d", asked, len(c.answers))
			}
		})
	}
}

// putMachine puts a Machine with a provider ID and returns its UID.
func (s *sweeping) putMachine(name, providerID string) types.UID {
	s.Helper()
	document := machineDocument(namespace, name, class)
	_ = unstructured.SetNestedField(document, providerID, "spec", "providerID")
	o, err := s.Put("machines", document)
	if err != nil {
		s.Fatal(err)
	}
	return o.GetUID()
}

// Of two VMs of a Machine the one that it does not name is deleted; but not when the Machine that
// was read is not the one that was listed.
func TestSweepTwoVMsOfAMachine(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *sweeping) // between the list of Machines and the read of this one
		want      []string
	}{
		"it exists":       {func(*sweeping) {}, []string{"w"}},
		"it is gone":      {func(s *sweeping) { s.Remove("machines", namespace, "m") }, nil},
		"it is a new one": {func(s *sweeping) { s.Remove("machines", namespace, "m"); s.putMachine("m", "v") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			uid, changed := s.putMachine("m", "v"), false
			for _, id := range []string{"v", "w"} {
				s.addResource(driver.Resource{Kind: driver.ResourceVM, ID: id, Namespace: namespace, Machine: "m", MachineUID: uid, NodeName: id})
			}
			s.cloud.Way = func(_ context.Context, call fakecloud.Call, send func() error) error {
				if call.Op == driver.OpResources && !changed {
					defer c.meanwhile(s)
					changed = true
				}
				return send()
			}
			s.sweep(namespace)
			if record := s.Get("machineclasses", namespace, class).GetAnnotations()[v1alpha1.AnnotationOrphans]; (record != "") != (c.want != nil) {
				t.Errorf("record %q after the first sweep", record)
			}
			if c.want != nil {
				s.sweep(namespace)
			}
			s.wantDeleted(c.want...)
		})
	}
}

// A Machine that cannot be decoded protects its VM; one of which not even that can be read protects
// all of the namespace.
func TestSweepMachineThatCannotBeDecoded(t *testing.T) {
	broken := func(name string, spec map[string]any) func(s *sweeping) {
		return func(s *sweeping) {
			spec["class"] = map[string]any{"kind": "MachineClass", "name": class}
			s.put("machines", map[string]any{
				"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": map[string]any{"namespace": namespace, "name": name},
				"spec": spec,
			})
		}
	}
	for name, c := range map[string]struct {
		put   func(s *sweeping)
		want  []string
		fails bool
	}{
		"that has the VM": {broken("x", map[string]any{"providerID": "vm", "nodeTemplate": "none"}), nil, false},
		"that has another VM": {
			broken("x", map[string]any{"providerID": "other", "nodeTemplate": "none"}), []string{"vm"}, false,
		},
		"of the name, with another VM": {
			broken("machine-of-vm", map[string]any{"providerID": "other", "nodeTemplate": "none"}), []string{"vm"}, false,
		},
		"of an unknown VM":                       {broken("x", map[string]any{"providerID": map[string]any{}}), nil, false},
		"of the name, and whose VM is not known": {broken("machine-of-vm", map[string]any{"providerID": map[string]any{}}), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			c.put(s)
			s.add(driver.ResourceVM, namespace, "vm")
			s.sweep(namespace)
			if c.fails {
				s.fails("cannot be decoded")
			} else {
				s.sweep(namespace)
			}
			s.wantDeleted(c.want...)
		})
	}
}

// A suspect costs no reads before it is old enough, and the age that suffices is the quarantine
// exactly.
func TestSweepYoungSuspectsCostNoReads(t *testing.T) {
	s := newSweeping(t, 10)
	s.config.Quarantine = timeBetween
	s.lead()
	s.add(driver.ResourceVM, namespace, "old")
	s.sweep(namespace)
	if n := s.Count("get machines", "list machines"); n != 1 {
		t.Errorf("%d reads of Machines, want the list of their UIDs", n)
	}
	if n := s.Count("get leases", "list leases"); n != 0 {
		t.Errorf("%d reads of the reservations without a deletion", n)
	}
	s.add(driver.ResourceVM, namespace, "young")
	s.sweep(namespace)
	for _, r := range s.Requests() {
		if r.Name == "machine-of-young" {
			t.Errorf("%s of a young suspect", r.What())
		}
	}
	s.wantDeleted("old")
}

// A target cluster that does not exist has no Nodes.
func TestAMissingTargetClusterHasNoNodes(t *testing.T) {
	s := newSweeping(t, 10)
	s.config.Targets = target.Single{}
	s.lead()
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweepTwice()
	s.wantDeleted("vm")
}

// away is a target cluster that is not available, or that is being connected to for as long as a
// caller waits.
type away struct {
	target.None

	hangs bool
}

func (a away) Open(ctx context.Context, namespace string) (*target.Cluster, func(), error) {
	if a.hangs {
		<-ctx.Done()
		return nil, nil, fmt.Errorf("connect: %w", ctx.Err())
	}
	return nil, nil, &target.UnavailableError{Namespace: namespace, Reason: "its Secret is missing"}
}

// The VMs of a target cluster that is not available are held: their Nodes may run pods. What has no
// Node is deleted. The sweep is complete, and ends in time.
func TestSweepTargetClusterThatIsNotAvailable(t *testing.T) {
	for why, cluster := range map[string]away{"its Secret is missing": {}, "connect: context deadline exceeded": {hangs: true}} {
		synctest.Test(t, func(t *testing.T) {
			s, began := newSweeping(t, 10), time.Now()
			s.config.Targets = cluster
			s.lead()
			s.add(driver.ResourceVM, namespace, "vm")
			s.add(driver.ResourceDisk, namespace, "disk")
			s.sweepTwice()
			s.wantDeleted("disk")
			if text := s.lastHeld(); !strings.HasPrefix(text,
				"Held 1 orphans: its Node may run pods, and the target cluster is not available ("+why+"). To delete") {
				t.Errorf("Event %q", text)
			}
			if took := time.Since(began); took > longestOpen {
				t.Errorf("the sweeps took %s", took)
			}
			s.approve(s.digest("vm"))
			s.sweep(namespace)
			s.wantDeleted("disk", "vm")
		})
	}
}

// A target cluster that answers no more while a Node is read ends the sweep in time.
func TestSweepTargetClusterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSweeping(t, 10)
		s.add(driver.ResourceVM, namespace, "1", "2")
		s.sweep(namespace)
		began := time.Now()
		s.Fault(func(r apiserver.Request) error {
			if r.What() == "get nodes" {
				<-r.Context().Done()
			}
			return r.Context().Err()
		})
		s.fails("context deadline exceeded")
		if took := time.Since(began); took > longestRead {
			t.Errorf("the sweep took %s", took)
		}
		s.wantDeleted()
	})
}

// Only the condition Ready counts.
func TestSweepNodeWithAnotherTrueConditionIsNotReady(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.put("nodes", map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-of-vm"}, "spec": map[string]any{"providerID": "vm"},
		"status": map[string]any{
			"conditions": []any{map[string]any{"type": "DiskPressure", "status": "True"}, map[string]any{"type": "Ready", "status": "Unknown"}},
		},
	})
	s.sweepTwice()
	s.wantDeleted("vm")
}

// record puts a record onto the MachineClass, as another client does.
func (s *sweeping) record(text string) {
	s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationOrphans: text})
	})
}

// The time before this process first read a record does not count, regardless of what the record
// says about who wrote it.
func TestRecordWithoutTokenOfAWriteHasTheAgeThatItStates(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	forged := decide.Record{
		Scope: decide.ScopeKey(providerOfClass, "account"), Suspects: map[decide.Key]decide.Entry{s.suspects["vm"].Key(): {Age: 1}},
	}
	s.record(forged.Text())
	s.sweep(namespace)
	s.wantDeleted()
	s.sweep(namespace)
	s.wantDeleted("vm")
}

// What another leader has written since is not observed by this one.
func TestRecordOfAnotherLeaderBeginsToAgeWhenItIsRead(t *testing.T) {
	s := newSweeping(t, 10)
	s.config.Quarantine = 25 * timeBetween / 10
	s.lead()
	s.add(driver.ResourceVM, namespace, "vm")
	first := s.orphans
	s.sweep(namespace)
	s.sweep(namespace) // 15 min old
	s.record("")
	s.lead()
	s.sweep(namespace) // suspected anew, by another leader
	s.orphans = first
	s.sweep(namespace) // read by the first one: age 0
	s.sweep(namespace)
	s.sweep(namespace)
	s.wantDeleted()
	s.sweep(namespace)
	s.wantDeleted("vm")
}

// It begins to age when it is read, also when this leader cannot write it at first.
func TestRecordOfAnotherLeaderAgesAlsoWhileItCannotBeWritten(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	s.lead() // another leader
	s.fail("patch machineclasses", "")
	s.fails("record the suspicions")
	s.Fault(nil)
	s.sweep(namespace)
	s.wantDeleted("vm")
}

// A record is written when it changes, and removed with the last suspicion.
func TestRecordIsWrittenOnlyWhenItChanges(t *testing.T) {
	s := newSweeping(t, 0)
	writes := func(want int, when string) {
		t.Helper()
		if n := s.Count("patch machineclasses"); n != want {
			t.Errorf("%s: %d writes, want %d", when, n, want)
		}
		s.Forget()
	}
	s.sweep(namespace)
	writes(0, "no suspects")
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweepTwice()
	writes(2, "a suspect that is held")
	s.cloud.Change(func(all []*fakecloud.Resource) { all[0].Ends = s.clock.Now() })
	s.sweep(namespace)
	writes(1, "its end")
	if _, has := s.Get("machineclasses", namespace, class).GetAnnotations()[v1alpha1.AnnotationOrphans]; has {
		t.Error("the annotation is not removed")
	}
	s.sweep(namespace)
	writes(0, "no suspects any more")
}

// The age is that of the observation, also when the outcome of a deletion is recorded in the same
// sweep; and an outcome is recorded once.
func TestRecordAfterADeletionHasAgeAndOutcome(t *testing.T) {
	s := newSweeping(t, 10)
	s.cloud.Lags = true
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	for sweep, want := range []struct{ writes, minutes int }{{2, 15}, {1, 30}, {1, 45}} {
		s.Forget()
		s.sweep(namespace)
		record := decide.ParseRecord(s.Get("machineclasses", namespace, class).GetAnnotations()[v1alpha1.AnnotationOrphans],
			decide.ScopeKey(providerOfClass, "account"))
		entry := record.Suspects[s.suspects["vm"].Key()]
		if n := s.Count("patch machineclasses"); n != want.writes || entry.Duration().Minutes() != float64(want.minutes) ||
			entry.Recorded != "Accepted" {
			t.Errorf("sweep %d: %d writes and %+v, want %d and an age of %d min", sweep, n, entry, want.writes, want.minutes)
		}
	}
}
