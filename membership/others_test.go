package membership

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

func sessionLease(session string, uid types.UID, version int, annotations ...string) *coordinationv1.Lease {
	replica, _, _ := strings.Cut(session, "_")
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet-session-" + replica, UID: uid, ResourceVersion: strconv.Itoa(version)},
	}
	if strings.Contains(session, "_") {
		l.Spec.HolderIdentity = &session
	}
	for _, key := range annotations {
		Annotate(l, key, "true")
	}
	return l
}

// observer is a session that renews its own Lease every 2 s, at even seconds, and observes that.
type observer struct {
	*Others
	now     float64
	version int
}

func newObserver() *observer {
	return &observer{Others: NewOthers(DefaultConfig(), Identification{Fleet: "fleet", Session: me}), version: 1000}
}

// watch advances to a time; back is how long after its send a renewal is observed.
func (o *observer) watch(until, back float64) {
	for ; o.now+2 <= until; o.now += 2 {
		sent := at(o.now)
		o.Advance(sent)
		o.Renewing(sent, sent.Wall)
		o.version++
		mine := sessionLease(me, "own", o.version)
		renew := metav1.NewMicroTime(sent.Wall)
		mine.Spec.RenewTime = &renew
		o.Advance(at(o.now + back))
		o.Observe(at(o.now+back), mine, true)
	}
}

const other = "r-1_bbbbb"

func (o *observer) isDead(seconds float64) bool {
	o.Advance(at(seconds))
	_, dead := o.Silence(at(seconds), "r-1")
	return dead != nil
}

func TestSilence(t *testing.T) {
	t.Run("silent for 15 s", func(t *testing.T) {
		o := newObserver()
		o.watch(20, 0.1)
		o.Observe(at(20), sessionLease(other, "u", 1), true)
		o.watch(34, 0.1)
		if o.isDead(34.9) {
			t.Error("dead before 15 s")
		}
		if !o.isDead(35) {
			t.Error("not dead after 15 s")
		}
		o.Observe(at(35), sessionLease(other, "u", 1), true)
		if !o.isDead(35.1) {
			t.Error("want the same version, seen again, not to restart the time")
		}
		o.Observe(at(35), sessionLease(other, "u", 2), true)
		if o.isDead(36) {
			t.Error("dead although it has renewed")
		}
	})
	t.Run("a session that does not renew yet counts no silence", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 1), true)
		if o.isDead(100) {
			t.Error("dead")
		}
		o.now = 100
		o.watch(114, 0.1)
		if o.isDead(115) || !o.isDead(115.1) {
			t.Error("want the time to count from when the first renewal was observed, at 100.1 s")
		}
	})
	t.Run("problems of our own renewals restart the time", func(t *testing.T) {
		for name, disturb := range map[string]func(o *observer){
			"observed late":      func(o *observer) { o.watch(30, 4.1) },
			"failed":             func(o *observer) { o.Interrupt() },
			"not sent":           func(o *observer) { o.Advance(at(34)) },
			"the wall clock ran": func(o *observer) { o.Advance(Moment{Monotonic: at(28.1).Monotonic, Wall: at(60).Wall}) },
		} {
			o := newObserver()
			o.watch(14, 0.1)
			o.Observe(at(14), sessionLease(other, "u", 1), true)
			o.watch(28, 0.1)
			disturb(o)
			o.now = 34
			o.watch(48, 0.1)
			if o.isDead(49) {
				t.Errorf("%s: dead at 49 s, want the time to count from 34.1 s on", name)
			}
			if !o.isDead(49.1) {
				t.Errorf("%s: not dead at 49.1 s", name)
			}
		}
	})
	t.Run("a session declares neither itself, nor an empty Lease, nor a missing one dead", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease("r-1", "u", 1), true)
		o.Observe(at(0), sessionLease("r-2_ccccc", "v", 2), true)
		o.Missed(at(1), "r-2")
		o.watch(60, 0.1)
		for _, replica := range []string{"r-0", "r-1", "r-2", "r-3"} {
			if _, dead := o.Silence(at(60), replica); dead != nil {
				t.Errorf("%s is dead", replica)
			}
		}
	})
	t.Run("warm", func(t *testing.T) {
		o := newObserver()
		o.watch(14, 0.1)
		if o.Warm(at(15)) || !o.Warm(at(15.1)) {
			t.Error("want warm 15 s after the first renewal was observed")
		}
	})
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		known   []*coordinationv1.Lease
		session string
		read    *coordinationv1.Lease
		want    Judgement
	}{
		{"holds it", nil, other, sessionLease(other, "u", 1), Alive},
		{"it has no holder", nil, other, sessionLease("r-1", "u", 1), Dead},
		{"another session holds it", nil, other, sessionLease("r-1_ccccc", "u", 1), Dead},
		{"there is none", nil, other, nil, Expiring},
		{"a created one", nil, other, sessionLease("r-1_ccccc", "u", 1, v1alpha1.AnnotationCreated), Expiring},
		{
			"a created one, known for 15 s",
			[]*coordinationv1.Lease{sessionLease("r-1_ccccc", "u", 1, v1alpha1.AnnotationCreated)},
			other,
			sessionLease("r-1_ccccc", "u", 2, v1alpha1.AnnotationCreated), Dead,
		},
		{"another one than we knew", []*coordinationv1.Lease{sessionLease(other, "u", 1)}, other, sessionLease("r-1", "v", 2), Expiring},
		{"not the name of a session", nil, "by-hand", nil, Dead},
	} {
		o := newObserver()
		for _, l := range c.known {
			o.Observe(at(0), l, true)
		}
		if got := o.Judge(at(15), c.session, c.read); got != c.want {
			t.Errorf("%s: want %s, got %s", c.name, c.want, got)
		}
	}
}

