package replica

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// apart is by how much clocks differ in these tests, and exact how precise times and deadlines are
// all the same. What a pass writes is late at most when another request of it was not answered for
// 30 s.
const apart, exact, late = 10 * time.Minute, 15 * time.Second, 45 * time.Second

// setClocks draws the clocks of the replicas and of the target cluster. The draws of everything
// else do not depend on them.
func (t *trial) setClocks() {
	random := rand.New(rand.NewPCG(t.seed, 3))
	draw := func() time.Duration { return apart * time.Duration(random.IntN(3)-1) }
	for i := range 5 {
		t.skews[fmt.Sprint("fleet-", i)] = draw()
	}
	t.targetAhead = draw()
	t.logf("clocks of replicas are ahead by %v, and that of another target cluster by %s", t.skews, t.targetAhead)
}

// written are times that replicas write to objects.
var written = regexp.MustCompile(`^(lastUpdateTime|lastTransitionTime|renewTime|acquireTime)$`)

// checkTimes checks that all times which replicas have written to objects of the control cluster
// are by its clock: none is in the future, and none before the object was created.
func (t *trial) checkTimes() {
	for _, resource := range []string{"machinedeployments", "machinesets", "machines", "leases"} {
		for _, o := range t.control.List(resource) {
			eachTime(o.Object, func(field string, at time.Time) {
				// The election keeps the time when it creates a Lease again that was deleted.
				isKept := field == "acquireTime" && o.GetName() == "fleet-leader"
				if ahead := time.Until(at); ahead > exact || !isKept && o.GetCreationTimestamp().Sub(at) > late {
					t.fail("%s %s/%s, created at %s, has the %s %s, %s from now",
						resource, o.GetNamespace(), o.GetName(), o.GetCreationTimestamp().UTC(), field, at, ahead)
				}
			})
		}
	}
}

// eachTime calls f with each time that replicas write, in a value of JSON.
func eachTime(value any, f func(field string, at time.Time)) {
	switch value := value.(type) {
	case map[string]any:
		for field, inner := range value {
			text, _ := inner.(string)
			if at, err := time.Parse(time.RFC3339, text); err == nil && written.MatchString(field) {
				f(field, at)
			}
			eachTime(inner, f)
		}
	case []any:
		for _, inner := range value {
			eachTime(inner, f)
		}
	}
}

// putWithStrategy creates a MachineDeployment that no fleet ignores, however old it seems to be.
func (t *trial) putWithStrategy(namespace, name string, replicas int) {
	t.putRoot(namespace, name, replicas)
	t.control.Edit("machinedeployments", namespace, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "Recreate", "spec", "strategy", "type") // it is an object
	})
}

// TestClocksThatDifferMoveNoDeadline: the clocks of two replicas differ from that of the API
// server, by ten minutes each way. Every deadline counts as with equal clocks, also after the other
// replica has taken over, and both replicas report their clocks.
func TestClocksThatDifferMoveNoDeadline(t *testing.T) {
	o := replicaOptions(func(o *Options) { o.Machine.CreationTimeout, o.Health.Timeout = 5*time.Minute, 5*time.Minute })
	const timeout = 5 * time.Minute
	// late is how much later than at its deadline a machine may be gone: the slots of a dead replica
	// are taken over, a replica that has just started lets no machine fail for a minute, and the VM
	// has to end.
	const late = 3 * time.Minute
	within := func(t *testing.T, took time.Duration) {
		t.Helper()
		if took < timeout-exact || took > timeout+late {
			t.Errorf("it took %s, want from %s to %s", took, timeout-exact, timeout+late)
		}
	}
	for name, life := range map[string]func(*testing.T, *trial){
		"a machine is unhealthy, and its owner dies": func(t *testing.T, r *trial) {
			r.putWithStrategy("a", "d", 3)
			r.until("all machines run", func() bool { return r.missing() == "" })
			victim, begun := r.namesOf("d")[0], time.Now()
			r.setReady("False", victim)
			r.run(time.Minute, nil)
			r.ownerOf("a", "d").crash()
			r.until("it is replaced", func() bool { return r.uids()[victim] == "" })
			within(t, time.Since(begun))
			r.until("another one runs", func() bool { return r.missing() == "" })
		},
		"a VM does not join, and its owner dies": func(t *testing.T, r *trial) {
			r.putWithStrategy("a", "d", 1)
			begun, first := time.Now(), ""
			crash := func() bool { return first != "" && time.Since(begun) > 2*time.Minute && len(r.alive()) == 2 }
			r.until("it is replaced", func() bool {
				for name := range r.uids() {
					if first == "" {
						first = name
					}
				}
				r.cloud.Change(func(all []*fakecloud.Resource) {
					for _, v := range all {
						if v.Machine == first && !v.Joined {
							v.Boots = time.Now().Add(time.Hour)
						}
					}
				})
				if crash() {
					r.ownerOf("a", "d").crash()
				}
				return first != "" && r.uids()[first] == ""
			})
			within(t, time.Since(begun))
			r.until("another one runs", func() bool { return r.missing() == "" })
		},
		"a replica restarts": func(t *testing.T, r *trial) {
			r.putRoot("a", "d", 1) // it names no strategy: as an old one it would be ignored
			r.until("all machines run", func() bool { return r.missing() == "" })
			r.alive()[1].crash()
			p := r.start("fleet-1")
			r.run(2*time.Minute, nil)
			for _, replica := range []string{"fleet-0", "fleet-1"} {
				lease := r.control.Get("leases", fleetNamespace, member.SessionLeaseName("fleet", replica))
				if gap := lease.GetAnnotations()[v1alpha1.AnnotationUnserved]; gap != "" {
					t.Errorf("a time without a replica is recorded, and there was none: %s", gap)
				}
			}
			for _, m := range p.metrics()["mcf_clock_offset_seconds"].GetMetric() {
				if got, want := m.GetGauge().GetValue(), -r.skews["fleet-1"].Seconds(); got < want-2 || got > want+2 {
					t.Errorf("the metric of the clocks is %v, want %v", got, want)
				}
			}
			rows := fmt.Sprint(p.fleet.StatusRows(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/statusz", nil)))
			if !strings.Contains(rows, "Clock of the control cluster") {
				t.Errorf("/statusz does not show the clock: %s", rows)
			}
		},
	} {
		for _, by := range []time.Duration{-apart, apart} {
			t.Run(fmt.Sprintf("%s, %s", name, by), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newTrial(t, o, 1, nil)
					defer r.end()
					r.createUnmanaged()
					r.createClass("a")
					r.oracle.lost = []string{"fleet-0", "fleet-1"} // they are not restarted
					r.skews = map[string]time.Duration{"fleet-0": by, "fleet-1": -by}
					r.start("fleet-0")
					r.start("fleet-1")
					life(t, r)
					if r.checkTimes(); r.wrong != "" {
						t.Error(r.wrong)
					}
				})
			})
		}
	}
}

