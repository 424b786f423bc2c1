package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/coreos/vcontext/report"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

const (
	// MaxConfigs is how many MachineConfigs a pool may select.
	MaxConfigs = 256
	// MaxInput is how many bytes all Ignition configs of a pool may have together.
	MaxInput = 16 << 20
	// MaxResult is how many bytes a RenderedMachineConfig may have as JSON. etcd stores objects of up
	// to 1.5 MiB, with their metadata.
	MaxResult = 1536<<10 - 16<<10
)

// Fleet are the settings that hold for all pools.
type Fleet struct {
	// OSImageURL is that of the ControllerConfig.
	OSImageURL string
	// Extensions are the names of extensions that exist.
	Extensions []string
}

// Merged is the result of MachineConfigs.
type Merged struct {
	Spec v1alpha1.RenderedMachineConfigSpec
	// Warnings are about the Ignition configs, as "<MachineConfig>: <place>: <text>". Ignition ignores
	// what they are about.
	Warnings []string

	parts  []part
	result types.Config
}

// part is one MachineConfig with its Ignition config as the newest version of the specification.
type part struct {
	*v1alpha1.MachineConfig

	ignition types.Config
}

// Merge merges MachineConfigs. The order in which they are passed has no effect. Errors: a *Error.
func Merge(configs []*v1alpha1.MachineConfig, actions []v1alpha1.ActionRule, fleet Fleet) (Merged, error) {
	sorted := slices.Clone(configs)
	slices.SortFunc(sorted, byName)
	if err := checkInput(sorted); err != nil {
		return Merged{}, err
	}
	var m Merged
	for _, c := range sorted {
		parsed, warnings, err := parse(c, fleet)
		if err != nil {
			return Merged{}, err
		}
		m.Warnings = append(m.Warnings, warnings...)
		m.parts = append(m.parts, part{c, parsed})
	}
	m.result = mergeIgnition(m.parts)
	if place, text, ok := firstError(validate.ValidateWithContext(m.result, nil)); ok {
		return Merged{}, &Error{
			Reason: ReasonInvalidResult, Culprits: []string{breaker(m.parts)},
			Fact: fmt.Sprintf("merged over the MachineConfigs before it, the result is invalid: spec.config%s: %s", place, text),
		}
	}
	spec, err := specOf(m.parts, m.result, fleet)
	if err != nil {
		return Merged{}, err
	}
	m.Spec = v1alpha1.RenderedMachineConfigSpec{MachineConfigSpec: spec, Actions: slices.Clone(actions)}
	return m, checkResult(&m.Spec)
}

// mergeIgnition merges the parts in their order, and completes the result.
func mergeIgnition(parts []part) types.Config {
	result := types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
	for _, p := range parts {
		result = ignition.Merge(result, sealed(p.ignition))
	}
	opened(&result)
	overwriting(&result)
	return result
}

// seal is the value of a field that a child does not have, where a missing field would keep that of
// the parent although it belongs to a content that the child replaces: the parent's compression and
// hash would describe the child's content.
const seal = ""

// sealed returns a config whose contents have all fields that belong to them.
func sealed(c types.Config) types.Config {
	c.Storage.Files = slices.Clone(c.Storage.Files)
	for i := range c.Storage.Files {
		sealResource(&c.Storage.Files[i].Contents)
	}
	c.Storage.Luks = slices.Clone(c.Storage.Luks)
	for i := range c.Storage.Luks {
		sealResource(&c.Storage.Luks[i].KeyFile)
	}
	return c
}

func sealResource(r *types.Resource) {
	if r.Source == nil {
		return // the child keeps the content, with all that belongs to it
	}
	absent := seal
	if r.Compression == nil {
		r.Compression = &absent
	}
	if r.Verification.Hash == nil {
		r.Verification.Hash = &absent
	}
}

// opened removes what sealed has added.
func opened(c *types.Config) {
	for i := range c.Storage.Files {
		openResource(&c.Storage.Files[i].Contents)
	}
	for i := range c.Storage.Luks {
		openResource(&c.Storage.Luks[i].KeyFile)
	}
}

func openResource(r *types.Resource) {
	if r.Compression != nil && *r.Compression == seal {
		r.Compression = nil
	}
	if r.Verification.Hash != nil && *r.Verification.Hash == seal {
		r.Verification.Hash = nil
	}
}

// overwriting has files replace what is there, unless they say otherwise: the first boot of a Node
// and a later update do the same then.
func overwriting(c *types.Config) {
	for i := range c.Storage.Files {
		if f := &c.Storage.Files[i]; f.Overwrite == nil && f.Contents.Source != nil {
			yes := true
			f.Overwrite = &yes
		}
	}
}

