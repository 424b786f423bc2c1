package expand

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

const (
	// MaxTemplates is how many templates there may be.
	MaxTemplates = 256
	// MaxSource is how many bytes a template may have.
	MaxSource = 256 << 10
	// maxResult is how many bytes a template may result in.
	maxResult = 1 << 20
)

// World contains all that rendering needs.
type World struct {
	// Sources are the templates, by name.
	Sources map[string]string
	Config  *v1alpha1.ControllerConfig
	// PullSecret is the content of the Secret that the ControllerConfig names, "" if it names none.
	PullSecret string
	Fleet      merge.Fleet
}

// Error is why templates cannot be rendered.
type Error struct {
	// Template is the name of the template.
	Template string
	// Role is that of the MachineConfig; "" when the error does not depend on it.
	Role string
	// Fact describes what is wrong.
	Fact string
}

// Error returns the names and the fact.
func (e *Error) Error() string {
	text := "template " + bounded.Text(e.Template, maxName)
	if e.Role != "" {
		text += " for role " + e.Role
	}
	return bounded.Text(text+": "+e.Fact, bounded.Message)
}

const (
	// nameForm is the form of names of templates.
	nameForm = `^([0-9]{2})-([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)(?:\.([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?))?\.yaml$`
	// roleForm is the form of roles: they are values of a label.
	roleForm = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// maxName is how many bytes of a name a message has.
	maxName = 140
)

// source is a template.
type source struct {
	file         string
	number, name string
	role         string // "" for all
	text         string
}

// Render returns the MachineConfigs of all templates and roles, sorted by name. Errors: a *Error.
func Render(w World) ([]*v1alpha1.MachineConfig, error) {
	sources, err := read(w.Sources)
	if err != nil {
		return nil, err
	}
	for _, role := range w.Config.Spec.Roles {
		if !regexp.MustCompile(roleForm).MatchString(role) {
			return nil, &Error{Template: "of all names", Fact: fmt.Sprintf(
				"spec.roles of the ControllerConfig has %.70q; a role must have lower-case letters, digits and dashes, and at most 63 of them", role,
			)}
		}
	}
	values, err := valuesOf(w)
	if err != nil {
		return nil, err
	}
	var all []*v1alpha1.MachineConfig
	for _, role := range slices.Compact(slices.Sorted(slices.Values(w.Config.Spec.Roles))) {
		for _, s := range of(role, sources) {
			created, err := renderOne(s, role, values, w.Fleet)
			if err != nil {
				return nil, &Error{Template: s.file, Role: role, Fact: err.Error()}
			}
			if created != nil {
				all = append(all, created)
			}
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	for i := range len(all) - 1 {
		if all[i].Name == all[i+1].Name { // 00-a-b is that of name b and role a, and of no name and role a-b; so are others
			return nil, &Error{
				Template: "of all names", Fact: fmt.Sprintf("two templates result in MachineConfig %s. Rename one, or a role.", all[i].Name),
			}
		}
	}
	return all, nil
}

// read parses the names of templates.
func read(files map[string]string) (sources []source, err error) {
	if len(files) > MaxTemplates {
		return nil, &Error{Template: "of all names", Fact: fmt.Sprintf("there are %d templates, at most %d can be", len(files), MaxTemplates)}
	}
	form := regexp.MustCompile(nameForm)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		parts := form.FindStringSubmatch(file)
		if parts == nil {
			return nil, &Error{Template: file, Fact: "the name must be NN-name.yaml, or NN-name.role.yaml for one role"}
		}
		if len(files[file]) > MaxSource {
			return nil, &Error{Template: file, Fact: fmt.Sprintf("it has %d bytes, at most %d can be rendered", len(files[file]), MaxSource)}
		}
		sources = append(sources, source{file: file, number: parts[1], name: parts[2], role: parts[3], text: files[file]})
	}
	return sources, nil
}

// of returns the templates of a role: its own, and those for all roles of which it has none.
func of(role string, sources []source) (mine []source) {
	own := map[string]bool{}
	for _, s := range sources {
		if s.role == role {
			own[s.number+"-"+s.name] = true
		}
	}
	for _, s := range sources {
		if s.role == role || s.role == "" && !own[s.number+"-"+s.name] {
			mine = append(mine, s)
		}
	}
	return mine
}

// renderOne returns the MachineConfig of a template for a role; nil when it results in nothing.
func renderOne(s source, role string, values map[string]any, fleet merge.Fleet) (*v1alpha1.MachineConfig, error) {
	values = maps.Clone(values)
	values["Role"] = role
	text, err := execute(s.text, values)
	if err != nil || strings.TrimSpace(text) == "" {
		return nil, err
	}
	spec, err := specOf(text)
	if err != nil {
		return nil, err
	}
	created := &v1alpha1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.number + "-" + role + "-" + s.name,
			Labels:      map[string]string{v1alpha1.LabelRole: role},
			Annotations: map[string]string{v1alpha1.AnnotationGeneratedBy: v1alpha1.GeneratedFromTemplate},
		},
		Spec: spec,
	}
	if _, err := merge.Merge([]*v1alpha1.MachineConfig{created}, nil, fleet); err != nil {
		return nil, err
	}
	return created, nil
}
