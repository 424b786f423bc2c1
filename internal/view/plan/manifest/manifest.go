package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Kinds that a change may be of.
const (
	MachineDeployment = "MachineDeployment"
	MachineClass      = "MachineClass"
	MachineConfig     = "MachineConfig"
	KubeletConfig     = "KubeletConfig"
)

// versions has the API version of each kind.
func versions() map[string]string {
	return map[string]string{
		MachineDeployment: v1alpha1.SchemeGroupVersion.String(), MachineClass: v1alpha1.SchemeGroupVersion.String(),
		MachineConfig: fleetv1alpha1.SchemeGroupVersion.String(), KubeletConfig: fleetv1alpha1.SchemeGroupVersion.String(),
	}
}

// Manifest is an object as a user would apply it.
type Manifest struct {
	Kind, Namespace, Name string

	content []byte // JSON, without status
}

// String returns the object as people name it.
func (m Manifest) String() string {
	return m.Kind + " " + strings.TrimPrefix(m.Namespace+"/"+m.Name, "/")
}

// IsPlanned reports whether there are plans for the kind.
func (m Manifest) IsPlanned() bool { return versions()[m.Kind] != "" }

// Kinds returns the kinds that there are plans for, as text.
func Kinds() string {
	return strings.Join([]string{MachineDeployment, MachineClass, MachineConfig, KubeletConfig}, ", ")
}

// Read returns the objects in a file, which is YAML or JSON, with those of its lists, and also
// those of kinds that there are no plans for. Errors: it cannot be read, or an object has no kind
// or name.
func Read(content []byte) (all []Manifest, err error) {
	documents, err := documentsIn(content)
	for _, document := range documents {
		var of []Manifest
		of, err = objectsIn(document)
		if err != nil {
			break
		}
		all = append(all, of...)
	}
	return all, err
}

// objectsIn returns the object of a document, or those of its list.
func objectsIn(document []byte) (all []Manifest, err error) {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`

		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		return nil, fmt.Errorf("expected an object with apiVersion, kind and metadata: %w", err)
	}
	m := Manifest{Kind: head.Kind, Namespace: head.Namespace, Name: head.Name}
	switch version := versions()[head.Kind]; {
	case head.Kind == "":
		return nil, errors.New("expected an object with apiVersion, kind and metadata, and there is one without kind")
	case strings.HasSuffix(head.Kind, "List") && head.Name == "":
		for _, item := range head.Items {
			of, err := objectsIn(item)
			if err != nil {
				return nil, fmt.Errorf("in the items of a %s: %w", head.Kind, err)
			}
			all = append(all, of...)
		}
		return all, nil
	case head.Name == "":
		return nil, fmt.Errorf("expected metadata.name of a %s in the file; a name that the API server generates is not known before", head.Kind)
	case !m.IsPlanned():
		return []Manifest{m}, nil
	case head.APIVersion != version:
		return nil, fmt.Errorf("expected apiVersion %s of the kind %s, and the file has %q", version, head.Kind, head.APIVersion)
	}
	m.content, err = withoutStatus(document)
	return []Manifest{m}, err
}

// documentsIn returns the documents of a file as JSON, without empty ones.
func documentsIn(content []byte) (documents [][]byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("expected YAML or JSON: %w", err)
		}
		asJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("expected YAML or JSON: %w", err)
		}
		if text := bytes.TrimSpace(asJSON); len(text) > 0 && !bytes.Equal(text, []byte("null")) {
			documents = append(documents, asJSON)
		}
	}
}

// withoutStatus returns a document without its status, which is no part of a change.
func withoutStatus(document []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, fmt.Errorf("expected an object: %w", err)
	}
	delete(fields, "status")
	return json.Marshal(fields)
}

// Apply returns the object as the API server would have it after the file was applied. live is the
// object that it has; nil if it has none. Errors: the file has fields that the kind does not have,
// or values of another type; it is of another object of the same name.
func Apply[T any](m Manifest, live *T) (*T, error) {
	alone := new(T)
	if err := yaml.UnmarshalStrict(m.content, alone); err != nil {
		return nil, fmt.Errorf("%s %s in the file is not valid; correct it: %w", m.Kind, m.Name, err)
	}
	if live == nil {
		return alone, nil
	}
	of, isObject := any(live).(metav1.Object)
	desired, _ := any(alone).(metav1.Object)
	if !isObject {
		return nil, fmt.Errorf("expected an object of the API, got a %T", live)
	}
	if uid := desired.GetUID(); uid != "" && uid != of.GetUID() {
		return nil, fmt.Errorf("%s %s has the UID %s, and the file has %s, of an object that was deleted; remove metadata.uid from the file",
			m.Kind, m.Name, of.GetUID(), uid)
	}
	current, err := json.Marshal(live)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", m.Kind, m.Name, err)
	}
	recorded := of.GetAnnotations()[lastApplied]
	original, err1 := prepared(cmp.Or(recorded, "{}"), recorded)
	modified, err2 := prepared(string(m.content), recorded)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("compare %s %s with the file: %w", m.Kind, m.Name, err)
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare %s %s with the file: %w", m.Kind, m.Name, err)
	}
	merged, err := jsonpatch.MergePatch(current, patch)
	if err != nil {
		return nil, fmt.Errorf("merge the file into %s %s: %w", m.Kind, m.Name, err)
	}
	after := new(T)
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, fmt.Errorf("%s %s with the file: %w", m.Kind, m.Name, err)
	}
	return after, nil
}

// lastApplied is the annotation in which kubectl apply records what it has sent.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// serverFields are the fields of metadata that the API server sets. A file that was written by
// kubectl get has them.
func serverFields() []string {
	return []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp"}
}

// prepared returns a document as it is compared with the object of the API server: without what
// the API server sets, and with what that has recorded as applied, which is in no document. So
// annotations are an object in each document: kubectl apply records {} where a file has none, and
// without that its absence from the file would remove the annotations of others.
func prepared(document, recorded string) ([]byte, error) {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(document), &fields); err != nil {
		return nil, fmt.Errorf("expected an object: %w", err)
	}
	if fields == nil { // the document is null
		fields = map[string]any{}
	}
	delete(fields, "status")
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}
	maps.DeleteFunc(metadata, func(key string, _ any) bool { return slices.Contains(serverFields(), key) })
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
	}
	delete(annotations, lastApplied)
	if recorded != "" {
		annotations[lastApplied] = recorded
	}
	metadata["annotations"] = annotations
	fields["metadata"] = metadata
	return json.Marshal(fields)
}
