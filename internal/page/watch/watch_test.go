package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const machines = 120

// server returns an API server with a generated fleet.
func server() (*apiserver.Server, model.Input) {
	s, in := apiserver.Recording(), pagetest.NewWorld(machines, time.Now()).Read()
	for _, o := range in.Deployments {
		apiserver.Add(s, o)
	}
	for _, o := range in.Sets {
		apiserver.Add(s, o)
	}
	for _, o := range in.Machines {
		o.Annotations = map[string]string{"secret": "annotation"}
		o.Finalizers = []string{"f"}
		apiserver.Add(s, o)
	}
	for _, o := range in.Classes {
		o.ProviderSpec.Raw = []byte(`{"secret":"provider spec"}`)
		apiserver.Add(s, o)
	}
	for _, o := range in.Leases {
		apiserver.Add(s, o)
	}
	return s, in
}

// watched runs a test while the objects of the server are watched, and afterwards the last check.
func watched(t *testing.T, s *apiserver.Server, serves func(string) bool, test func(t *testing.T, w *Watch)) {
	t.Helper()
	w, err := New(Config{
		Machines: s.Machines(), Leases: s.Core().CoordinationV1(), Serves: serves, FleetNamespace: "fleet", FleetName: "fleet",
		Hold:     func(namespace string) string { return map[string]string{"shoot--a--eu1": "maintenance"}[namespace] },
		Timeouts: view.DefaultTimeouts(), Replica: "fleet-1", Version: "v0.1.0", Wall: clock.RealClock{},
		Targets:  func([]string) []view.TargetRead { return nil },
		Receipts: func() []receipt.Receipt { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if in := w.Read(); len(in.Machines) > 0 || in.Loaded || len(s.Log()) > 0 {
		t.Errorf("before it runs: %d machines, %d requests", len(in.Machines), len(s.Log()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	test(t, w)
	cancel()
	<-ended
	if in := w.Read(); len(in.Machines) > 0 || in.Loaded {
		t.Errorf("after it ran: %d machines", len(in.Machines))
	}
}

func all(string) bool { return true }

// TestLongTextsAreCut where API servers do not check them, before they are stored.
func TestLongTextsAreCut(t *testing.T) {
	long, yes := strings.Repeat("x", 1<<20), true
	m := &v1alpha1.Machine{}
	m.OwnerReferences = []metav1.OwnerReference{{Name: long}, {Name: long, UID: "set", Controller: &yes}}
	m.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(long)
	m.Status.LastOperation.ErrorCode, m.Status.LastOperation.Description = long, long
	slim := slimMachine(m)
	if text, err := json.Marshal(slim); err != nil || len(text) > 3000 {
		t.Errorf("%d bytes are stored; %v", len(text), err)
	}
	if owner := metav1.GetControllerOf(slim); owner == nil || owner.UID != "set" || len(m.OwnerReferences[1].Name) != len(long) {
		t.Errorf("the controller is %v, want set; or the object itself was changed", owner)
	}
}

// TestTheStateIsThatOfTheObjects: what is left out of objects changes nothing that the page shows,
// and none of it is stored.
func TestTheStateIsThatOfTheObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, in := server()
		watched(t, s, all, func(t *testing.T, w *Watch) {
			got := w.Read()
			if !got.Loaded || len(got.Unread) > 0 || len(got.Machines) != machines || len(got.Leases) != len(in.Leases) {
				t.Fatalf("loaded %t, unread %q, %d machines, %d Leases", got.Loaded, got.Unread, len(got.Machines), len(got.Leases))
			}
			if text := fmt.Sprintf("%+v", got.Machines) + fmt.Sprintf("%+v", got.Classes); strings.Contains(text, "annotation") ||
				strings.Contains(text, "provider spec") {
				t.Error("more is stored than what the page needs")
			}
			if age := got.Now.Sub(got.Since); age != time.Second {
				t.Errorf("watched for %s, want 1s", age)
			}
			in.Now, in.Since, in.Namespaces, in.Targets, in.Receipts = got.Now, got.Since, got.Namespaces, nil, nil
			is, _ := model.Of(got).Encode()
			want, _ := model.Of(in).Encode()
			for name, section := range want.Sections {
				if string(is.Sections[name]) != string(section) {
					t.Errorf("%s is\n%s, want\n%s", name, is.Sections[name], section)
				}
			}
			if len(is.Tiles) != machines || len(got.Namespaces) != 1 {
				t.Errorf("%d tiles, %d namespaces with a hold", len(is.Tiles), len(got.Namespaces))
			}
			for i, tile := range is.Tiles {
				if tile != want.Tiles[i] {
					t.Errorf("tile %+v, want %+v", tile, want.Tiles[i])
				}
			}
		})
	})
}

func TestChangesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, in := server()
		watched(t, s, all, func(t *testing.T, w *Watch) {
			before := w.Changes()
			time.Sleep(time.Hour)
			if w.Changes() != before {
				t.Error("something has changed")
			}
			lease := in.Leases[1]
			for range 3 { // renewals
				at := metav1.NewMicroTime(time.Now())
				lease.Spec.RenewTime = &at
				apiserver.Add(s, lease)
				time.Sleep(2 * time.Second)
			}
			synctest.Wait()
			if w.Changes() != before {
				t.Error("a renewal of a Lease is a change")
			}
			lease.Annotations = map[string]string{"fleet.machine.sapcloud.io/leaving": "true"}
			apiserver.Add(s, lease)
			synctest.Wait()
			if w.Changes() == before {
				t.Error("a replica that leaves is no change")
			}
			deleted := in.Machines[2]
			if deleted.DeletionTimestamp == nil {
				deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				apiserver.Add(s, deleted)
			}
			synctest.Wait()
			s.Remove("machines", deleted.Namespace, deleted.Name)
			synctest.Wait()
			got := w.Read()
			if w.Changes() == before || len(got.Machines) != machines-1 || len(got.Gone) != 1 || got.Gone[0].Name != deleted.Name {
				t.Errorf("%d machines, %d gone", len(got.Machines), len(got.Gone))
			}
		})
	})
}

