package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const file = `
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: workers, namespace: prod, resourceVersion: "7", annotations: {mine: "1"}}
spec:
  strategy: {type: Recreate}
  template: {spec: {class: {kind: MachineClass, name: large}}}
status: {replicas: 9}
`

// TestApplyMergesAsKubectlDoes: fields that others set stay, those that were applied before and are
// missing now are removed.
func TestApplyMergesAsKubectlDoes(t *testing.T) {
	m, err := Read([]byte("# a change\n---\n" + file))
	if err != nil {
		t.Fatal(err)
	}
	if m.Kind != MachineDeployment || m.Namespace != "prod" || m.Name != "workers" {
		t.Errorf("got %+v", m)
	}
	live := &v1alpha1.MachineDeployment{}
	live.Name, live.UID, live.ResourceVersion = "workers", "d", "12"
	live.Annotations = map[string]string{
		"theirs":    "2",
		lastApplied: `{"spec":{"minReadySeconds":5,"strategy":{"type":"Recreate"},"template":{"spec":{"class":{"name":"small"}}}}}`,
	}
	live.Spec.Replicas, live.Spec.MinReadySeconds = 4, 5
	live.Spec.Template.Spec.Class.Name = "small"
	live.Status.Replicas = 4
	after, err := Apply(m, live)
	if err != nil {
		t.Fatal(err)
	}
	s := after.Spec
	if s.Replicas != 4 || s.MinReadySeconds != 0 || s.Template.Spec.Class.Name != "large" || s.Strategy.Type != "Recreate" {
		t.Errorf("spec is %+v", s)
	}
	if after.Annotations["mine"] != "1" || after.Annotations["theirs"] != "2" || after.ResourceVersion != "12" || after.Status.Replicas != 4 {
		t.Errorf("got %+v, status %+v", after.ObjectMeta, after.Status)
	}
	created, err := Apply[v1alpha1.MachineDeployment](m, nil)
	if err != nil || created.Spec.Template.Spec.Class.Name != "large" || created.Status.Replicas != 0 {
		t.Errorf("created is %+v, %v", created, err)
	}
}

// TestUnchangedFilesChangeNothing: what controllers have written stays, whether kubectl apply has
// recorded that the file has no annotations or has recorded nothing.
func TestUnchangedFilesChangeNothing(t *testing.T) {
	for name, recorded := range map[string]string{
		"created": "",
		"applied": `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineDeployment","metadata":{"annotations":{},"name":"workers",` +
			`"creationTimestamp":null,"namespace":"prod"},"spec":{"replicas":3},"status":{}}`,
	} {
		for annotations, metadata := range map[string]string{
			"none": "{name: workers, namespace: prod}", "empty": "{name: workers, namespace: prod, annotations: {}}",
			"null": "{name: workers, namespace: prod, annotations: null}",
		} {
			m, err := Read([]byte("{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: " + metadata +
				", spec: {replicas: 3}}"))
			if err != nil {
				t.Fatal(err)
			}
			live := &v1alpha1.MachineDeployment{}
			live.APIVersion, live.Kind = "machine.sapcloud.io/v1alpha1", MachineDeployment
			live.Name, live.Namespace, live.UID, live.Finalizers = "workers", "prod", "d", []string{"theirs"}
			live.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
			if recorded != "" {
				live.Annotations[lastApplied] = recorded
			}
			live.Labels = map[string]string{v1alpha1.LabelSlot: "3"}
			live.Spec.Replicas, live.Status.Replicas = 3, 3
			after, err := Apply(m, live)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(live, after); diff != "" {
				t.Errorf("%s, annotations in the file %s: %s", name, annotations, diff)
			}
		}
	}
}

func TestFilesThatHaveNoPlan(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"empty":       {"# nothing\n", "the file has none"},
		"several":     {file + "---" + file, "the file has 2"},
		"a list":      {"{apiVersion: v1, kind: List, items: []}", "plan of each of its items"},
		"a kind":      {"{apiVersion: v1, kind: Secret, metadata: {name: s}}", `the kind "Secret"`},
		"a version":   {strings.Replace(file, "v1alpha1", "v1", 1), `apiVersion machine.sapcloud.io/v1alpha1 of the kind MachineDeployment`},
		"no name":     {strings.Replace(file, "name: workers, ", "", 1), "expected metadata.name"},
		"no object":   {"[1]", "expected an object"},
		"no YAML":     {"a: [", "expected YAML or JSON"},
		"a key twice": {file + "status: {}\n", "already"},
	} {
		if _, err := Read([]byte(tc.file)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	for name, tc := range map[string]struct{ file, want string }{
		"an unknown field": {strings.Replace(file, "strategy:", "stategy:", 1), `unknown field "stategy"`},
		"another type":     {strings.Replace(file, "spec:\n", "spec:\n  replicas: many\n", 1), "cannot unmarshal string"},
		"another UID":      {strings.Replace(file, "{name: workers", "{uid: other, name: workers", 1), "remove metadata.uid"},
	} {
		m, err := Read([]byte(tc.file))
		if err != nil {
			t.Fatal(err)
		}
		live := &v1alpha1.MachineDeployment{}
		live.UID = "d"
		if _, err := Apply(m, live); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("{}\n---\n[]"))
	f.Fuzz(func(_ *testing.T, content []byte) {
		m, err := Read(content)
		if err != nil {
			return
		}
		_, _ = Apply(m, &v1alpha1.MachineDeployment{}) // it does not panic
	})
}
