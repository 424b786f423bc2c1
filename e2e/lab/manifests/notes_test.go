package manifests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// noted returns an object of one of the four kinds with notes of the fleet, as it is after a
// change.
func noted[T runtime.Object](object T, change func(metav1.Object)) T {
	c, _ := object.DeepCopyObject().(T)
	o, _ := any(c).(metav1.Object)
	o.SetNamespace("tenant")
	o.SetName("x")
	o.SetLabels(map[string]string{v1alpha1.LabelSlot: "7", "name": "d"})
	o.SetAnnotations(map[string]string{
		v1alpha1.AnnotationIntents: "{}", v1alpha1.AnnotationBackoff: "{}", v1alpha1.AnnotationSetAside: "{}", v1alpha1.AnnotationPriority: "3",
	})
	change(o)
	return c
}

// set returns a change that gives an object an annotation, or removes it.
func set(key, value string) func(metav1.Object) {
	return func(o metav1.Object) {
		if value == "" {
			delete(o.GetAnnotations(), key)
			return
		}
		o.GetAnnotations()[key] = value
	}
}

func nothing(metav1.Object) {}

// slot returns a change that removes all labels of an object but that of a slot.
func slot(value string) func(metav1.Object) {
	return func(o metav1.Object) { o.SetLabels(map[string]string{v1alpha1.LabelSlot: value}) }
}

// inTemplate returns a change of the template of a MachineSet or a MachineDeployment.
func inTemplate(change func(*v1alpha1.MachineTemplateSpec)) func(metav1.Object) {
	return func(o metav1.Object) {
		switch o := o.(type) {
		case *v1alpha1.MachineSet:
			change(&o.Spec.Template)
		case *v1alpha1.MachineDeployment:
			change(&o.Spec.Template)
		}
	}
}