func TestObserve(t *testing.T) {
	o := newObserver()
	if !o.Observe(at(0), sessionLease(other, "u", 5, v1alpha1.AnnotationLeaving), true) {
		t.Error("want the first version to be news")
	}
	if o.Observe(at(2), sessionLease(other, "u", 6, v1alpha1.AnnotationLeaving), true) {
		t.Error("want a renewal not to be news")
	}
	if o.Observe(at(3), sessionLease("r-1", "u", 4), true) || o.Peer("r-1").Session != other {
		t.Error("want an older version not to be news")
	}
	if !o.Observe(at(4), sessionLease("r-1", "u", 7), true) || o.Peer("r-1").Session != "" || o.Peer("r-1").Leaving {
		t.Errorf("want another holder to be news, got %+v", o.Peer("r-1"))
	}
	if !o.Missed(at(5), "r-1") || o.Missed(at(6), "r-1") || len(o.Peers()) != 0 {
		t.Errorf("want it to be news once that it is gone, got %+v", o.Peers())
	}
	if o.Observe(at(7), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fleet-leader"}}, true) {
		t.Error("want other Leases ignored")
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"RenewEvery": func(c *Config) { c.RenewEvery = 0 },
		"ClockDrift": func(c *Config) { c.ClockDrift = 1 },
		"Fence":      func(c *Config) { c.Fence = 8 * time.Second },
		"TakeOver":   func(c *Config) { c.TakeOver = 12 * time.Second },
		"drift":      func(c *Config) { c.Fence = 14500 * time.Millisecond },
	} {
		c := DefaultConfig()
		if change(&c); c.Validate() == nil {
			t.Errorf("%s: want an error, got none", name)
		} else if !strings.Contains(c.Validate().Error(), name) {
			t.Errorf("want an error about %s, got %v", name, c.Validate())
		}
	}
}

func TestNames(t *testing.T) {
	for session, want := range map[string]string{
		"r-0_abc12": "r-0", "r-0_abc1": "", "r-0_ABC12": "", "r-0": "", "": "", "_abc12": "", "a/b_abc12": "", "r_0_abc12": "",
	} {
		if replica, ok := ReplicaOf(session); ok != (want != "") || ok && replica != want {
			t.Errorf("%q: want %q, got %q (%v)", session, want, replica, ok)
		}
	}
	for _, c := range []struct {
		slot, slots int
		want        string
	}{{7, 256, "f-slot-007"}, {999, 1000, "f-slot-999"}, {7, 1001, "f-slot-0007"}} {
		name := SlotLeaseName("f", c.slot, c.slots)
		if slot, ok := SlotOfLease("f", name, c.slots); name != c.want || !ok || slot != c.slot {
			t.Errorf("slot %d: want %s, got %s, read as %d (%v)", c.slot, c.want, name, slot, ok)
		}
	}
	for _, name := range []string{"f-slot-256", "f-slot-07", "f-slot-0007", "f-slot--07", "f-slot-x", "g-slot-001", "f-session-1"} {
		if slot, ok := SlotOfLease("f", name, 256); ok {
			t.Errorf("%s: read as slot %d", name, slot)
		}
	}
}

func TestNextTransitionsContinuesFromAnyNumber(t *testing.T) {
	if got := NextTransitions(nil); got != 1 {
		t.Errorf("without a Lease: want 1, got %d", got)
	}
	for n, want := range map[int32]int32{0: 1, 1: 2, math.MaxInt32 - 1: math.MaxInt32, math.MaxInt32: 1, -1: 1, math.MinInt32: 1} {
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseTransitions: &n}}
		if got := NextTransitions(l); got != want {
			t.Errorf("after %d: want %d, got %d", n, want, got)
		}
	}
}

// The names that ReplicaOf accepts as replicas are those that apimachinery accepts as names of
// pods.
func TestReplicasHaveNamesOfPods(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune("ab09-.-.A_é")), 0, 12, -1),
			rapid.Map(rapid.IntRange(250, 256), func(n int) string { return strings.Repeat("a", n) }),
		).Draw(t, "name")
		if _, ok := ReplicaOf(name + "_abc12"); strings.Contains(name, "_") {
			return // the session's suffix begins at the first
		} else if want := len(validation.IsDNS1123Subdomain(name)) == 0; ok != want {
			t.Errorf("%q: want %v, got %v", name, want, ok)
		}
	})
}