// answer has API servers, whose clocks are ahead of that of the test, answer every 10 s for a time.
func answer(t *testing.T, d time.Duration, servers map[string]*apianswers.Clock, ahead map[string]time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
		for name, wall := range servers {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := wall.Wrap(answers(func(r *http.Request) (*http.Response, error) {
				header := http.Header{"Date": {time.Now().Add(ahead[name]).UTC().Format(http.TimeFormat)}}
				return &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody, Request: r}, nil
			})).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
		}
	}
}

// TestClockOfAnAPIServerThatIsSetEndsNoDeadlineEarly: the clock of either API server is set forward
// by two hours while a machine that has one hour has had 20 minutes of it.
func TestClockOfAnAPIServerThatIsSetEndsNoDeadlineEarly(t *testing.T) {
	for _, which := range []string{"control", "target"} {
		synctest.Test(t, func(t *testing.T) {
			c := clients{wall: apianswers.NewClock(clock.RealClock{}, "control"), targetWall: apianswers.NewClock(clock.RealClock{}, "target")}
			ahead := map[string]time.Duration{}
			each10s := func(d time.Duration) { answer(t, d, c.clocks(), ahead) }
			each10s(time.Minute)
			since, begun := c.clocks()[which].Now(), time.Now()
			each10s(20 * time.Minute)
			ahead[which] = 2 * time.Hour
			each10s(time.Minute)
			is := target.Servers{Control: c.known(nil, c.wall)}.Under(&target.Cluster{Reach: c.known(nil, c.targetWall)})
			at := since.Add(-c.clocks()[which].AheadOf(c.wall)) // as a drain reads times of the target cluster
			left := is.Extend(at, at.Add(time.Hour)).Sub(c.wall.Now())
			if want := time.Hour - time.Since(begun); (left - want).Abs() > time.Minute {
				t.Errorf("%s: %s are left, want %s", which, left, want)
			}
			if c.wall.Now().After(is.Settled()) {
				t.Errorf("%s: what the server shows counts at once", which)
			}
		})
	}
}

// TestClockThatIsSetBackSettlesWhatWasUnserved: the control plane has started with a clock that is
// two hours ahead, when a fleet was down that starts with it.
func TestClockThatIsSetBackSettlesWhatWasUnserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := apianswers.NewClock(clock.RealClock{}, "control")
		d := &deps{clients: clients{wall: wall}, unserved: &unserved{clock: wall}, slots: &slots{}}
		ahead := map[string]time.Duration{"control": 2 * time.Hour}
		answer(t, time.Minute, d.clocks(), ahead)
		gap := member.Gap{From: wall.Now().Add(-2 * time.Hour), To: wall.Now()}
		d.unserved.note(gap)
		d.unserved.noteSlot(7, gap)
		of := d.outages()
		if of.Unserved().Back.IsZero() || of.UnservedSlot("7").Back.IsZero() {
			t.Error("what has just ended is no outage")
		}
		ahead["control"] = 0
		answer(t, 5*time.Minute, d.clocks(), ahead)
		if of.Unserved() != (reach.Fact{}) || of.UnservedSlot("7") != (reach.Fact{}) {
			t.Errorf("what ends in the future is an outage: %v, %v", of.Unserved(), of.UnservedSlot("7"))
		}
	})
}
