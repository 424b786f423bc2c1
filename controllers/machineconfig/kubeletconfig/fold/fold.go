package fold

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Path is the file that kubelets are configured with.
const Path = "/etc/kubernetes/kubelet.conf"

// Name returns the name of the MachineConfig that is generated for a pool.
func Name(pool string) string { return "99-" + pool + "-kubelet-managed" }

// Select returns the KubeletConfigs of a pool in the order in which they are folded: the oldest
// first, then by name. One that is being deleted is not selected.
func Select(pool *v1alpha1.MachineConfigPool, configs []*v1alpha1.KubeletConfig) (selected []*v1alpha1.KubeletConfig) {
	for _, c := range configs {
		selector, err := metav1.LabelSelectorAsSelector(c.Spec.MachineConfigPoolSelector)
		if err == nil && !selector.Empty() && c.DeletionTimestamp == nil && selector.Matches(labels.Set(pool.Labels)) {
			selected = append(selected, c)
		}
	}
	slices.SortFunc(selected, func(a, b *v1alpha1.KubeletConfig) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return selected
}

// Folded is the result of the KubeletConfigs of a pool.
type Folded struct {
	// MachineConfig is to be kept as it is here. Nil with Blocked means that the one there is stays;
	// nil without Blocked, that there must be none.
	MachineConfig *v1alpha1.MachineConfig
	// Blocked means that a KubeletConfig, or the default, is invalid.
	Blocked bool
	// Pools are for the status of each KubeletConfig of the pool, by its name.
	Pools map[string]v1alpha1.KubeletConfigPoolStatus
}

// Fold folds the KubeletConfigs of a pool over its default, which is a KubeletConfiguration as
// JSON.
func Fold(pool *v1alpha1.MachineConfigPool, byDefault []byte, configs []*v1alpha1.KubeletConfig) Folded {
	selected := Select(pool, configs)
	f := Folded{Pools: map[string]v1alpha1.KubeletConfigPoolStatus{}}
	if len(selected) == 0 {
		return f
	}
	problems := map[string]string{}
	settings, err := decode(byDefault)
	if err == nil {
		err = checkValues(settings)
	}
	if err != nil {
		f.Blocked = true
		for _, c := range selected {
			problems[c.Name] = "The default of the pool is invalid: " + err.Error()
		}
	}
	var patches []patch
	for _, c := range selected {
		if err != nil {
			break
		}
		next, problem := apply(settings, c)
		if problem != nil {
			f.Blocked = true
			problems[c.Name] = problem.Error()
			continue
		}
		settings, patches = next.result, append(patches, next)
	}
	overridden := overridings(patches)
	for _, c := range selected {
		status := v1alpha1.KubeletConfigPoolStatus{Name: pool.Name, Message: bounded.Text(problems[c.Name], bounded.Message)}
		switch {
		case f.Blocked && status.Message == "":
			status.Message = fmt.Sprintf("Nothing changes for the pool until KubeletConfig %s is corrected.", blockers(problems))
		case !f.Blocked:
			status.MachineConfig, status.Overridden = Name(pool.Name), overridden[c.Name]
		}
		f.Pools[c.Name] = status
	}
	if !f.Blocked {
		f.MachineConfig = created(pool, settings)
	}
	return f
}

// WithoutDefault returns the result for a pool whose default cannot be determined: nothing changes.
func WithoutDefault(pool *v1alpha1.MachineConfigPool, configs []*v1alpha1.KubeletConfig, why error) Folded {
	f := Folded{Blocked: true, Pools: map[string]v1alpha1.KubeletConfigPoolStatus{}}
	for _, c := range Select(pool, configs) {
		f.Pools[c.Name] = v1alpha1.KubeletConfigPoolStatus{
			Name: pool.Name, Message: bounded.Text("The default of the pool cannot be determined: "+why.Error(), bounded.Message),
		}
	}
	return f
}

// MaxPods returns how many pods the KubeletConfigs of a pool allow on a Node. It is not ok if they
// set no number, or one of them is invalid: then Nodes have the number of the pool's default.
func MaxPods(pool *v1alpha1.MachineConfigPool, configs []*v1alpha1.KubeletConfig) (n int64, ok bool) {
	settings := map[string]any{}
	for _, c := range Select(pool, configs) {
		changes, err := read(c)
		if err != nil {
			return 0, false
		}
		settings = merged(settings, changes)
	}
	number, _ := settings["maxPods"].(json.Number)
	n, err := number.Int64()
	return n, err == nil && n > 0 // a kubelet takes 0 for no number
}

// mostBlockers is how many names a message lists.
const mostBlockers = 5

func blockers(problems map[string]string) string {
	names := slices.Sorted(maps.Keys(problems))
	if len(names) > mostBlockers {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostBlockers], ", "), len(names)-mostBlockers)
	}
	return strings.Join(names, ", ")
}

