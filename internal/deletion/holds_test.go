package deletion

import (
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// annotations are those of the Namespace n.
type annotations struct {
	value   string
	unknown bool
	denied  bool
	changed func(namespace string)
}

func (a *annotations) Known() bool { return !a.unknown && !a.denied }

func (a *annotations) Denied() bool { return a.denied }

func (a *annotations) Annotation(namespace, key string) (string, bool) {
	if namespace != "n" || key != v1alpha1.AnnotationHoldDeletions || a.value == "" {
		return "", false
	}
	return a.value, true
}

func (a *annotations) OnChange(f func(namespace string)) { a.changed = f }

func lease(value string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleets", Name: "fleet-leader", Annotations: map[string]string{v1alpha1.AnnotationHoldDeletions: value},
	}}
}

func TestHeld(t *testing.T) {
	const key = "annotation fleet.machine.sapcloud.io/hold-deletions of "
	for _, tc := range []struct {
		name        string
		annotations annotations
		lease       *coordinationv1.Lease
		in          string
		held        bool
		why         string
	}{
		{"nothing", annotations{}, lease(""), "n", false, ""},
		{"Namespaces are not known yet", annotations{unknown: true}, lease(""), "n", true, ""},
		{"no leader Lease", annotations{}, nil, "n", true, ""},
		{"no right to read Namespaces", annotations{denied: true}, lease(""), "n", true, missingRight},
		{"no right any more", annotations{denied: true, value: "x"}, lease("y"), "n", true, key + "Lease fleets/fleet-leader: y; " +
			missingRight + "; " + key + "Namespace n: x"},
		{"the Namespace, with a reason", annotations{value: "etcd is restored"}, nil, "n", true, key + "Namespace n: etcd is restored"},
		{"the Namespace, without a reason", annotations{value: "true"}, nil, "n", true, key + "Namespace n"},
		{"another Namespace", annotations{value: "true"}, lease(""), "other", false, ""},
		{"false", annotations{value: "false"}, lease("false"), "n", false, ""},
		{"the leader Lease", annotations{}, lease("incident 7"), "other", true, key + "Lease fleets/fleet-leader: incident 7"},
		{
			"the leader Lease, before Namespaces are known", annotations{unknown: true}, lease("x"), "n", true, key + "Lease fleets/fleet-leader: x",
		},
		{"both", annotations{value: "a"}, lease("b"), "n", true, key + "Lease fleets/fleet-leader: b; " + key + "Namespace n: a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := NewHolds(&tc.annotations)
			h.LeaderLease(tc.lease)
			if why, held := h.Held(tc.in); held != tc.held || why != tc.why {
				t.Errorf("held %v, because of %q; want %v, %q", held, why, tc.held, tc.why)
			}
		})
	}
}

func TestHeldBeforeTheLeaderLeaseIsRead(t *testing.T) {
	h := NewHolds(&annotations{})
	if _, held := h.Held("n"); !held {
		t.Error("nothing is held before the leader Lease was read")
	}
	h.LeaderLease(lease(""))
	if _, held := h.Held("n"); held {
		t.Error("deletions are held without a reason")
	}
	h.LeaderLease(nil)
	if _, held := h.Held("n"); !held {
		t.Error("nothing is held without a leader Lease")
	}
}

func TestLongReasonIsCut(t *testing.T) {
	h := NewHolds(&annotations{value: strings.Repeat("x", 10_000)})
	if why, _ := h.Held("n"); len(why) > 400 {
		t.Errorf("%d bytes", len(why))
	}
}

func TestChangesAreReported(t *testing.T) {
	a := &annotations{}
	h := NewHolds(a)
	var changed []string
	h.OnChange(func(namespace string) { changed = append(changed, namespace) })
	a.changed("n")
	h.LeaderLease(lease(""))
	h.LeaderLease(lease("x"))
	h.LeaderLease(lease("x")) // a renewal
	h.LeaderLease(nil)
	if !slices.Equal(changed, []string{"n", "", "", ""}) {
		t.Errorf("reported %q, want n, and all when the Lease is read, begins to hold, and is gone", changed)
	}
}
