package definitions_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

const (
	badInputPage = "../../../docs/bad-input.md"
	badInputHead = "# Bad input\n\n" +
		"What is answered to objects that are wrong, and by whom; written by `go test ./definitions -update` in `lab`, " +
		"which runs them through the definitions as an API\n" +
		"server does and through the checks of the controllers. Do not edit. Each row is a valid object of its kind with one change. " +
		"Objects that are stored already\n" +
		"can be changed as before, except in what is wrong; a list, such as that of taints, counts as a whole.\n\n" +
		"- *API server*: the object is refused. An unknown field is refused by `kubectl`, " +
		"and dropped with a warning for clients that do not ask for validation.\n" +
		"- *Valid=False*: a condition of the MachineDeployment or MachineSet, which is not reconciled; of a MachineClass, " +
		"that of those which name it (`InvalidClass`).\n" +
		"- *Valid=True*: the condition with the reason `Remarks`, where Machine Controller Manager accepts the value, too.\n" +
		"- *lastOperation*: that of the Machine, before a VM is created.\n" +
		"- *Event*: the [Event](events.md) of that reason.\n\n" +
		"What to do then is in [troubleshooting](troubleshooting.md#too-few-machines-or-none).\n\n" +
		"| kind | change | answered by | message |\n|---|---|---|---|\n"
)

// wrongHere lists manifests that MCM accepts, and that hardly mean what their author expects.
var wrongHere = []manifest{
	{"MachineDeployment", `spec: {template: {spec: {class: {kind: AWSMachineClass}}}}`},
	{"MachineDeployment", `spec: {template: {spec: {maxEvictRetries: -3}}}`},
	{"MachineDeployment", `spec: {template: {spec: {nodeConditions: KernelDedlock}}}`},
	{"MachineDeployment", `spec: {template: {spec: {nodeConditions: Ready}}}`},
	{"MachineDeployment", `spec: {selector: {matchLabels: {name: a b}}, template: {metadata: {labels: {name: a b}}}}`},
	{"MachineDeployment", `spec: {strategy: {rollingUpdate: {maxSurge: 99999999999%}}}`},
	{"MachineDeployment", `spec: {replicas: "2"}`},
	{"MachineSet", `spec: {template: {spec: {class: {kind: AWSMachineClass}}}}`},
	{"MachineSet", `spec: {template: {spec: {nodeTemplate: {metadata: {labels: {a: b c}}}}}}`},
	{"MachineSet", `spec: {template: {spec: {nodeTemplate: {spec: {taints: [{key: a, effect: NoSchedul}]}}}}}`},
	{"MachineSet", `spec: {template: {spec: {maxEvictRetries: -3}}}`},
	{"Machine", `{metadata: {name: a.b-` + strings.Repeat("c", 60) + `}}`},
	{"Machine", `spec: {class: {kind: AWSMachineClass}}`},
	{"Machine", `spec: {maxEvictRetries: -3}`},
	{"Machine", `spec: {nodeConditions: KernelDedlock}`},
	{"Machine", `spec: {nodeTemplate: {spec: {taints: [{key: a, effect: NoSchedul}]}}}`},
	{"MachineClass", `{provider: AWS}`},
	{"MachineClass", `{provider: null}`},
	{"MachineClass", `{secretRef: {name: none}}`},
	{"MachineClass", `{secretRef: null}`},
	{"MachineClass", `{providerSpec: {machineType: large}}`},
	{"MachineClass", `{providerSpec: {zone: 5}}`},
	{"MachineClass", `{providerSpec: {encrypted: true}}`},
}

// otherwise has who answers to other values, or why it is not answered, by kind and a part of the
// change; a kind of "" means all.
var otherwise = []struct{ kind, part, by, message string }{
	{"", "rollbackTo", "Event", "RollbackRevisionNotFound of the MachineDeployment"},
	{"", "emplate: {metadata", "not at all", "unknown fields of metadata are kept, because objects of Machine Controller Manager have some"},
	{"Machine", "taints", "Event", "NodeRefused of the Machine, when its VM has joined: Machines are created from stored templates, too"},
	{"Machine", "nodeConditions", "not at all", "a Machine has no condition for it; it has no effect on a Node without the condition"},
	{"Machine", "kind", "not at all", "a Machine has no condition for it; it is read as MachineClass"},
	{"Machine", "-", "not at all", "a Machine has no condition for it; it counts as 0"},
}

// TestBadInput writes the table of what is answered to bad objects: each field of the four kinds
// with a wrong type, beyond its limits and misspelled.
func TestBadInput(t *testing.T) {
	t.Parallel()
	kinds := serve(t, mcmcrds.Fleet)
	var bad []manifest
	for _, kind := range []string{"MachineDeployment", "MachineSet", "Machine", "MachineClass"} {
		bad = append(bad, wrongFields(t, kind, kinds[kind].schema)...)
		for _, b := range broken {
			if b.kind == kind && len(b.patch) < 200 {
				bad = append(bad, b.manifest)
			}
		}
		for _, m := range slices.Concat(brokenForMCM, wrongHere) {
			if m.kind == kind {
				bad = append(bad, m)
			}
		}
	}
	var page strings.Builder
	page.WriteString(badInputHead)
	seen := map[manifest]bool{}
	for _, m := range bad {
		if seen[m] {
			continue
		}
		seen[m] = true
		by, message := answer(t, kinds, m)
		if by == "" {
			t.Errorf("%s %s: it is not answered, and otherwise has no reason", m.kind, m.patch)
		}
		fmt.Fprintf(&page, "| %s | `%s` | %s | %s |\n", m.kind, cell(m.patch, 90), by, cell(message, 160))
	}
	if len(seen) < 200 {
		t.Errorf("the table has %d objects, want 200", len(seen))
	}
	golden.Compare(t, badInputPage, page.String())
}

