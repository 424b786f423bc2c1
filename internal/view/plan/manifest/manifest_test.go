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

// read returns the object in a file that has one.
func read(t *testing.T, content string) Manifest {
	t.Helper()
	all, err := Read([]byte(content))
	if err != nil || len(all) != 1 {
		t.Fatalf("got %v, %v; want one object", all, err)
	}
	return all[0]
}

// TestFilesWithSeveralObjects: documents and items of lists, also those without plans.
func TestFilesWithSeveralObjects(t *testing.T) {
	const item = "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: prod}}"
	for name, tc := range map[string]struct{ file, want string }{
		"none":      {"# nothing\n---\n", ""},
		"documents": {file + "---" + file + "---\n" + item, "MachineDeployment prod/workers, MachineDeployment prod/workers, Secret prod/s"},
		"lists": {
			"{apiVersion: v1, kind: List, items: [" + item + ", {kind: SecretList, items: [" + item + "]}]}\n---\n{kind: List}",
			"Secret prod/s, Secret prod/s",
		},
	} {
		all, err := Read([]byte(tc.file))
		var got []string
		for _, m := range all {
			got = append(got, m.String())
			if m.IsPlanned() != (m.Kind == MachineDeployment) {
				t.Errorf("%s: there is a plan: %t", m, m.IsPlanned())
			}
		}
		if err != nil || strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// TestApplyMergesAsKubectlDoes: fields that others set stay, those that were applied before and are
// missing now are removed.
func TestApplyMergesAsKubectlDoes(t *testing.T) {
	m := read(t, "# a change\n---\n"+file)
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
			m := read(t, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: "+metadata+", spec: {replicas: 3}}")
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
		"an item":     {"{apiVersion: v1, kind: List, items: [{kind: Secret}]}", "in the items of a List: expected metadata.name of a Secret"},
		"no kind":     {"{}", "one without kind"},
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
		m := read(t, tc.file)
		live := &v1alpha1.MachineDeployment{}
		live.UID = "d"
		if _, err := Apply(m, live); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("{kind: List, items: [{kind: MachineDeployment, metadata: {name: a}}]}\n---\n[]"))
	f.Fuzz(func(_ *testing.T, content []byte) {
		all, _ := Read(content)
		for _, m := range all {
			_, _ = Apply(m, &v1alpha1.MachineDeployment{}) // it does not panic
		}
	})
}
