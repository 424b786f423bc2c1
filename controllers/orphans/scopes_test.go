package orphans

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// editClass changes the MachineClass.
func (s *sweeping) editClass(edit func(fields map[string]any)) {
	s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) { edit(u.Object) })
}

// fails sweeps, and checks that the sweep reports an error.
func (s *sweeping) fails(part string) {
	s.Helper()
	s.clock.Step(timeBetween)
	if _, err := s.orphans.reconcile(s.Context(), namespace); err == nil || !strings.Contains(err.Error(), part) {
		s.Errorf("error %v, want one with %q", err, part)
	}
}

// TestScopeCredentials: with credentials that the class may use its scope is swept, without them it
// is skipped, and the error of a read is reported.
func TestScopeCredentials(t *testing.T) {
	elsewhere := func(sharedWith string) func(s *sweeping) {
		return func(s *sweeping) {
			s.put("secrets", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
				"namespace": "elsewhere", "name": "shared", "annotations": map[string]any{v1alpha1.AnnotationSharedWith: sharedWith},
			}})
			s.editClass(func(fields map[string]any) {
				fields["secretRef"] = map[string]any{"namespace": "elsewhere", "name": "shared"}
			})
		}
	}
	refer := func(name string) func(s *sweeping) {
		return func(s *sweeping) {
			s.editClass(func(fields map[string]any) { fields["secretRef"] = map[string]any{"name": name} })
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, c := range map[string]struct {
		prepare  func(s *sweeping)
		answer   error // to requests for Secrets
		only     bool  // the fleet serves this namespace only
		listed   bool  // the cloud is listed
		err      string
		metadata int // requests for a Secret, and for its metadata first
		secrets  int
	}{
		"in the namespace": {listed: true, secrets: 1},
		"no reference": {
			prepare: func(s *sweeping) { s.editClass(func(fields map[string]any) { delete(fields, "secretRef") }) },
		},
		"no Secret":                           {prepare: refer("missing"), secrets: 1},
		"a reference that no Secret can have": {prepare: refer("../credentials")},
		"no access":                           {answer: forbidden, err: "read Secret", secrets: 1},
		"elsewhere, shared":                   {prepare: elsewhere("other, " + namespace), listed: true, metadata: 1, secrets: 1},
		"elsewhere, not shared":               {prepare: elsewhere("other"), metadata: 1},
		"elsewhere, no Secret": {
			prepare: func(s *sweeping) { elsewhere(namespace)(s); s.Remove("secrets", "elsewhere", "shared") }, metadata: 1,
		},
		"elsewhere, no access": {
			prepare: elsewhere(namespace), answer: forbidden, err: "read its metadata", metadata: 1,
		},
		"elsewhere, which the fleet does not serve": {prepare: elsewhere(namespace), answer: forbidden, only: true, metadata: 1},
		"elsewhere, shared, in the only namespace that is served": {
			prepare: elsewhere(namespace), only: true, listed: true, metadata: 1, secrets: 1,
		},
		"elsewhere, no answer, in the only namespace that is served": {
			prepare: elsewhere(namespace), only: true, metadata: 1, err: "read its metadata",
			answer: apierrors.NewServiceUnavailable("no"),
		},
		"elsewhere, no longer shared when it is read": {
			prepare: elsewhere(namespace), metadata: 1, secrets: 1, // it is changed between the two reads
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			if c.prepare != nil {
				c.prepare(s)
			}
			if c.only {
				s.config.Namespace = namespace
			}
			s.lead()
			metadataReads, reads := 0, 0
			s.Fault(func(r apiserver.Request) error {
				switch {
				case r.Resource != "secrets":
					return nil
				case r.IsMetadata():
					metadataReads++
				default:
					reads++
					if strings.HasSuffix(name, "when it is read") {
						s.Edit("secrets", "elsewhere", "shared", func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
					}
				}
				return c.answer
			})
			s.clock.Step(timeBetween)
			_, err := s.orphans.reconcile(t.Context(), namespace)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			listed := len(s.cloud.Calls(driver.OpResources)) > 0
			if listed != c.listed || metadataReads != c.metadata || reads != c.secrets {
				t.Errorf("listed: %t, %d reads of metadata and %d of Secrets, want %t, %d and %d",
					listed, metadataReads, reads, c.listed, c.metadata, c.secrets)
			}
		})
	}
}

// The driver gets the data of the Secret with the credentials.
func TestScopeCredentialsAreThoseOfTheSecret(t *testing.T) {
	s := newSweeping(t, 10)
	s.Edit("secrets", namespace, "credentials", func(u *unstructured.Unstructured) { u.Object["data"] = map[string]any{"account": "MQ=="} })
	var got []string
	s.cloud.Way = func(_ context.Context, call fakecloud.Call, send func() error) error {
		if call.Op == driver.OpScope {
			got = append(got, string(call.Secret["account"]))
		}
		return send()
	}
	s.sweep(namespace)
	if !slices.Equal(got, []string{"1"}) {
		t.Errorf("accounts %q, want that of the Secret", got)
	}
}

func TestUndeterminedScopeIsReported(t *testing.T) {
	s := newSweeping(t, 10)
	s.cloud.Way = func(context.Context, fakecloud.Call, func() error) error { return errors.New("no account") }
	s.fails("no account")
}

// Two classes with the same account are one scope, whose record is on the class that stays. Their
// Secret is read once.
func TestScopeOfTwoClassesIsListedOnceWithTheClassThatStays(t *testing.T) {
	for name, missing := range map[string]bool{"with their Secret": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.putClassOfName(namespace, "d", providerOfClass)
			s.editClass(func(fields map[string]any) {
				_ = unstructured.SetNestedStringSlice(fields, []string{"keep"}, "metadata", "finalizers")
				_ = unstructured.SetNestedField(fields, metav1.Unix(1e9, 0).UTC().Format("2006-01-02T15:04:05Z"), "metadata", "deletionTimestamp")
			})
			s.add(driver.ResourceVM, namespace, "vm")
			if missing {
				s.Remove("secrets", namespace, "credentials")
			}
			s.sweep(namespace)
			if n := s.Count("get secrets"); n != 1 {
				t.Errorf("%d reads of the Secret, want 1", n)
			}
			for name, want := range map[string]bool{class: false, "d": !missing} {
				if _, has := s.Get("machineclasses", namespace, name).GetAnnotations()[v1alpha1.AnnotationOrphans]; has != want {
					t.Errorf("MachineClass %s has a record: %t, want %t", name, has, want)
				}
			}
		})
	}
}