// patch is a KubeletConfig, and what settings it results in.
type patch struct {
	name   string
	leaves map[string]any // by path
	result map[string]any
}

// apply merges a KubeletConfig over settings, which stay as they are. Errors: it is invalid, alone
// or over these settings.
func apply(settings map[string]any, c *v1alpha1.KubeletConfig) (patch, error) {
	changes, err := read(c)
	if err != nil {
		return patch{}, err
	}
	p := patch{name: c.Name, leaves: map[string]any{}, result: merged(settings, changes)}
	leavesOf(changes, "", p.leaves)
	if err := checkTogether(p.result); err != nil {
		return patch{}, fmt.Errorf("spec.kubeletConfig over the KubeletConfigs before it: %w", err)
	}
	return p, nil
}

// merged returns an object with the changes of another one: a JSON merge patch.
func merged(settings, changes map[string]any) map[string]any {
	result := maps.Clone(settings)
	for name, change := range changes {
		switch change := change.(type) {
		case nil:
			delete(result, name)
		case map[string]any:
			inner, _ := result[name].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
			}
			result[name] = merged(inner, change)
		default:
			result[name] = change
		}
	}
	return result
}

// separator is between the names of a path. Names of fields may have dots.
const separator = "\x00"

// leavesOf adds the values of an object that are no objects, by their paths.
func leavesOf(settings map[string]any, path string, leaves map[string]any) {
	for name, value := range settings {
		inner, ok := value.(map[string]any)
		if ok {
			leavesOf(inner, path+name+separator, leaves)
			continue
		}
		leaves[path+name] = value
	}
}

// overridings returns, for each KubeletConfig, its fields for which a later one has another value,
// as "field (by name)", sorted.
func overridings(patches []patch) map[string][]string {
	all := map[string][]string{}
	for i, earlier := range patches {
		for path, value := range earlier.leaves {
			for _, later := range slices.Backward(patches[i+1:]) {
				if overrides(later.leaves, path, value) {
					all[earlier.name] = append(all[earlier.name], fmt.Sprintf("%s (by %s)", short(strings.ReplaceAll(path, separator, ".")), later.name))
					break
				}
			}
		}
	}
	for name := range all {
		slices.Sort(all[name])
		all[name] = all[name][:min(len(all[name]), mostOverridden)]
	}
	return all
}

// mostOverridden is how many fields a status lists.
const mostOverridden = 20

// overrides reports whether a KubeletConfig has another value for a path, or removes an object
// above it.
func overrides(leaves map[string]any, path string, value any) bool {
	if other, has := leaves[path]; has {
		return !reflect.DeepEqual(value, other)
	}
	for at := strings.LastIndex(path, separator); at >= 0; at = strings.LastIndex(path[:at], separator) {
		if _, has := leaves[path[:at]]; has {
			return true
		}
	}
	return false
}

// created returns the MachineConfig with settings.
func created(pool *v1alpha1.MachineConfigPool, settings map[string]any) *v1alpha1.MachineConfig {
	settings = maps.Clone(settings)
	settings["apiVersion"], settings["kind"] = apiVersion, kindName
	c := &v1alpha1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
		Name:        Name(pool.Name),
		Labels:      map[string]string{v1alpha1.LabelPool: pool.Name},
		Annotations: map[string]string{v1alpha1.AnnotationGeneratedBy: v1alpha1.GeneratedFromKubeletConfigs},
	}}
	c.Spec.Config.Raw = encode(map[string]any{
		"ignition": map[string]any{"version": "3.5.0"},
		"storage": map[string]any{"files": []any{map[string]any{
			"path": Path, "mode": mode, "overwrite": true,
			"contents": map[string]any{"source": "data:;base64," + base64.StdEncoding.EncodeToString(encode(settings))},
		}}},
	})
	return c
}

// mode of the file: the kubelet's settings are no secret.
const mode = 0o644

// encode returns a value that was decoded from JSON, as JSON with sorted keys.
func encode(value any) []byte {
	document, err := json.Marshal(value)
	if err != nil {
		return nil // such a value has a form in JSON
	}
	return document
}
