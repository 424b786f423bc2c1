package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// checkedFleet answers lists of Leases as an API server does for a fleet of one replica with two slots. The replica runs from from until until.
type checkedFleet struct {
	from, until time.Time
	// fails are the first lists that fail.
	fails int
	lists int
}

func (f *checkedFleet) list(action clienttesting.Action) (bool, runtime.Object, error) {
	f.lists++
	if f.lists <= f.fails {
		return true, nil, errors.New("connection refused")
	}
	list, isList := action.(clienttesting.ListAction)
	if !isList {
		return true, nil, fmt.Errorf("expected a list, got %s", action.GetVerb())
	}
	selector := list.GetListRestrictions().Labels.String()
	if action.GetNamespace() != "leases" || selector != v1alpha1.LabelFleet+"=f" {
		return true, nil, errors.New("another fleet")
	}
	now := time.Now()
	if now.Before(f.from) {
		return true, &coordinationv1.LeaseList{}, nil
	}
	if now.After(f.until) {
		now = f.until
	}
	holder, renewed := "f-0_abcde", strconv.FormatInt(now.Unix(), 10)
	lease := func(name, version string) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "leases", ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelFleet: "f"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	return true, &coordinationv1.LeaseList{Items: []coordinationv1.Lease{
		lease("f-leader", renewed), lease("f-session-f-0", renewed), lease("f-slot-000", "1"), lease("f-slot-001", "2"),
	}}, nil
}

func TestCheckFleet(t *testing.T) {
	for name, c := range map[string]struct {
		from, until time.Duration
		fails       int
		replicas    int
		want        string // part of the error
	}{
		"it works":                               {until: time.Hour, replicas: 1},
		"it works later":                         {from: 40 * time.Second, until: time.Hour, replicas: 1},
		"the API server answers later":           {until: time.Hour, replicas: 1, fails: 3},
		"it never runs":                          {from: time.Hour, until: time.Hour, replicas: 1, want: "2 of 2 slots have no holder that lives"},
		"it has died":                            {replicas: 1, want: "session f-0_abcde does not renew its Lease f-session-f-0"},
		"it has died, and a list fails first":    {replicas: 1, fails: 1, want: "session f-0_abcde does not renew its Lease f-session-f-0"},
		"it has too few replicas":                {until: time.Hour, replicas: 2, want: "at least 2 replicas"},
		"the API server does not answer in time": {until: time.Hour, replicas: 1, fails: 1000, want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				fleet := &checkedFleet{from: start.Add(c.from), until: start.Add(c.until), fails: c.fails}
				client := fake.NewClientset()
				client.PrependReactor("list", "leases", fleet.list)
				o := checkOptions{fleet: "f", namespace: "leases", slots: 2, leastReplicas: c.replicas, timeout: 2 * time.Minute}
				var out strings.Builder
				err := checkFleet(t.Context(), o, client, clock.RealClock{}, &out)
				switch {
				case c.want == "" && (err != nil || !strings.Contains(out.String(), "Fleet f works")):
					t.Errorf("want success, got %q, %v", out.String(), err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || out.String() != ""):
					t.Errorf("want an error with %q, got %q, %v", c.want, out.String(), err)
				case c.want != "" && time.Since(start) != o.timeout:
					t.Errorf("want the error after %s, got it after %s", o.timeout, time.Since(start))
				}
			})
		})
	}
}

// TestCheckFleet_TimeoutTooShort_SaysSo: with a time-out that is shorter than the time between two lists nothing is known.
func TestCheckFleet_TimeoutTooShort_SaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := &checkedFleet{from: time.Now(), until: time.Now().Add(time.Hour)}
		client := fake.NewClientset()
		client.PrependReactor("list", "leases", fleet.list)
		err := checkFleet(t.Context(), checkOptions{fleet: "f", namespace: "leases", slots: 2, timeout: time.Second}, client, clock.RealClock{}, &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), "increase --timeout") {
			t.Errorf("want an error that names --timeout, got %v", err)
		}
	})
}
