package expand

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Fragment is the result of a template, as YAML: files and units as a person writes them, and the
// other fields of a MachineConfig.
type Fragment struct {
	Files           []File              `json:"files,omitempty"`
	Units           []Unit              `json:"units,omitempty"`
	KernelArguments []string            `json:"kernelArguments,omitempty"`
	Extensions      []string            `json:"extensions,omitempty"`
	FIPS            bool                `json:"fips,omitempty"`
	KernelType      v1alpha1.KernelType `json:"kernelType,omitempty"`
}

// File is a file of a Node.
type File struct {
	Path string `json:"path"`
	// Mode is octal, such as "0600". Empty means 0644.
	Mode string `json:"mode,omitempty"`
	// Contents are the text of the file.
	Contents string `json:"contents"`
}

// Unit is a unit of systemd.
type Unit struct {
	Name string `json:"name"`
	// Enabled enables or disables the unit; absent leaves it as it is.
	Enabled *bool `json:"enabled,omitempty"`
	// Mask makes it impossible to start the unit.
	Mask     bool     `json:"mask,omitempty"`
	Contents string   `json:"contents,omitempty"`
	DropIns  []DropIn `json:"dropins,omitempty"`
}

// DropIn is a part of a unit in its own file.
type DropIn struct {
	Name     string `json:"name"`
	Contents string `json:"contents"`
}

// specOf returns the MachineConfig of a Fragment as YAML. Errors contain no values.
func specOf(text string) (spec v1alpha1.MachineConfigSpec, err error) {
	var f Fragment
	if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
		return spec, errors.New("the result must be YAML with files, units, kernelArguments, extensions, fips and kernelType: " + problemOf(text))
	}
	files := make([]any, 0, len(f.Files))
	for _, file := range f.Files {
		mode := int64(0o644)
		if file.Mode != "" {
			if mode, err = strconv.ParseInt(file.Mode, 8, 32); err != nil || mode < 0 {
				return spec, fmt.Errorf("the mode of file %.80q must be octal in quotes, such as \"0600\"", file.Path)
			}
		}
		files = append(files, map[string]any{
			"path": file.Path, "mode": mode, "overwrite": true,
			"contents": map[string]any{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(file.Contents))},
		})
	}
	units := make([]any, 0, len(f.Units))
	for _, unit := range f.Units {
		units = append(units, unitOf(unit))
	}
	config := map[string]any{"ignition": map[string]any{"version": "3.5.0"}}
	if len(files) > 0 {
		config["storage"] = map[string]any{"files": files}
	}
	if len(units) > 0 {
		config["systemd"] = map[string]any{"units": units}
	}
	spec = v1alpha1.MachineConfigSpec{KernelArguments: f.KernelArguments, Extensions: f.Extensions, FIPS: f.FIPS, KernelType: f.KernelType}
	spec.Config.Raw, err = json.Marshal(config)
	return spec, err
}

func unitOf(unit Unit) map[string]any {
	created := map[string]any{"name": unit.Name}
	if unit.Enabled != nil {
		created["enabled"] = *unit.Enabled
	}
	if unit.Mask {
		created["mask"] = true
	}
	if unit.Contents != "" {
		created["contents"] = unit.Contents
	}
	var dropIns []any
	for _, d := range unit.DropIns {
		dropIns = append(dropIns, map[string]any{"name": d.Name, "contents": d.Contents})
	}
	if dropIns != nil {
		created["dropins"] = dropIns
	}
	return created
}

// problemOf returns what is wrong with a document that is no Fragment, without its values.
func problemOf(text string) string {
	var fields map[string]json.RawMessage
	if yaml.UnmarshalStrict([]byte(text), &fields) != nil {
		return "it is no object of YAML without duplicate keys"
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var known Fragment
		document, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err == nil && yaml.UnmarshalStrict(document, &known) != nil {
			return "check the field " + bounded.Text(strconv.Quote(name), maxName)
		}
	}
	return "check its fields"
}