func TestOnlyTheFleetWritesItsNotes(t *testing.T) {
	t.Parallel()
	const notes, fleet, tenant = "are notes of the fleet", "", "tenant"
	policies := policiesOf(t, FleetControl())
	m, s, d, class := &v1alpha1.Machine{}, &v1alpha1.MachineSet{}, &v1alpha1.MachineDeployment{}, &v1alpha1.MachineClass{}
	update := func(user string, change func(metav1.Object)) request {
		return request{user: user, before: noted(m, nothing), after: noted(m, change)}
	}
	aside := inTemplate(func(t *v1alpha1.MachineTemplateSpec) {
		t.Annotations = map[string]string{v1alpha1.AnnotationSetAside: "{}"}
	})
	harmless := inTemplate(func(t *v1alpha1.MachineTemplateSpec) { t.Annotations = map[string]string{"a": "b"} })
	bare := func(o metav1.Object) { o.SetLabels(nil); o.SetAnnotations(nil) }
	many := func(o metav1.Object) {
		for i := range 5000 {
			o.GetAnnotations()[fmt.Sprintf("example.org/%d", i)] = strings.Repeat("x", 30)
			o.GetLabels()[fmt.Sprintf("example.org/%d", i)] = strings.Repeat("x", 30)
		}
	}
	for name, tc := range map[string]struct {
		request
		want string
	}{
		"a tenant creates a Machine": {request{user: tenant, after: noted(m, bare)}, ""},
		"a tenant creates a Machine with a note": {request{
			user: tenant, after: noted(m, func(o metav1.Object) { bare(o); o.SetAnnotations(map[string]string{v1alpha1.AnnotationSetAside: "{}"}) }),
		}, notes},
		"a tenant creates a Machine with a slot": {
			request{user: tenant, after: noted(m, func(o metav1.Object) { bare(o); slot("7")(o) })}, notes,
		},
		"a tenant creates a MachineClass with a slot": {
			request{user: tenant, after: noted(class, func(o metav1.Object) { bare(o); slot("7")(o) })}, notes,
		},
		"a tenant creates a MachineSet that adds notes": {
			request{user: tenant, after: noted(s, func(o metav1.Object) { bare(o); aside(o) })}, notes,
		},
		"a tenant creates a deployment that adds notes": {
			request{user: tenant, after: noted(d, func(o metav1.Object) { bare(o); aside(o) })}, notes,
		},
		"a tenant creates a deployment with a slot below": {request{user: tenant, after: noted(d, func(o metav1.Object) {
			bare(o)
			inTemplate(func(t *v1alpha1.MachineTemplateSpec) { t.Labels = map[string]string{v1alpha1.LabelSlot: "7"} })(o)
		})}, notes},
		"a tenant creates a MachineDeployment": {request{user: tenant, after: noted(d, func(o metav1.Object) {
			bare(o)
			harmless(o)
			o.SetAnnotations(map[string]string{v1alpha1.AnnotationCountMinReady: "true"})
		})}, ""},
		"a tenant has a deployment add notes": {request{user: tenant, before: noted(d, nothing), after: noted(d, aside)}, notes},
		"a tenant changes a template":         {request{user: tenant, before: noted(d, nothing), after: noted(d, harmless)}, ""},
		"a tenant changes a template with a note": {
			request{user: tenant, before: noted(d, aside), after: noted(d, func(o metav1.Object) { aside(o); set("a", "b")(o) })}, "",
		},
		"a tenant changes nothing":       {update(tenant, nothing), ""},
		"the autoscaler names a Machine": {update(tenant, set(v1alpha1.AnnotationPriority, "1")), ""},
		"a finalizer is removed": {request{user: "system:serviceaccount:kube-system:generic-garbage-collector", before: noted(
			m, func(o metav1.Object) { o.SetFinalizers([]string{"foregroundDeletion"}) },
		), after: noted(m, nothing)}, ""},
		"a tenant adds a note":                       {update(tenant, set(v1alpha1.AnnotationUncordonAt, "2026-01-02T03:04:05Z")), notes},
		"a tenant adds a note that is not known yet": {update(tenant, set(v1alpha1.FleetDomain+"x", "y")), notes},
		"a tenant changes a note":                    {update(tenant, set(v1alpha1.AnnotationIntents, `{"create":[1]}`)), notes},
		"a tenant changes what sets a Machine aside": {update(tenant, set(v1alpha1.AnnotationSetAside, `{"times":9}`)), notes},
		"a tenant removes a note":                    {update(tenant, set(v1alpha1.AnnotationIntents, "")), notes},
		"a tenant has a Machine tried at once":       {update(tenant, set(v1alpha1.AnnotationSetAside, "")), ""},
		"a tenant has the cloud asked at once":       {update(tenant, set(v1alpha1.AnnotationBackoff, "")), ""},
		"a tenant has minReadySeconds count":         {update(tenant, set(v1alpha1.AnnotationCountMinReady, "true")), ""},
		"a tenant omits the taint of updated Nodes":  {update(tenant, set(v1alpha1.AnnotationComponentsTaint, "false")), ""},
		"a tenant sets thresholds":                   {update(tenant, set(v1alpha1.AnnotationCircuitBreaker, "not-ready=1")), ""},
		"a tenant allows fields to be ignored": {
			request{user: tenant, before: noted(class, nothing), after: noted(class, set(v1alpha1.AnnotationAllowUnknownFields, "priority"))}, "",
		},
		"a tenant hides which fields are ignored": {
			request{user: tenant, before: noted(class, nothing), after: noted(class, set(v1alpha1.AnnotationUnknownFields, "none"))}, notes,
		},
		"a tenant changes a slot":     {update(tenant, slot("8")), notes},
		"a tenant removes a slot":     {update(tenant, func(o metav1.Object) { o.SetLabels(nil) }), notes},
		"a tenant removes everything": {update(tenant, bare), notes},
		"a tenant changes a large Machine": {
			request{user: tenant, before: noted(m, many), after: noted(m, func(o metav1.Object) { many(o); set("a", "b")(o) })}, "",
		},
		"a tenant creates a large Machine": {request{user: tenant, after: noted(m, func(o metav1.Object) {
			many(o)
			delete(o.GetLabels(), v1alpha1.LabelSlot)
			o.SetAnnotations(map[string]string{"a": "b"})
		})}, ""},
		"the fleet changes a note":                        {update(fleet, set(v1alpha1.AnnotationIntents, `{"create":[1]}`)), ""},
		"the fleet creates a Machine":                     {request{after: noted(m, nothing)}, ""},
		"the fleet labels":                                {update(fleet, slot("8")), ""},
		"a tool that restores a backup creates a Machine": {request{user: restorer, after: noted(m, nothing)}, ""},
		"a tool that restores a backup changes a Machine": {update(restorer, bare), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.refusal(t, policies); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("refused with %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNotesOfNamespacesThatTheFleetDoesNotServeOthersMayWrite(t *testing.T) {
	t.Parallel()
	rendered, err := os.ReadFile("testdata/one-cluster-tenant.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := policiesOf(t, rendered)
	for namespace, want := range map[string]bool{"tenant": true, "other": false} {
		r := request{user: "tenant", after: noted(&v1alpha1.Machine{}, func(o metav1.Object) { o.SetNamespace(namespace) })}
		if got := r.refusal(t, policies); (got != "") != want {
			t.Errorf("in namespace %s refused with %q, want it refused: %v", namespace, got, want)
		}
	}
}
