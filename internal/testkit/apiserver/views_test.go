package apiserver

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

func machine(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "u", Finalizers: []string{"f"}},
		Status:     v1alpha1.MachineStatus{LastKnownState: "s"},
	}
}

func TestViewShowsEachChange(t *testing.T) {
	s, view := Recording(machine("m")), objectcache.NewView()
	key := types.NamespacedName{Namespace: "n", Name: "m"}
	s.ShowIn(view)
	if m, _ := view.Machines.Get(key); m == nil || m.UID != "u" || m.Status.LastKnownState != "s" {
		t.Errorf("at first the view shows %+v", m)
	}
	s.SetUndecodable("machines", "n", "m", true)
	err := s.Machines().Machines("n").Delete(t.Context(), "m", metav1.DeleteOptions{})
	if _, failed := decode.FailureOf(err); err != nil && !failed {
		t.Error(err)
	}
	if shown, _ := view.Machines.Find(key); shown == nil || shown.GetDeletionTimestamp() == nil || view.Machines.Len() > 0 {
		t.Errorf("the view shows %+v, want an undecodable machine that is being deleted", shown)
	}
	s.SetUndecodable("machines", "n", "m", false)
	late := objectcache.NewView()
	backlog := s.ShowLate(late)
	s.Merge("machines", "n", "m", `{"metadata":{"finalizers":null}}`)
	if late.Machines.Len() != 1 || backlog.Len("machines") != 1 || s.Get("machines", "n", "m") != nil {
		t.Errorf("the late view has %d machines, and %d changes are not shown", late.Machines.Len(), backlog.Len("machines"))
	}
	if backlog.Show("machines", 2); late.Machines.Len() != 0 || backlog.Len("machines") != 0 {
		t.Errorf("later it has %d machines", late.Machines.Len())
	}
}

func TestRequestsAreRecordedAndRefused(t *testing.T) {
	s, no := Recording(machine("m")), errors.New("no")
	machines := s.Machines().Machines("n")
	s.Refuse("patch machines/*", no)
	for _, subresource := range [][]string{nil, {"status"}} {
		_, err := machines.Patch(t.Context(), "m", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, subresource...)
		if errors.Is(err, no) != (subresource != nil) {
			t.Errorf("patch of %v: %v", subresource, err)
		}
	}
	via := s.Via(func(_ Request, send func() error) error {
		return errors.Join(send(), apierrors.NewResourceExpired("gone"))
	})
	if err := via.Machines.Machines("n").Delete(t.Context(), "m", metav1.DeleteOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("deleted: %v", err)
	}
	if s.Count("patch *", "* machines/status") != 2 || s.Writes() != 3 || s.Sent("patch machines")[0] != "{}" || len(s.Log()) != 3 {
		t.Errorf("requests %q, %d writes", s.Log(), s.Writes())
	}
	if s.Forget(); len(s.Requests()) > 0 {
		t.Errorf("requests %q", s.Log())
	}
}
