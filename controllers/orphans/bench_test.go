package orphans

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const (
	namespace       = "n"
	class           = "c"
	others          = "example.com/other" // an annotation of another client
	timeBetween     = 15 * time.Minute
	ourCluster      = "ours"
	providerOfClass = "simulated"
)

// sweeping is a leader whose sweeps the test starts itself, one after the other, without faults.
type sweeping struct {
	*testing.T
	*apiserver.Server

	config   Config
	orphans  *Controller
	clock    *testclock.FakeClock
	cloud    fakecloud.Cloud
	id       string // of the control cluster
	held     bool
	served   func() bool
	tokens   int
	events   []event
	log      bytes.Buffer
	suspects map[string]decide.Suspect // by ID
}

// newSweeping returns a leader that may delete limit orphans in an hour, and a namespace with a
// MachineClass.
func newSweeping(t *testing.T, limit int) *sweeping {
	t.Helper()
	s := &sweeping{
		T: t, Server: apiserver.Recording(), clock: testclock.NewFakeClock(time.Unix(1e9, 0)), id: ourCluster,
		served: func() bool { return true }, suspects: map[string]decide.Suspect{},
	}
	s.cloud.Clock = s.clock.Now
	s.config = Config{
		Machines: s.Machines(), Metadata: s.Metadata(), Secrets: s.Core().CoreV1(), Leases: s.Core().CoordinationV1(),
		Sweeper: func(provider string) (driver.Sweeper, bool) { return s.cloud.Driver(), provider == providerOfClass },
		Targets: target.Single{Cluster: target.New(s.Core())}, Events: s, Ledger: types.NamespacedName{Namespace: "fleet", Name: "fleet-safety"},
		ControlCluster: func() string { return s.id },
		Served:         func(context.Context, string) (bool, error) { return s.served(), nil },
		Held:           func(string) (string, bool) { return "a test holds them", s.held },
		Deletions:      deletion.NewRecorder(s.clock, deletion.NewFile(&s.log), nil),
		Gate:           &apitest.LeaderGate{}, // the test calls reconcile itself
		Token: func() string {
			s.tokens++
			return fmt.Sprint(s.tokens)
		},
		Period: timeBetween, Quarantine: 10 * time.Minute, Limit: limit, Clock: s.clock,
	}
	s.lead()
	s.putClass(namespace, providerOfClass)
	return s
}

// lead has another replica lead, with the configuration as it is now.
func (s *sweeping) lead() {
	s.Helper()
	led, err := New(s.config)
	if err != nil {
		s.Fatal(err)
	}
	s.orphans = led
	over, end := context.WithCancel(context.Background())
	end()
	s.Cleanup(func() { led.Run(over) }) // it ends the queue
}

func (s *sweeping) put(resource string, document map[string]any) {
	s.Helper()
	if _, err := s.Put(resource, document); err != nil {
		s.Fatal(err)
	}
}

// putClass puts a MachineClass and its Secret into a namespace.
func (s *sweeping) putClass(namespace, provider string) {
	s.Helper()
	s.put("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": namespace, "name": "credentials"},
	})
	s.putClassOfName(namespace, class, provider)
}

// putClassOfName puts a MachineClass that uses the Secret of putClass.
func (s *sweeping) putClassOfName(namespace, name, provider string) {
	s.Helper()
	s.put("machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": namespace, "name": name},
		"provider": provider, "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "credentials"},
	})
}

// add adds orphans of a kind to the cloud.
func (s *sweeping) add(kind driver.ResourceKind, namespace string, ids ...string) {
	for _, id := range ids {
		r := driver.Resource{Kind: kind, ID: id, Namespace: namespace, Machine: "machine-of-" + id, MachineUID: types.UID("uid-of-" + id)}
		if kind == driver.ResourceVM {
			r.NodeName = "node-of-" + id
		}
		s.addResource(r)
		s.suspects[id] = decide.Suspect{Resource: r}
	}
}

func (s *sweeping) addResource(r driver.Resource) {
	s.cloud.Add(fakecloud.Resource{Resource: r, ControlCluster: ourCluster})
}

// refuses has the cloud refuse deletions.
func (s *sweeping) refuses() {
	s.cloud.Fail(fakecloud.Fault{Code: driver.ResourceExhausted}, driver.OpSweep)
}

// digest returns the approval of orphans.
func (s *sweeping) digest(ids ...string) string {
	var all []decide.Suspect
	for _, id := range ids {
		all = append(all, s.suspects[id])
	}
	return decide.Digest(all)
}

// sweep sweeps namespaces at the end of a period.
func (s *sweeping) sweep(namespaces ...string) {
	s.Helper()
	s.clock.Step(timeBetween)
	for _, namespace := range namespaces {
		if _, err := s.orphans.reconcile(s.Context(), namespace); err != nil {
			s.Error(err)
		}
	}
}

// sweepTwice sweeps twice, so that what was not known before is suspected and confirmed.
func (s *sweeping) sweepTwice() {
	s.Helper()
	s.sweep(namespace)
	s.sweep(namespace)
}

// approve writes an approval onto the MachineClass.
func (s *sweeping) approve(digest string) {
	s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		annotations[v1alpha1.AnnotationDeleteOrphans] = digest
		u.SetAnnotations(annotations)
	})
}

// isApproved reports whether an approval is on the MachineClass.
func (s *sweeping) isApproved() bool {
	_, has := s.Get("machineclasses", namespace, class).GetAnnotations()[v1alpha1.AnnotationDeleteOrphans]
	return has
}

// wantDeleted checks which deletions the cloud has accepted so far, in any order, those of the same
// resource once for each request.
func (s *sweeping) wantDeleted(ids ...string) {
	s.Helper()
	got := slices.Sorted(slices.Values(s.cloud.Deleted()))
	if !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
		s.Errorf("deleted: %q, want %q", got, ids)
	}
}

// Eventf is events.EventRecorder's.
func (s *sweeping) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	s.events = append(s.events, event{about: keyOf(about), reason: reason, text: fmt.Sprintf(note, args...)})
}

// eventsOf returns the Events with a reason.
func (s *sweeping) eventsOf(reason string) (found []event) {
	for _, e := range s.events {
		if e.reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// lastHeld returns the message of the last Event OrphansHeld; "" without one.
func (s *sweeping) lastHeld() string {
	all := s.eventsOf(v1alpha1.EventOrphansHeld)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1].text
}

// receipts returns the lines of the deletion log.
func (s *sweeping) receipts() (all []receipt.Receipt) {
	s.Helper()
	for line := range bytes.Lines(s.log.Bytes()) {
		var r receipt.Receipt
		if err := json.Unmarshal(line, &r); err != nil {
			s.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// wantReports checks that each of these has exactly one Event OrphanDeleted, and one receipt of an
// accepted deletion.
func (s *sweeping) wantReports(ids ...string) {
	s.Helper()
	var inEvents, inReceipts []string
	for _, e := range s.eventsOf(v1alpha1.EventOrphanDeleted) {
		for _, named := range namedOrphan.FindAllStringSubmatch(e.text, -1) {
			inEvents = append(inEvents, named[1])
		}
	}
	for _, r := range s.receipts() {
		if r.Outcome == receipt.Accepted {
			inReceipts = append(inReceipts, r.Name+r.ProviderID)
		}
	}
	slices.Sort(inEvents)
	slices.Sort(inReceipts)
	if want := slices.Sorted(slices.Values(ids)); !slices.Equal(inEvents, want) || !slices.Equal(inReceipts, want) {
		s.Errorf("Events about %q and receipts about %q, want one each about %q", inEvents, inReceipts, want)
	}
}
