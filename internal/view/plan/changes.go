package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// FieldChange is a field that differs.
type FieldChange struct {
	// Of is the object, where changes of several are planned together.
	Of string `json:"of,omitempty"`
	// Path of the field, as in spec.template.spec.class.name.
	Path string `json:"path"`
	// Before and After are the values as JSON, "" for none, cut where they are long.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Effect of the change of this field alone.
	Effect Effect `json:"effect"`
}

// Effect is the effect of the change of a field on machines.
type Effect string

// The effects.
const (
	// Replaces means that each machine gets a new VM, and UpdatesInPlace that each keeps its VM and is
	// updated on it.
	Replaces       Effect = "Replaces"
	UpdatesInPlace Effect = "UpdatesInPlace"
	// Writes means that it reaches machines that exist, or their Nodes, without a new VM.
	Writes Effect = "Writes"
	// Resizes means that machines are created or deleted.
	Resizes Effect = "Resizes"
	// Steers changes how the fleet works on the machines, from now on.
	Steers Effect = "Steers"
	// NewMachines means that it reaches machines that are created from now on.
	NewMachines Effect = "NewMachines"
	// Configures means that it is applied to Nodes of MachineConfigPools.
	Configures Effect = "Configures"
	// NoEffect is that of most labels and annotations of the object itself.
	NoEffect Effect = "None"
)

// mostOfValue is how many bytes of a value are shown.
const mostOfValue = 60

// changesOf returns the fields of a deployment that differ. What the change of a field does is what
// rollout decides for a deployment with this change alone.
func changesOf(c Change) []FieldChange {
	if c.Before == nil {
		return []FieldChange{}
	}
	return FieldChanges(c.Before, c.After, func(path []string, alone *v1alpha1.MachineDeployment) Effect {
		switch path[1] {
		case "replicas":
			return Resizes
		case "template":
			return effectOf(c, alone)
		}
		return Steers
	})
}

// FieldChanges returns the fields of two objects of a kind that differ. effect returns the effect
// of the change of one field that is not metadata; alone is the object before with this change
// alone, nil if it cannot be decoded.
func FieldChanges[T any](before, after *T, effect func(path []string, alone *T) Effect) []FieldChange {
	all, was, is := []FieldChange{}, document(before), document(after)
	for _, path := range differing(was, is, nil) {
		change := FieldChange{Path: strings.Join(path, "."), Before: text(was, path), After: text(is, path), Effect: NoEffect}
		if path[0] != "metadata" {
			alone := new(T)
			content, err := json.Marshal(with(was, is, path))
			if err == nil {
				err = json.Unmarshal(content, alone)
			}
			if err != nil {
				alone = nil
			}
			change.Effect = effect(path, alone)
		}
		all = append(all, change)
	}
	return all
}

// effectOf returns what the change of one field of the template does: whether a set with the
// template before is still that of the template with this change alone.
func effectOf(c Change, alone *v1alpha1.MachineDeployment) Effect {
	set := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{Template: c.Before.Spec.Template}}
	switch {
	case alone != nil && rollout.NewSet(alone, []*v1alpha1.MachineSet{set}) != nil:
		return Writes
	case rollout.IsInPlace(c.After):
		return UpdatesInPlace
	}
	return Replaces
}

// document returns the part of an object that users write, as JSON.
func document(o any) map[string]any {
	var document map[string]any
	content, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(content, &document)
	}
	if err != nil { // it came from JSON
		return map[string]any{}
	}
	metadata, _ := document["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, key := range []string{"labels", "annotations"} {
		if values, ok := metadata[key].(map[string]any); ok {
			maps.DeleteFunc(values, func(key string, _ any) bool { return key == lastApplied })
			kept[key] = values
		}
	}
	document["metadata"] = kept
	for _, key := range []string{"status", "apiVersion", "kind"} {
		delete(document, key)
	}
	return document
}

// lastApplied is the annotation in which kubectl apply records what it has sent.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// differing returns the paths of the fields that differ, in order. Lists are one field.
func differing(a, b any, path []string) (paths [][]string) {
	x, isX := a.(map[string]any)
	y, isY := b.(map[string]any)
	if !isX && !isY || a != nil && !isX || b != nil && !isY {
		if !machinefacts.Same(a, b) {
			paths = append(paths, path)
		}
		return paths
	}
	keys := map[string]bool{}
	for key := range x {
		keys[key] = true
	}
	for key := range y {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		paths = append(paths, differing(x[key], y[key], append(slices.Clone(path), key))...)
	}
	return paths
}

// at returns the value of a path; nil if there is none.
func at(document map[string]any, path []string) any {
	value := any(document)
	for _, key := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[key]
	}
	return value
}

// text returns the value of a path for people.
func text(document map[string]any, path []string) string {
	value := at(document, path)
	if value == nil {
		return ""
	}
	content, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if runes := []rune(string(content)); len(runes) > mostOfValue {
		return string(runes[:mostOfValue-1]) + "…"
	}
	return string(content)
}

