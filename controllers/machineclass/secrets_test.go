package machineclass

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// errNotNow is the error of a request that is to be repeated.
var errNotNow = apierrors.NewInternalError(errors.New("not now"))

// ownClass returns a class that names a Secret of its namespace, n/s.
func ownClass(finalizers ...string) *v1alpha1.MachineClass {
	class := foreignClass(finalizers...)
	class.SecretRef.Namespace = class.Namespace
	return class
}

// ownSecret returns the Secret of ownClass.
func ownSecret(uid types.UID, finalizers ...string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: uid, Finalizers: finalizers}}
}

// requested returns verbs and namespaces of requests for a resource, without those for metadata.
func requested(cluster *apiserver.Server, resource string) (all []string) {
	for _, r := range cluster.Requests() {
		if r.Resource == resource && !r.IsMetadata() {
			all = append(all, r.Verb+" "+r.Namespace)
		}
	}
	return all
}

// TestSecretOfAClassWithVMsIsKept: it gets our finalizer, unless it has it or cannot get it any
// more.
func TestSecretOfAClassWithVMsIsKept(t *testing.T) {
	ours, plain := v1alpha1.SecretFinalizerName, ownSecret("u")
	ending := ownSecret("u", "other")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	written := []string{"get n", "update n"}
	for name, tc := range map[string]struct {
		shown    *corev1.Secret // by its metadata; nil for none
		stored   *corev1.Secret // after that
		changed  bool           // meanwhile
		denied   error          // to the read of the metadata
		requests []string
		fails    bool
	}{
		"it lacks our finalizer":             {shown: plain, stored: plain, requests: written},
		"it has it":                          {shown: ownSecret("u", ours), stored: ownSecret("u", ours)},
		"it is being deleted":                {shown: ending, stored: ending},
		"it does not exist":                  {},
		"it was deleted since":               {shown: plain, requests: []string{"get n"}},
		"it has changed since":               {shown: plain, stored: plain, changed: true, requests: written, fails: true},
		"another one has got its name since": {shown: plain, stored: ownSecret("v"), requests: written, fails: true},
		"it may not be read":                 {stored: plain, denied: apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil), fails: true},
		"it cannot be read":                  {stored: plain, denied: errNotNow, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			shown := apiserver.Recording()
			c, cluster := bench(t)
			defer end(c)
			c.cfg.Metadata = shown.Metadata()
			if tc.shown != nil {
				apiserver.Add(shown, tc.shown)
			}
			if tc.stored != nil {
				apiserver.Add(cluster, tc.stored)
			}
			if tc.changed {
				cluster.Merge("secrets", "n", "s", `{"metadata":{"labels":{"changed":"true"}}}`)
			}
			apiserver.Add(cluster, ownClass(v1alpha1.FinalizerName))
			apiserver.Add(cluster, machine("m", "c", "vm"))
			shown.Refuse("get secrets", tc.denied)
			if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); (err != nil) != tc.fails {
				t.Errorf("error %v, want one: %t", err, tc.fails)
			}
			if got := requested(cluster, "secrets"); !slices.Equal(got, tc.requests) {
				t.Errorf("requests %q, want %q", got, tc.requests)
			}
		})
	}
}

// TestSecretIsReleased: only our finalizer is removed, once no class keeps the Secret: neither in
// the cache nor in any page of live lists, of the Secret's namespace, and of all if it is shared.
func TestSecretIsReleased(t *testing.T) {
	ours, here, everywhere := v1alpha1.SecretFinalizerName, []string{"list n"}, []string{"list n", "list "}
	unclear := `{"metadata":{"namespace":"n","name":"c"},"nodeTemplate":{"capacity":{"cpu":"many"}},"secretRef":"s","apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass"}`
	for name, tc := range map[string]struct {
		finalizers []string // of the Secret
		shared     string
		cached     bool  // whether the cache has a class that keeps it
		failure    error // of each list
		class      *v1alpha1.MachineClass
		others     int // classes that are listed before it
		unclear    bool
		lists      []string
		left       []string // finalizers
		fails      bool
	}{
		"it has not our finalizer": {finalizers: []string{"other"}, left: []string{"other"}},
		"no class names it": {
			finalizers: []string{"first", ours, "last"}, lists: here, left: []string{"first", "last"},
		},
		"no class names it, and it is shared": {finalizers: []string{ours}, shared: "m", lists: everywhere, left: []string{}},
		"a cached class keeps it":             {finalizers: []string{ours}, cached: true, left: []string{ours}},
		"a class keeps it": {
			finalizers: []string{ours}, class: ownClass(v1alpha1.FinalizerName), lists: here, left: []string{ours},
		},
		"a class of the second page keeps it": {
			finalizers: []string{ours}, class: ownClass(v1alpha1.FinalizerName), others: classesPage, lists: []string{"list n", "list n"},
			left: []string{ours},
		},
		"a class without our finalizer names it":       {finalizers: []string{ours}, class: ownClass(), lists: here, left: []string{}},
		"a class without our finalizer is undecodable": {finalizers: []string{ours}, unclear: true, lists: here, left: []string{}},
		"the classes cannot be listed": {
			finalizers: []string{ours}, failure: errNotNow, lists: here, left: []string{ours}, fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			secret := ownSecret("u", tc.finalizers...)
			if tc.shared != "" {
				secret.Annotations = map[string]string{v1alpha1.AnnotationSharedWith: tc.shared}
			}
			c, cluster := bench(t, secret)
			defer end(c)
			for i := range tc.others {
				apiserver.Add(cluster, &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint("a", i)}})
			}
			if tc.class != nil {
				apiserver.Add(cluster, tc.class)
			}
			if tc.unclear {
				cluster.AddJSON("machineclasses", unclear)
			}
			cluster.Refuse("list machineclasses", tc.failure)
			if tc.cached {
				c.cfg.View.Classes.Apply(ownClass(v1alpha1.FinalizerName), false)
			}
			if _, err := c.reconcileSecret(t.Context(), types.NamespacedName{Namespace: "n", Name: "s"}); (err != nil) != tc.fails {
				t.Errorf("error %v, want one: %t", err, tc.fails)
			}
			if got := requested(cluster, "machineclasses"); !slices.Equal(got, tc.lists) {
				t.Errorf("requests %q, want %q", got, tc.lists)
			}
			if left := finalizers(t, cluster, "secrets", "n", "s"); !slices.Equal(left, tc.left) {
				t.Errorf("finalizers %q, want %q", left, tc.left)
			}
		})
	}
}
