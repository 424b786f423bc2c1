package slotlabel

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// measured counts the bytes of whole parents that are read.
type measured struct {
	*apiserver.Server

	bytes atomic.Int64
}

func (m *measured) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := m.Server.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/machinesets") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		answer.Body = &measuredBody{answer.Body, &m.bytes}
	}
	return answer, err
}

type measuredBody struct {
	io.ReadCloser

	bytes *atomic.Int64
}

func (b *measuredBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.bytes.Add(int64(n))
	return n, err
}

type all struct{}

func (all) Admit(ctx context.Context, _ Key) (context.Context, func(), bool) {
	return ctx, func() {}, true
}

// A tenant has large MachineSets, and a Machine without a controller in each of many slots: the
// MachineSets are read for all slots together, and not for each.
func TestParentsOfANamespaceAreReadOnceForAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slotCount, sets, size = 64, 10, 200 << 10
		server := &measured{Server: apiserver.New("s", time.Now)}
		for i := range sets {
			apiserver.Add(server.Server, &v1alpha1.MachineSet{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: fmt.Sprintf("0-set-%d", i), Labels: map[string]string{v1alpha1.LabelSlot: "0"},
					Annotations: map[string]string{"large": strings.Repeat("x", size)},
				},
				Spec: v1alpha1.MachineSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}},
			})
		}
		for i := range slotCount {
			apiserver.Add(server.Server, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprintf("%d-machine", i)}})
		}
		clients := apiserver.ClientsThrough(decode.PageTransport(server))
		w, err := NewWatch(clients.Metadata, nil, "", slotCount)
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(Config{
			Control: clients.Metadata, Machines: clients.Machines, Watch: w, Gate: all{}, Events: events.NewFakeRecorder(1),
			Clock: clock.RealClock{},
			Slots: policy.Slots{Count: slotCount, Of: func(_, root string) int {
				number, _, _ := strings.Cut(root, "-")
				slot, _ := strconv.Atoi(number)
				return slot
			}},
			Known: func(policy.Kind, types.NamespacedName) (metav1.Object, bool) { return nil, false },
			Holds: func(int) bool { return true }, Served: func(string, int) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx) })
		time.Sleep(time.Minute)
		stop()
		running.Wait()
		for i := range slotCount {
			name := fmt.Sprintf("%d-machine", i)
			m, err := clients.Machines.Machines("n").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || m.Labels[v1alpha1.LabelSlot] != strconv.Itoa(i) {
				t.Fatalf("Machine %s was not labeled: %v, %v", name, m, err)
			}
		}
		if read, once := server.bytes.Load(), int64(sets*size); read < once || read > 6*once {
			t.Errorf("%d bytes of MachineSets were read for %d slots; they have %d", read, slotCount, once)
		}
	})
}

func TestFewNamespacesAreReadAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New("s", time.Now)
		var mu sync.Mutex
		reading, hold := map[string]bool{}, make(chan struct{})
		server.Fault(func(r apiserver.Request) error {
			mu.Lock()
			reading[r.Namespace] = true
			mu.Unlock()
			<-hold
			return nil
		})
		r := &reader{
			metadata: server.Metadata(), turns: make(chan struct{}, readsAtOnce), rounds: map[string]*round{},
			plant: func([]policy.Object) *snapshot { return &snapshot{} },
		}
		var running sync.WaitGroup
		for i := range 3 * readsAtOnce {
			running.Go(func() {
				if _, err := r.read(t.Context(), strconv.Itoa(i)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		mu.Lock()
		if len(reading) != readsAtOnce {
			t.Errorf("%d namespaces are read at a time, want %d", len(reading), readsAtOnce)
		}
		mu.Unlock()
		close(hold)
		running.Wait()
		if len(reading) != 3*readsAtOnce {
			t.Errorf("%d namespaces were read, want %d", len(reading), 3*readsAtOnce)
		}
	})
}
