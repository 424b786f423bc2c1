package apiserver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

func leasesOf(t *testing.T, s *Server) coordinationclient.LeaseInterface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client.CoordinationV1().Leases("n")
}

func TestFaults(t *testing.T) {
	s := New("s", time.Now)
	leases := leasesOf(t, s)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}
	var got []string
	lost := errors.New("lost")
	s.Fault(func(r Request) error {
		got = append(got, r.Verb+" "+r.Resource+" "+r.Namespace+"/"+r.Name)
		if r.Verb == "create" && len(got) == 1 {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), r.Name, errors.New(string(r.Content[:1])))
		}
		return nil
	})
	s.Lose(func(r Request) error {
		if r.Verb == "create" {
			return lost
		}
		return nil
	})
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || s.Get("leases", "n", "l") != nil {
		t.Errorf("refused: %v, there is %v", err, s.Get("leases", "n", "l"))
	}
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); !errors.Is(err, lost) {
		t.Errorf("lost: %v", err)
	}
	if l, err := leases.Get(t.Context(), "l", metav1.GetOptions{}); err != nil || l.UID == "" {
		t.Errorf("after a lost answer (%v): %v", err, l)
	}
	_, _ = leases.List(t.Context(), metav1.ListOptions{})
	_, _ = leases.Patch(t.Context(), "l", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	_ = leases.Delete(t.Context(), "l", metav1.DeleteOptions{})
	want := []string{"create leases n/l", "create leases n/l", "get leases n/l", "list leases n/", "patch leases n/l", "delete leases n/l"}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}

func TestUpdatesThatAreInvalid(t *testing.T) {
	s := New("s", time.Now)
	leases := leasesOf(t, s)
	created, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unversioned, negative := created.DeepCopy(), created.DeepCopy()
	unversioned.ResourceVersion, negative.Spec.LeaseTransitions = "", new(int32(-1))
	for _, l := range []*coordinationv1.Lease{unversioned, negative} {
		if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// While the server is away, nothing is executed and no watch shows anything. What was missed is
// shown later.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New("s", time.Now)
		leases := leasesOf(t, s)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}
		if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w, err := leases.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		s.Away(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := leases.Delete(ctx, "l", metav1.DeleteOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("away: %v", err)
		}
		if !Change(s, "leases", "n", "l", func(l *coordinationv1.Lease) { l.Labels = map[string]string{"a": "b"} }) {
			t.Error("the Lease was deleted while the server was away")
		}
		synctest.Wait()
		if n := len(w.ResultChan()); n > 0 {
			t.Errorf("%d events while the server is away", n)
		}
		s.Away(false)
		event := <-w.ResultChan()
		if l, _ := event.Object.(*coordinationv1.Lease); l == nil || l.Labels["a"] != "b" ||
			Read[coordinationv1.Lease](s, "leases", "n", "l").ResourceVersion != l.ResourceVersion {
			t.Errorf("shown: %+v", event)
		}
	})
}