// An orphan that two scopes list is held in that in which it is old enough, and not approved with
// it in the other one.
func TestOrphanOfTwoScopesIsHeldWhereItIsOldEnough(t *testing.T) {
	s := newSweeping(t, 0)
	s.config.Sweeper = func(string) (driver.Sweeper, bool) { return s.cloud.Driver(), true }
	s.lead()
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	s.putClassOfName(namespace, "d", "another")
	s.sweep(namespace)
	held := s.eventsOf(v1alpha1.EventOrphansHeld)
	if len(held) != 1 || held[0].about != namespace+"/"+class {
		t.Errorf("Events OrphansHeld: %v, want one about MachineClass %s", held, class)
	}
}

// A class that cannot be decoded exists: machines that name it do not stop the sweep of the
// namespace.
func TestClassThatCannotBeDecodedCountsAsExisting(t *testing.T) {
	s := newSweeping(t, 10)
	s.put("machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
		"metadata": map[string]any{"namespace": namespace, "name": "broken"}, "provider": map[string]any{"no": "text"},
	})
	s.put("machines", machineDocument(namespace, "m", "broken"))
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweepTwice()
	s.wantDeleted("vm")
	s.add(driver.ResourceVM, namespace, "later")
	s.sweep(namespace)
	s.Remove("machineclasses", namespace, "broken")
	s.sweep(namespace)
	s.wantDeleted("vm")
}

// The first class by name is the same in each sweep, also when classes of several scopes are listed
// in another order.
func TestSortedOrdersByClass(t *testing.T) {
	scopes := map[string]*scope{}
	var want []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		scopes["key-of-"+name] = &scope{class: &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name}}}
		want = append(want, name)
	}
	for range 10 {
		var got []string
		for _, sc := range sorted(scopes) {
			got = append(got, sc.class.Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("order %q, want %q", got, want)
		}
	}
}

// A class that another client writes all the time is swept like others; one that has changed in
// what the sweep depends on is not acted upon.
func TestClassThatIsWrittenDuringASweep(t *testing.T) {
	annotated := func(key string) func(s *sweeping) {
		return func(s *sweeping) {
			s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) {
				annotations := maps.Clone(u.GetAnnotations())
				annotations[key] += "x"
				u.SetAnnotations(annotations)
			})
		}
	}
	for name, tc := range map[string]struct {
		edit    func(s *sweeping)
		times   int // before so many writes of the record
		refused bool
	}{
		"another annotation, twice":  {edit: annotated(others), times: 2},
		"a request for a sweep":      {edit: annotated(v1alpha1.AnnotationSweepRequested), times: 1},
		"another annotation, always": {edit: annotated(others), times: mostWrites, refused: true},
		"the record":                 {edit: annotated(v1alpha1.AnnotationOrphans), times: 1, refused: true},
		"the approval":               {edit: annotated(v1alpha1.AnnotationDeleteOrphans), times: 1, refused: true},
		"the account": {
			edit: func(s *sweeping) { s.editClass(func(fields map[string]any) { fields["provider"] = "another" }) }, times: 1, refused: true,
		},
		"its deletion": {edit: func(s *sweeping) {
			s.editClass(func(fields map[string]any) {
				(&unstructured.Unstructured{Object: fields}).SetDeletionTimestamp(&metav1.Time{Time: s.clock.Now()})
			})
		}, times: 1, refused: true},
		"another class": {edit: func(s *sweeping) {
			annotations := s.Get("machineclasses", namespace, class).GetAnnotations()
			s.Remove("machineclasses", namespace, class)
			s.putClassOfName(namespace, class, providerOfClass)
			s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) { u.SetAnnotations(annotations) })
		}, times: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.add(driver.ResourceVM, namespace, "vm")
			s.sweep(namespace)
			times := 0
			s.Fault(func(r apiserver.Request) error {
				if r.What() == "patch machineclasses" && times < tc.times {
					times++
					tc.edit(s)
				}
				return nil
			})
			if !tc.refused {
				s.sweep(namespace)
				s.wantDeleted("vm")
				return
			}
			s.fails("record the suspicions")
			s.wantDeleted()
		})
	}
	t.Run("not, but the write is refused", func(t *testing.T) {
		s := newSweeping(t, 10)
		s.add(driver.ResourceVM, namespace, "vm")
		s.Refuse("patch *", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		s.fails("record the suspicions")
		if n := s.Count("patch machineclasses"); n != 1 {
			t.Errorf("written %d times, want once", n)
		}
	})
}
