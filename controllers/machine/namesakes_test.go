package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// metadataServer has the metadata of Machines, and counts lists.
type metadataServer struct {
	metadata.ResourceInterface

	machines       []metav1.PartialObjectMetadata
	single, census int
	fail           error         // of lists of all Machines
	hang           chan struct{} // until it is closed, lists of all Machines are not answered; nil for none
}

func (s *metadataServer) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	if options.FieldSelector != "" {
		s.single++
		for _, m := range s.machines {
			if options.FieldSelector == "metadata.name="+m.Name {
				list.Items = append(list.Items, m)
			}
		}
		return list, nil
	}
	if s.hang != nil {
		<-s.hang
	}
	s.census++
	if s.fail != nil {
		return nil, s.fail
	}
	first := 0
	if options.Continue != "" {
		_, _ = fmt.Sscan(options.Continue, &first)
	}
	next := min(first+int(options.Limit), len(s.machines))
	list.Items = slices.Clone(s.machines[first:next])
	if next < len(s.machines) {
		list.Continue = fmt.Sprint(next)
	}
	return list, nil
}

// create adds a Machine that was created that many seconds after the first one.
func (s *metadataServer) create(namespace, name string, second int) *metav1.PartialObjectMetadata {
	m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name),
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5+second, 0, time.UTC)),
	}}
	s.machines = append(s.machines, m)
	return &m
}

func TestNamesOfManyMachinesAreListedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a census that waits permanently for another one fails at once
		const many = 2*decode.PageSize + 10
		server, clk := &metadataServer{}, testingclock.NewFakeClock(time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC))
		n := newNamesakes(server, clk)
		for i := range many {
			server.create("n", fmt.Sprint("m-", i), i)
		}
		// find looks for Machines with the name of m, and expects as many others.
		find := func(m *metav1.PartialObjectMetadata, others int) {
			t.Helper()
			found, err := n.of(t.Context(), m, nil)
			found = slices.DeleteFunc(found, func(o *metav1.PartialObjectMetadata) bool { return o.UID == m.UID })
			if err != nil || len(found) != others {
				t.Errorf("found %d others with the name of %s/%s, %v; want %d", len(found), m.Namespace, m.Name, err, others)
			}
		}
		// expect expects the requests since the last call.
		expect := func(what string, single, census int) {
			t.Helper()
			if server.single != single || server.census != census {
				t.Errorf("%s: %d lists of one name and %d pages of all, want %d and %d", what, server.single, server.census, single, census)
			}
			server.single, server.census = 0, 0
		}
		old := server.create("o", "m-7", 3)
		for i := range listsBeforeCensus {
			find(&server.machines[100+i], 0)
		}
		expect("few", listsBeforeCensus, 0)
		for i := range many - 1 {
			others := 0
			if i == 7 {
				others = 1
			}
			find(&server.machines[i], others)
		}
		expect("many, one of which has a namesake", 1, 3)
		find(old, 1)
		expect("the namesake", 1, 0)
		find(&server.machines[many-1], 0)
		expect("the youngest, of which a namesake of the same second may have been created since", 1, 0)

		server.create("late", "m-9", many-1)
		find(&server.machines[9], 0)
		expect("a namesake that is younger than the census", 0, 0)

		server.create("restored", "m-9", 0) // of a backup
		clk.Step(censusKept)
		find(&server.machines[9], 2)
		expect("the census is too old, and lists are few", 1, 0)

		for range listsBeforeCensus - 1 {
			find(&server.machines[11], 0)
		}
		server.fail = errors.New("no")
		if found, err := n.of(t.Context(), &server.machines[12], nil); !errors.Is(err, server.fail) {
			t.Errorf("got %v, %v while the census fails", found, err)
		}
		server.fail = nil
		expect("a census that fails takes no other list", listsBeforeCensus-1, 1)
		find(&server.machines[12], 0)
		expect("the next census", 0, 3)
		find(&server.machines[9], 2)
		expect("found in it", 1, 0)

		clk.Step(censusKept)
		for i := range listsBeforeCensus {
			find(&server.machines[20+i], 0)
		}
		expect("few again", listsBeforeCensus, 0)
	})
}

// Passes that need a census at the same time take one, and a machine that shares its name is then
// looked for by itself.
func TestPassesShareACensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &metadataServer{hang: make(chan struct{})}
		n := newNamesakes(server, clock.RealClock{})
		n.lists, n.since = listsBeforeCensus, n.clock.Now()
		a, b, c := server.create("n", "a", 0), server.create("n", "b", 1), server.create("n", "c", 2)
		server.create("o", "b", 3)
		server.create("n", "youngest", 4)
		var passes sync.WaitGroup
		for m, want := range map[*metav1.PartialObjectMetadata]int{a: 0, b: 2, c: 0} {
			passes.Go(func() {
				if found, err := n.of(t.Context(), m, nil); err != nil || len(found) != want {
					t.Errorf("found %d Machines with the name %s, %v; want %d", len(found), m.Name, err, want)
				}
			})
		}
		synctest.Wait()
		close(server.hang)
		passes.Wait()
		if server.census != 1 || server.single != 1 {
			t.Errorf("%d lists of all Machines and %d of one name, want one of each", server.census, server.single)
		}
	})
}

func TestACensusWaitsNoLongerThanItsPass(t *testing.T) {
	n := newNamesakes(&metadataServer{}, testingclock.NewFakeClock(time.Now()))
	n.lists, n.since = listsBeforeCensus, n.clock.Now()
	n.taking <- struct{}{} // another pass takes one
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := n.of(ctx, &metav1.PartialObjectMetadata{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", found, err)
	}
}
