package apitest

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

func TestLifeCycle(t *testing.T) {
	view := objectcache.NewView()
	s := New(func() time.Time { return time.Unix(1000, 0) })
	s.ShowIn(view)
	machines := s.Client().Machines("n")
	patch := func(content string, subresource ...string) (*v1alpha1.Machine, error) {
		return machines.Patch(t.Context(), "m", types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresource...)
	}
	made, err := machines.Create(t.Context(), &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", Finalizers: []string{"f"}},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Name: "c"}},
	}, metav1.CreateOptions{})
	if err != nil || made.UID == "" || made.ResourceVersion != "1" || made.Generation != 1 || made.CreationTimestamp.Unix() != 1000 {
		t.Fatalf("made (%v): %+v", err, made)
	}
	if _, err := machines.Create(t.Context(), made, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made twice: %v", err)
	}
	if m, err := patch(`{"spec":{"providerID":"p"},"status":{"lastKnownState":"s"}}`); err != nil || m.Spec.ProviderID != "p" || m.Status.LastKnownState != "" || m.Generation != 2 {
		t.Errorf("spec patched (%v): %+v", err, m)
	}
	if m, err := patch(`{"spec":{"providerID":"q"},"status":{"lastKnownState":"s"}}`, "status"); err != nil || m.Spec.ProviderID != "p" || m.Status.LastKnownState != "s" || m.Generation != 2 {
		t.Errorf("status patched (%v): %+v", err, m)
	}
	if m, err := patch(`{"spec":{"providerID":"p"}}`); err != nil || m.ResourceVersion != "3" || m.Status.LastKnownState != "s" {
		t.Errorf("patched without a change (%v): %+v", err, m)
	}
	for _, stale := range []string{`{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"uid":"other"}}`} {
		if _, err := patch(stale); !apierrors.IsConflict(err) {
			t.Errorf("patch %s: %v", stale, err)
		}
	}
	other := types.UID("other")
	if err := machines.Delete(t.Context(), "m", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("another deleted: %v", err)
	}
	if err := machines.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if shown, _ := view.Machines.Get(types.NamespacedName{Namespace: "n", Name: "m"}); shown == nil || shown.DeletionTimestamp == nil {
		t.Errorf("the view shows %+v, want a machine that is being deleted", shown)
	}
	if list, err := s.Metadata().Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace("n").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("listed (%v): %+v", err, list)
	}
	if _, err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Error(err)
	}
	if _, err := machines.Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) || view.Machines.Len() != 0 {
		t.Errorf("after the last finalizer: %v, the view has %d", err, view.Machines.Len())
	}
	refusal := errors.New("no")
	s.Refuse(func(r Request) error {
		if r.Verb == "create" {
			return refusal
		}
		return nil
	})
	if _, err := machines.Create(t.Context(), made, metav1.CreateOptions{}); !errors.Is(err, refusal) {
		t.Errorf("refused: %v", err)
	}
	if s.Writes() != 11 {
		t.Errorf("%d writes of %+v", s.Writes(), s.Requests())
	}
}
