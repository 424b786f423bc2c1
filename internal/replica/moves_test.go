package replica

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

var (
	moveSlots = flag.Int("move-slots", fewSlots, "slots of TestSlotsMoveUnderLoad; with more than the default it makes all changes")
	moveRoots = flag.Int("move-roots", 2, "MachineDeployments of TestSlotsMoveUnderLoad, of ten machines each, which are replaced meanwhile")
	moveRate  = flag.Int("move-rate", 300, "requests that an API server of TestSlotsMoveUnderLoad answers in a second")
)

const fewSlots = 32

// TestSlotsMoveUnderLoad: while replicas leave and join and machines are replaced, with API servers
// that are busy, no slot is without a holder for more than 2 s. docs/benchmarks.md has the times
// with 256 slots.
func TestSlotsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		replicas int
		change   func(m *moving)
	}{
		{"rolling restart of 3", 3, func(m *moving) {
			for i := range 3 {
				p := m.process(fmt.Sprint("fleet-", i))
				p.quit()
				m.until("it has left", func() bool { return !p.isAlive() })
				m.start(p.replica)
				m.settle()
			}
		}},
		{"3 to 6", 3, func(m *moving) {
			for i := 3; i < 6; i++ {
				m.start(fmt.Sprint("fleet-", i))
			}
			m.settle()
		}},
		{"6 to 2", 6, func(m *moving) {
			for i := 2; i < 6; i++ {
				m.process(fmt.Sprint("fleet-", i)).quit()
			}
			m.settle()
		}},
	} {
		if *moveSlots == fewSlots && tc.name != "6 to 2" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := replicaOptions(func(o *Options) { o.Fleet.Slots, o.ConcurrentSyncs = *moveSlots, DefaultOptions().ConcurrentSyncs })
			synctest.Test(t, func(t *testing.T) {
				m := &moving{trial: newTrial(t, o, 1, nil), slots: make([]movingSlot, *moveSlots)}
				defer m.end()
				m.createClass("a")
				for i := range tc.replicas {
					m.start(fmt.Sprint("fleet-", i))
				}
				for i := range *moveRoots {
					m.createRoot(&root{namespace: "a", name: fmt.Sprint("d-", i), replicas: 10})
				}
				m.waitCheaply("machines run", func() bool { return m.running("") == 10**moveRoots && m.unowned() == 0 })
				for range 2 {
					m.waitCheaply("slots are spread", nil)
				}
				m.network.be(&busy{each: time.Second / time.Duration(*moveRate)})
				for i := range *moveRoots {
					m.relabelTemplate("a", fmt.Sprint("d-", i), "2")
				}
				m.pass(5 * time.Second)
				m.measure(tc.name, tc.change)
				if longest := slices.Max(m.unheld); longest > 2*time.Second && *moveRate >= 150 {
					t.Errorf("a slot had no holder for %s, want at most 2 s", longest)
				}
				m.network.be(nil)
				m.waitCheaply("machines are replaced", func() bool { return m.running("2") == 10**moveRoots })
			})
		})
	}
}

// moving is a trial whose slots are looked at every few milliseconds.
type moving struct {
	*trial

	slots                   []movingSlot
	unheld, unserved, moved []time.Duration // that have ended
	last                    time.Time       // when a slot was last not where it belongs
}

// movingSlot records since when a slot has no holder, no replica admits its keys, and it is not
// served where it is assigned; zero for not.
type movingSlot struct{ unheld, unserved, moving time.Time }

const lookEvery = 20 * time.Millisecond

func (m *moving) process(replica string) *process {
	for _, p := range m.alive() {
		if p.replica == replica {
			return p
		}
	}
	m.Fatalf("%s does not run", replica)
	return nil
}

// pass lets time pass.
func (m *moving) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		m.look()
	}
}

func (m *moving) until(what string, cond func() bool) {
	for end := time.Now().Add(5 * time.Minute); !cond(); m.look() {
		if time.Now().After(end) {
			m.Fatalf("expected within 5 min that %s", what)
		}
	}
}

// settle waits until all slots are where they belong for some time.
func (m *moving) settle() {
	m.last = time.Now()
	m.until("slots are where they belong", func() bool { return time.Since(m.last) > 5*time.Second })
}

// look lets a moment pass, and looks at all slots.
func (m *moving) look() {
	time.Sleep(lookEvery)
	synctest.Wait()
	m.boot()
	if time.Since(m.collected) > 2*time.Second {
		m.collected = time.Now()
		m.collect()
	}
	alive := m.alive()
	for number := range m.slots {
		s := &m.slots[number]
		lease := m.control.Get("leases", fleetNamespace, member.SlotLeaseName(m.options.Fleet.Name, number, len(m.slots)))
		holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		assigned, server := lease.GetAnnotations()[v1alpha1.AnnotationAssignedReplica], ""
		for _, p := range alive {
			if p.fleet.fence.Holds(number) {
				server = p.replica
			}
		}
		since(&s.unheld, holder == "", &m.unheld)
		since(&s.unserved, server == "", &m.unserved)
		since(&s.moving, assigned != server, &m.moved)
		if assigned != server || !strings.HasPrefix(holder, assigned+"_") {
			m.last = time.Now()
		}
	}
}

// since records how long something was so.
func since(begun *time.Time, is bool, ended *[]time.Duration) {
	switch {
	case is && begun.IsZero():
		*begun = time.Now()
	case !is && !begun.IsZero():
		*ended = append(*ended, time.Since(*begun))
		*begun = time.Time{}
	}
}

// measure makes a change, and logs what it caused.
func (m *moving) measure(name string, change func(m *moving)) {
	begun := time.Now()
	m.unheld, m.unserved, m.moved = nil, nil, nil
	change(m)
	of := func(all []time.Duration) string {
		if len(all) == 0 {
			return "none"
		}
		slices.Sort(all)
		return fmt.Sprintf("%d, median %.2f s, 99 %% %.2f s, max %.2f s", len(all), all[len(all)/2].Seconds(), all[len(all)*99/100].Seconds(),
			all[len(all)-1].Seconds())
	}
	m.Logf("%s: without a holder: %s; not worked on: %s; from their assignment until they were worked on: %s; settled after %.1f s",
		name, of(m.unheld), of(m.unserved), of(m.moved), m.last.Sub(begun).Seconds())
}