// specOf returns the merged fields of MachineConfigs other than the merged Ignition config. Errors:
// a *Error, when that cannot be encoded.
func specOf(parts []part, result types.Config, fleet Fleet) (v1alpha1.MachineConfigSpec, error) {
	document, err := encode(result)
	if err != nil {
		return v1alpha1.MachineConfigSpec{}, &Error{
			Reason: ReasonInvalidResult, Fact: "the merged Ignition config cannot be encoded: " + err.Error(),
		}
	}
	spec := v1alpha1.MachineConfigSpec{KernelType: v1alpha1.KernelDefault, OSImageURL: fleet.OSImageURL}
	spec.Config.Raw = document
	for _, p := range parts {
		spec.KernelArguments = append(spec.KernelArguments, p.Spec.KernelArguments...)
		spec.Extensions = append(spec.Extensions, p.Spec.Extensions...)
		spec.FIPS = spec.FIPS || p.Spec.FIPS
		if p.Spec.KernelType == v1alpha1.KernelRealtime || p.Spec.KernelType == v1alpha1.Kernel64KPages {
			spec.KernelType = p.Spec.KernelType
		}
		if p.Spec.OSImageURL != "" && p.Annotations[v1alpha1.AnnotationGeneratedBy] == "" {
			spec.OSImageURL = p.Spec.OSImageURL
		}
	}
	return spec, nil
}

// encode returns an Ignition config as canonical JSON without empty objects, which mean nothing and
// which Ignition's types add.
func encode(config types.Config) ([]byte, error) {
	document, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	document, err = json.Marshal(pruned(value))
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return document, nil
}

// pruned removes empty objects from the values of objects.
func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			field = pruned(field)
			if object, ok := field.(map[string]any); ok && len(object) == 0 {
				delete(value, key)
				continue
			}
			value[key] = field
		}
	case []any:
		for i := range value {
			value[i] = pruned(value[i])
		}
	}
	return value
}

// breaker returns the name of the first MachineConfig with which the merged Ignition config is
// invalid.
func breaker(parts []part) string {
	for i := range parts {
		if _, _, broken := firstError(validate.ValidateWithContext(mergeIgnition(parts[:i+1]), nil)); broken {
			return parts[i].Name
		}
	}
	return parts[len(parts)-1].Name
}

// parse reads the Ignition config of a MachineConfig, and validates all of it. Errors: a *Error.
func parse(c *v1alpha1.MachineConfig, fleet Fleet) (types.Config, []string, error) {
	invalid := func(fact string) error {
		return &Error{Reason: ReasonInvalidMachineConfig, Culprits: []string{c.Name}, Fact: fact}
	}
	if fact := checkFields(&c.Spec, fleet); fact != "" {
		return types.Config{}, nil, invalid(fact)
	}
	raw := bytes.TrimSpace(c.Spec.Config.Raw)
	if len(raw) == 0 || string(raw) == "null" || string(raw) == "{}" {
		return types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}, nil, nil
	}
	config, found, err := ignition.ParseCompatibleVersion(raw)
	if errors.Is(err, ignerrors.ErrUnknownVersion) || errors.Is(err, ignerrors.ErrInvalidVersion) {
		return types.Config{}, nil, invalid("spec.config.ignition.version must be from 3.0.0 to " + types.MaxVersion.String())
	}
	if err != nil {
		place, text, ok := firstError(found)
		if !ok {
			text = "is no Ignition config" // the error has no place
		}
		return types.Config{}, nil, invalid("spec.config" + place + ": " + text)
	}
	if fact := checkIgnition(config); fact != "" {
		return types.Config{}, nil, invalid(fact)
	}
	return config, warningsOf(c.Name, found), nil
}

// mostText is how many bytes of a text of Ignition's a message has.
const mostText = 200

// firstError returns place and text of the first error of a report.
func firstError(found report.Report) (place, text string, ok bool) {
	for _, e := range found.Entries {
		if e.Kind.IsFatal() {
			return placeOf(e), errorOf(e), true
		}
	}
	return "", "", false
}

// errorOf returns the text of an error. Ignition's text about a content quotes parts of it.
func errorOf(e report.Entry) string {
	if steps := e.Context.Path; len(steps) > 0 {
		switch steps[len(steps)-1] {
		case "contents":
			return "is no valid unit file"
		case "source":
			return "is no valid data URL"
		}
	}
	return bounded.Text(e.Message, mostText)
}

// mostWarnings is how many warnings about one MachineConfig are returned.
const mostWarnings = 10

func warningsOf(name string, found report.Report) (warnings []string) {
	for _, e := range found.Entries {
		if e.Kind == report.Warn && len(warnings) < mostWarnings {
			warnings = append(warnings, fmt.Sprintf("%s: spec.config%s: %s", name, placeOf(e), bounded.Text(e.Message, mostText)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// placeOf returns the path of an entry below spec.config, with a leading dot.
func placeOf(e report.Entry) string {
	var place strings.Builder
	for _, step := range e.Context.Path {
		fmt.Fprintf(&place, ".%v", step)
	}
	return bounded.Text(place.String(), mostText)
}
