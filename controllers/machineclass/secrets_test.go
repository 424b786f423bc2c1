package machineclass

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machinefake "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/fake"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
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
func ownSecret(uid types.UID, version string, finalizers ...string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: uid, ResourceVersion: version, Finalizers: finalizers}}
}

// clusterOf returns a cluster that has a Secret, unless it is nil, and rejects to write another version of it.
func clusterOf(secret *corev1.Secret) *fake.Clientset {
	if secret == nil {
		return fake.NewClientset()
	}
	cluster := fake.NewClientset(secret)
	cluster.PrependReactor("update", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		update, _ := a.(clienttesting.UpdateAction)
		if o, ok := update.GetObject().(metav1.Object); ok && o.GetUID() == secret.UID && o.GetResourceVersion() == secret.ResourceVersion {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), secret.Name, errors.New("it has changed"))
	})
	return cluster
}

// requested returns verbs and namespaces of requests.
func requested(actions []clienttesting.Action) (all []string) {
	for _, a := range actions {
		all = append(all, a.GetVerb()+" "+a.GetNamespace())
	}
	return all
}

// TestSecretOfAClassWithVMsIsKept: it gets our finalizer, unless it has it or cannot get it any more.
func TestSecretOfAClassWithVMsIsKept(t *testing.T) {
	ours, plain := v1alpha1.SecretFinalizerName, ownSecret("u", "7")
	ending := ownSecret("u", "7", "other")
	ending.DeletionTimestamp = &metav1.Time{}
	written := []string{"get n", "update n"}
	for name, tc := range map[string]struct {
		shown    *corev1.Secret // by its metadata; nil for none
		stored   *corev1.Secret // after that
		denied   error          // to the read of the metadata
		requests []string
		fails    bool
	}{
		"it lacks our finalizer":             {shown: plain, stored: plain, requests: written},
		"it has it":                          {shown: ownSecret("u", "7", ours), stored: ownSecret("u", "7", ours)},
		"it is being deleted":                {shown: ending, stored: ending},
		"it does not exist":                  {},
		"it was deleted since":               {shown: plain, requests: []string{"get n"}},
		"it has changed since":               {shown: plain, stored: ownSecret("u", "8"), requests: written, fails: true},
		"another one has got its name since": {shown: plain, stored: ownSecret("v", "7"), requests: written, fails: true},
		"it may not be read":                 {stored: plain, denied: apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil), fails: true},
		"it cannot be read":                  {stored: plain, denied: errNotNow, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			about, secrets := apitest.SecretMetadata(clusterOf(tc.shown)), clusterOf(tc.stored)
			if tc.denied != nil {
				about.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.denied })
			}
			c, _ := bench(t, secrets, about, ownClass(v1alpha1.FinalizerName), machine("m", "c", "vm"))
			defer end(c)
			if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); (err != nil) != tc.fails {
				t.Errorf("error %v, want one: %t", err, tc.fails)
			}
			if got := requested(secrets.Actions()); !slices.Equal(got, tc.requests) {
				t.Errorf("requests %q, want %q", got, tc.requests)
			}
		})
	}
}

// TestSecretIsReleased: only our finalizer is removed, once no class keeps the Secret: neither in the cache nor in any page of live
// lists, of the Secret's namespace, and of all if it is shared.
func TestSecretIsReleased(t *testing.T) {
	ours, here, everywhere := v1alpha1.SecretFinalizerName, []string{"list n"}, []string{"list n", "list "}
	unclear := `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{"namespace":"n","name":"c"},` +
		`"nodeTemplate":{"capacity":{"cpu":"many"}},"secretRef":"s"}`
	page := func(items ...v1alpha1.MachineClass) *v1alpha1.MachineClassList {
		return &v1alpha1.MachineClassList{Items: items}
	}
	more := page()
	more.Continue = "more"
	for name, tc := range map[string]struct {
		finalizers []string // of the Secret
		shared     string
		cached     bool  // whether the cache has a class that keeps it
		failure    error // of each list
		pages      []*v1alpha1.MachineClassList
		lists      []string
		left       []string // finalizers
		fails      bool
	}{
		"it has not our finalizer":                     {finalizers: []string{"other"}, left: []string{"other"}},
		"no class names it":                            {finalizers: []string{"first", ours, "last"}, lists: here, left: []string{"first", "last"}},
		"no class names it, and it is shared":          {finalizers: []string{ours}, shared: "m", lists: everywhere, left: []string{}},
		"a cached class keeps it":                      {finalizers: []string{ours}, cached: true, left: []string{ours}},
		"a class keeps it":                             {finalizers: []string{ours}, pages: []*v1alpha1.MachineClassList{page(*ownClass(v1alpha1.FinalizerName))}, lists: here, left: []string{ours}},
		"a class of the second page keeps it":          {finalizers: []string{ours}, pages: []*v1alpha1.MachineClassList{more, page(*ownClass(v1alpha1.FinalizerName))}, lists: []string{"list n", "list n"}, left: []string{ours}},
		"a class without our finalizer names it":       {finalizers: []string{ours}, pages: []*v1alpha1.MachineClassList{page(*ownClass())}, lists: here, left: []string{}},
		"a class without our finalizer is undecodable": {finalizers: []string{ours}, failure: &decode.ListError{Failures: []*decode.Failure{apitest.Undecodable(t, unclear)}}, lists: here, left: []string{}},
		"the classes cannot be listed":                 {finalizers: []string{ours}, failure: errNotNow, lists: here, left: []string{ours}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			secret := ownSecret("u", "7", tc.finalizers...)
			if tc.shared != "" {
				secret.Annotations = map[string]string{v1alpha1.AnnotationSharedWith: tc.shared}
			}
			secrets := clusterOf(secret)
			c, machines := bench(t, secrets, nil)
			defer end(c)
			answerLists(machines, tc.pages, tc.failure)
			if tc.cached {
				c.cfg.View.Classes.Apply(ownClass(v1alpha1.FinalizerName), false)
			}
			if _, err := c.reconcileSecret(t.Context(), types.NamespacedName{Namespace: "n", Name: "s"}); (err != nil) != tc.fails {
				t.Errorf("error %v, want one: %t", err, tc.fails)
			}
			if got := requested(machines.Actions()); !slices.Equal(got, tc.lists) {
				t.Errorf("requests %q, want %q", got, tc.lists)
			}
			live, err := secrets.CoreV1().Secrets("n").Get(t.Context(), "s", metav1.GetOptions{})
			if err != nil || !slices.Equal(live.Finalizers, tc.left) {
				t.Errorf("finalizers %q (%v), want %q", live.Finalizers, err, tc.left)
			}
		})
	}
}

// answerLists answers lists of classes by pages, one after the other, and by empty ones after them, all with the failure.
func answerLists(machines *machinefake.Clientset, pages []*v1alpha1.MachineClassList, failure error) {
	machines.PrependReactor("list", "machineclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(pages) == 0 {
			return true, &v1alpha1.MachineClassList{}, failure
		}
		page := pages[0]
		pages = pages[1:]
		return true, page, failure
	})
}