// with returns a document in which one field has the value of another document.
func with(before, after map[string]any, path []string) map[string]any {
	changed := maps.Clone(before)
	if changed == nil {
		changed = map[string]any{}
	}
	if len(path) == 1 {
		if value := after[path[0]]; value != nil {
			changed[path[0]] = value
		} else {
			delete(changed, path[0])
		}
		return changed
	}
	inBefore, _ := before[path[0]].(map[string]any)
	inAfter, _ := after[path[0]].(map[string]any)
	changed[path[0]] = with(inBefore, inAfter, path[1:])
	return changed
}

// summary returns a sentence about what happens to the machines. sets are the MachineSets of the
// deployment.
func summary(p Plan, c Change, sets []*v1alpha1.MachineSet) string {
	m := p.Machines
	var parts []string
	add := func(n int, text string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	replaced := 0
	if c.Before != nil && slices.ContainsFunc(p.Changes, func(f FieldChange) bool { return f.Effect == Replaces }) {
		replaced = min(m.Created-m.WithoutVM, m.Deleted)
	}
	add(replaced, "replaced")
	add(m.Updated, "updated in place")
	add(m.Created-m.WithoutVM-replaced, "created")
	add(m.WithoutVM, "created without a VM")
	add(m.Deleted-replaced, "deleted")
	add(m.Kept, "kept")
	if len(parts) == 0 {
		parts = []string{"no machines"}
	}
	text := "Machines: " + strings.Join(parts, ", ")
	if c.Before != nil {
		was, is := rollout.NewSet(c.Before, sets), rollout.NewSet(c.After, sets)
		if is != nil && was != is && was != nil {
			text += fmt.Sprintf("; the template is that of MachineSet %s (revision %d), which is used again", is.Name, machinefacts.Revision(is))
		}
	}
	return text
}

// notesOf returns remarks about a change.
func notesOf(in Input, c Change, w *world) (notes []string) {
	notes = append(notes, validation.RemarksOnMachineDeployment(&c.After.Spec)...)
	name := c.After.Spec.Template.Spec.Class.Name
	switch {
	case in.Snapshot.Misses(view.MissingClasses):
	case w.classes[name] == nil:
		notes = append(notes, fmt.Sprintf("MachineClass %s does not exist in namespace %s: no VM of the new template can be created", name,
			c.After.Namespace))
	}
	if c.Before != nil {
		if _, is := rollout.UnderWay(c.Before, w.owned(c.Before)); is {
			notes = append(notes, "a rollout is under way already; the plan begins with its present state")
		}
	}
	if rollout.IsInPlace(c.After) {
		notes = append(notes, "an update in place needs an agent on the Nodes; the plan has each update succeed")
	}
	return notes
}

// inForce returns holds, freezes, breakers and others that the change meets.
func inForce(s view.Snapshot, c Change) (all []view.Trouble) {
	if c.Before != nil {
		all = append(all, view.DeploymentTroubles(c.Before, s.Now)...)
		for _, set := range s.SetsOf(c.Before) {
			for _, t := range view.SetTroubles(set, s.Now) {
				if t.Reason == string(v1alpha1.MachineSetFrozen) {
					all = append(all, t)
				}
			}
		}
	}
	if c.After.Spec.Paused && (c.Before == nil || !c.Before.Spec.Paused) {
		all = append(all, view.Trouble{
			Object: view.Object{Kind: view.KindDeployment, Namespace: c.After.Namespace, Name: c.After.Name}, Level: view.Note, Reason: "Paused",
			Message: "with the change no machine is replaced for its template until it is resumed",
		})
	}
	all = append(all, holds(s, c.After.Namespace)...)
	repairs := repairsClass(s, c)
	return slices.DeleteFunc(all, func(t view.Trouble) bool {
		return t.Reason == "NotObserved" || t.Reason == v1alpha1.ReasonInvalidClass && repairs
	})
}

// holds returns what holds deletions in a namespace.
func holds(s view.Snapshot, namespace string) (all []view.Trouble) {
	for _, n := range s.Namespaces {
		if hold := view.HoldOf(n); hold != "" && n.Name == namespace {
			all = append(all, view.Trouble{
				Object: view.Object{Kind: view.KindNamespace, Name: n.Name}, Level: view.Warning, Reason: "DeletionsHeld",
				Message: "deletions are held by an annotation of the Namespace: " + hold,
			})
		}
	}
	if len(s.Leases) > 0 {
		if f := view.FleetOf(s); f.Hold != "" {
			all = append(all, view.Trouble{
				Object: view.Object{Kind: view.KindFleet, Name: f.Name}, Level: view.Warning, Reason: "DeletionsHeld",
				Message: "deletions are held in all namespaces by an annotation of the leader Lease: " + f.Hold,
			})
		}
	}
	return all
}

// repairsClass reports whether the template has another class after the change, as far as it is
// known one that exists. That the class before is not valid is over with the change.
func repairsClass(s view.Snapshot, c Change) bool {
	if c.Before == nil || c.Before.Spec.Template.Spec.Class == c.After.Spec.Template.Spec.Class {
		return false
	}
	return s.Misses(view.MissingClasses) || slices.ContainsFunc(s.Classes, func(class *v1alpha1.MachineClass) bool {
		return class.Namespace == c.After.Namespace && class.Name == c.After.Spec.Template.Spec.Class.Name
	})
}