// cell returns a text of a table, shortened.
func cell(text string, most int) string {
	text, _, _ = strings.Cut(text, ", <nil>: ") // the remark that other rules were not checked
	text = strings.NewReplacer("|", "\\|", "\n", " ", "](", "] (").Replace(strings.TrimPrefix(text, "["))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// wrongFields returns a manifest for each field of a kind and each way in which it can be wrong.
func wrongFields(t *testing.T, kind string, schema *structuralschema.Structural) (bad []manifest) {
	t.Helper()
	add := func(path []string, value string) {
		patch := value
		for _, name := range slices.Backward(path) {
			patch = "{" + name + ": " + patch + "}"
		}
		bad = append(bad, manifest{kind, patch})
	}
	var walk func(path []string, s structuralschema.Structural)
	walk = func(path []string, s structuralschema.Structural) {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if len(path) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name) ||
				slices.Contains([]string{"ownerReferences", "configSource"}, name) || kind != "Machine" && slices.Contains(path, "nodeTemplate") {
				continue
			}
			at, of := append(slices.Clone(path), name), s.Properties[name]
			add(append(slices.Clone(path), name[:len(name)-1]), "1")
			for _, value := range wrongValues(of) {
				add(at, value)
			}
			walk(at, of)
		}
	}
	walk(nil, *schema)
	return bad
}

// wrongValues returns values that a field cannot have, or should not.
func wrongValues(s structuralschema.Structural) []string {
	isDuration := func(r structuralschema.Structural) bool {
		return len(r.XValidations) > 0 && strings.Contains(r.XValidations[0].Rule, "duration(")
	}
	switch {
	case s.Type == "string" && isDuration(s):
		return []string{"soon", "-5m"}
	case s.Type == "integer":
		return []string{"some", "-1"}
	case s.Type == "string", s.Type == "array":
		return []string{"{}"}
	case s.Type == "boolean", s.Type == "object":
		return []string{"\"yes\""}
	}
	return nil
}

// answer returns who answers a bad object, and how; "" if it is not answered, for no reason.
func answer(t *testing.T, kinds served, m manifest) (by, message string) {
	t.Helper()
	object := m.object(t)
	given := object.DeepCopy()
	object, err := kinds.create(t.Context(), object)
	if err != nil {
		_, message, _ = strings.Cut(err.Error(), " is invalid: ")
		if message == "" {
			message = err.Error()
		}
		return "API server", message
	}
	options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	if unknown := pruning.PruneWithOptions(given.Object, kinds[m.kind].schema, true, options); len(unknown) > 0 {
		return "API server", fmt.Sprintf("unknown field %q", unknown[0])
	}
	return answerOfControllers(t, m, object)
}

func answerOfControllers(t *testing.T, m manifest, object *unstructured.Unstructured) (by, message string) {
	t.Helper()
	switch m.kind {
	case "MachineDeployment":
		d := decoded[v1alpha1.MachineDeployment](t, object)
		return judged(validation.ValidateMachineDeployment(d), validation.RemarksOnMachineDeployment(&d.Spec), m)
	case "MachineSet":
		s := decoded[v1alpha1.MachineSet](t, object)
		return judged(validation.ValidateMachineSet(s), validation.RemarksOnMachineSet(&s.Spec), m)
	case "Machine":
		if errs := validation.ValidateMachine(decoded[v1alpha1.Machine](t, object)); len(errs) > 0 {
			return "lastOperation", "the machine is invalid: " + errs.ToAggregate().Error()
		}
		return judged(nil, nil, m)
	}
	if problem := problemOf(t, decoded[v1alpha1.MachineClass](t, object)); problem != "" {
		return "Valid=False", problem
	}
	return judged(nil, nil, m)
}

func judged(errs field.ErrorList, remarks []string, m manifest) (by, message string) {
	switch {
	case len(errs) > 0:
		return "Valid=False", errs.ToAggregate().Error()
	case len(remarks) > 0:
		return "Valid=True", strings.Join(remarks, "; ")
	}
	for _, o := range otherwise {
		if (o.kind == "" || o.kind == m.kind) && strings.Contains(m.patch, o.part) {
			return o.by, o.message
		}
	}
	return "", ""
}

func decoded[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		t.Fatalf("an object that the definitions accept cannot be decoded: %v", err)
	}
	return into
}

// problemOf returns what keeps machines of a class from getting VMs in a fleet with the simulated
// cloud, and with the Secret "small".
func problemOf(t *testing.T, class *v1alpha1.MachineClass) string {
	t.Helper()
	w := lifecycle.World{Machine: &v1alpha1.Machine{}}
	w.Machine.Namespace, w.Machine.Spec.Class = class.Namespace, v1alpha1.ClassSpec{Kind: "MachineClass", Name: class.Name}
	w.Machine.Name = "m"
	w.Class.Class = class
	var cloud *simulated.Driver
	_, w.Class.ProviderError = driver.NewRegistry(map[string]driver.Driver{simulated.Provider: cloud}).Get(class.Provider)
	w.Secret.Read = true
	for _, key := range class.SecretKeys() {
		if w.Secret.UserData = []byte("join"); key.Name != "small" {
			w.Secret.Missing = key.Name
		}
	}
	resp, err := cloud.GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: class})
	if err != nil {
		w.Failure = &lifecycle.Failure{Code: driver.CodeOf(err), Message: driver.MessageOf(err)}
	}
	w.Class.Fields = lifecycle.FieldsFact{Read: err == nil, Unknown: resp.Fields, Refused: resp.Refused}
	return lifecycle.ClassProblem(w)
}