// TestWhatCannotBeReadIsReported, and hides nothing else.
func TestWhatCannotBeReadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, in := server()
		s.Refuse("list machineclasses", apierrors.NewForbidden(schema.GroupResource{Resource: "machineclasses"}, "", nil))
		s.SetUndecodable("machines", in.Machines[0].Namespace, in.Machines[0].Name, true)
		watched(t, s, all, func(t *testing.T, w *Watch) {
			got := w.Read()
			if !got.Loaded || len(got.Machines) != machines-1 || len(got.Unread) != 2 || !strings.Contains(got.Unread[0], "MachineClasses: ") ||
				!strings.Contains(got.Unread[1], "1 objects are not shown") {
				t.Errorf("loaded %t, %d machines, unread %q", got.Loaded, len(got.Machines), got.Unread)
			}
			s.Fault(nil)
			time.Sleep(time.Minute)
			if got := w.Read(); len(got.Unread) != 1 || len(got.Classes) == 0 {
				t.Errorf("later: unread %q, %d classes", got.Unread, len(got.Classes))
			}
		})
	})
}

func TestOtherNamespacesAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := server()
		watched(t, s, func(namespace string) bool { return namespace == "shoot--a--eu2" }, func(t *testing.T, w *Watch) {
			got := w.Read()
			if len(got.Machines) == 0 || len(got.Machines) == machines {
				t.Errorf("%d machines", len(got.Machines))
			}
			others := func(namespace string) {
				if namespace != "shoot--a--eu2" {
					t.Errorf("an object of %s", namespace)
				}
			}
			for _, m := range got.Machines {
				others(m.Namespace)
			}
			for _, d := range got.Deployments {
				others(d.Namespace)
			}
		})
	})
}

// TestTheFleetIsNeverChanged: nothing is requested but lists and watches.
func TestTheFleetIsNeverChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := server()
		watched(t, s, all, func(*testing.T, *Watch) {})
		for _, request := range s.Log() {
			if verb, _, _ := strings.Cut(request, " "); verb != "list" && verb != "watch" {
				t.Errorf("request %s", request)
			}
		}
	})
}
