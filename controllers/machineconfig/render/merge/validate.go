package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// checkActions refuses actions that the daemon or the API server would refuse in a
// RenderedMachineConfig: a pool can be older than the rule of its definition that they break.
// Errors: a *Error.
func checkActions(actions plan.Policy) error {
	err := actions.Check()
	for i, rule := range actions {
		if err == nil && rule.Unit != "" && !plan.IsUnitName(rule.Unit) {
			err = fmt.Errorf("actions[%d]: expected the name of a unit as unit, got %q", i, rule.Unit)
		}
	}
	if err != nil {
		return &Error{Reason: ReasonInvalidPool, Fact: fmt.Sprintf("spec.%s. Correct this action of the pool.", err)}
	}
	return nil
}

// checkInput bounds the work. Errors: a *Error.
func checkInput(configs []*v1alpha1.MachineConfig) error {
	if len(configs) == 0 {
		return &Error{Reason: ReasonNoMachineConfigs, Fact: "no MachineConfig to merge"}
	}
	if len(configs) > MaxConfigs {
		return &Error{
			Reason: ReasonTooLarge, Fact: fmt.Sprintf("%d MachineConfigs are selected, at most %d can be. Join some.", len(configs), MaxConfigs),
		}
	}
	size := 0
	for _, c := range configs {
		size += len(c.Spec.Config.Raw)
	}
	if size > MaxInput {
		return &Error{
			Reason: ReasonTooLarge, Fact: fmt.Sprintf("the selected MachineConfigs have %d bytes, at most %d can be merged", size, MaxInput),
		}
	}
	return nil
}

// checkResult bounds the size of what is stored. Errors: a *Error.
func checkResult(spec *v1alpha1.RenderedMachineConfigSpec) error {
	document, err := json.Marshal(spec)
	if err != nil {
		return &Error{Reason: ReasonInvalidResult, Fact: "the result cannot be encoded: " + err.Error()}
	}
	if len(document) > MaxResult {
		return &Error{Reason: ReasonTooLarge, Fact: fmt.Sprintf("the result has %d bytes, at most %d can be stored. Remove or compress files.",
			len(document), MaxResult)}
	}
	for name, list := range map[string][]string{"extensions": spec.Extensions, "kernelArguments": spec.KernelArguments} {
		most := map[string]int{"extensions": maxExtensions, "kernelArguments": maxKernelArguments}[name]
		if len(list) > most {
			return &Error{
				Reason: ReasonTooLarge, Fact: fmt.Sprintf("the result has %d %s, at most %d can be stored. Join some.", len(list), name, most),
			}
		}
	}
	return nil
}

// How many items the definition of a RenderedMachineConfig allows.
const (
	maxKernelArguments = 256
	maxExtensions      = 64
)

// kernelDevel is the extension that exists for the default kernel only.
const kernelDevel = "kernel-devel"

// checkFields returns what is wrong with the fields other than the Ignition config, or "".
func checkFields(spec *v1alpha1.MachineConfigSpec, fleet Fleet) string {
	switch spec.KernelType {
	case "", v1alpha1.KernelDefault, v1alpha1.KernelRealtime, v1alpha1.Kernel64KPages:
	default:
		return fmt.Sprintf("spec.kernelType must be default, realtime or 64k-pages, got %.40q", spec.KernelType)
	}
	for _, extension := range spec.Extensions {
		if !slices.Contains(fleet.Extensions, extension) {
			return fmt.Sprintf("spec.extensions has %.60q, which does not exist. There are: %s.", extension, orNone(fleet.Extensions))
		}
		if extension == kernelDevel && spec.KernelType != "" && spec.KernelType != v1alpha1.KernelDefault {
			return fmt.Sprintf("spec.extensions has %s, which exists for the kernel default only, and not for %s", kernelDevel, spec.KernelType)
		}
	}
	for i, argument := range spec.KernelArguments {
		if strings.TrimSpace(argument) == "" || strings.ContainsAny(argument, "\n\x00") {
			return fmt.Sprintf("spec.kernelArguments[%d] must be on one line, and not be empty", i)
		}
	}
	return ""
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return listed(slices.Sorted(slices.Values(names)))
}

// mostMode has all permissions, and none of setuid, setgid and sticky.
const mostMode = 0o777

// checkIgnition returns what is wrong with a config that is valid for Ignition, or "".
func checkIgnition(c types.Config) string {
	if len(c.Ignition.Config.Merge) > 0 || c.Ignition.Config.Replace.Source != nil {
		return "spec.config.ignition.config must not refer to other configs: a rendered configuration is complete. Use more MachineConfigs."
	}
	for i, f := range c.Storage.Files {
		place := fmt.Sprintf("spec.config.storage.files.%d", i)
		if f.Mode != nil && *f.Mode > mostMode {
			return fmt.Sprintf("%s.mode must be at most 0777, got %#o: setuid, setgid and sticky are refused", place, *f.Mode)
		}
		if isRemote(f.Contents) || slices.ContainsFunc(f.Append, isRemote) {
			return place + " must have data URLs as sources: a rendered configuration is complete"
		}
	}
	for i, d := range c.Storage.Directories {
		if d.Mode != nil && *d.Mode > mostMode {
			return fmt.Sprintf("spec.config.storage.directories.%d.mode must be at most 0777, got %#o: setuid, setgid and sticky are refused",
				i, *d.Mode)
		}
	}
	for i, l := range c.Storage.Luks {
		if isRemote(l.KeyFile) {
			return fmt.Sprintf("spec.config.storage.luks.%d.keyFile must have a data URL as source", i)
		}
	}
	if slices.ContainsFunc(c.Ignition.Security.TLS.CertificateAuthorities, isRemote) {
		return "spec.config.ignition.security.tls.certificateAuthorities must have data URLs as sources"
	}
	return ""
}

// isRemote reports whether a content is somewhere else. A source that is absent or empty is an
// empty content.
func isRemote(r types.Resource) bool {
	return r.Source != nil && *r.Source != "" && !strings.HasPrefix(strings.ToLower(*r.Source), "data:")
}
