package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

// extensions exist in these tests.
var extensions = []string{"usbguard", "kernel-devel"}

func config(name, spec string) *v1alpha1.MachineConfig {
	c := &v1alpha1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "a"}}}
	if err := json.Unmarshal([]byte(spec), &c.Spec); err != nil {
		panic(fmt.Sprintf("%s: %v", spec, err))
	}
	return c
}

// read returns the MachineConfigs of a scenario, in reverse.
func read(s scenario.Scenario) (configs []*v1alpha1.MachineConfig, fleet Fleet) {
	fleet.Extensions = extensions
	generated := ""
	for _, fact := range s.Given {
		switch fact.Key {
		case "osImageURL":
			fleet.OSImageURL = fact.Value
		case "generated":
			generated = fact.Value
		default:
			configs = append(configs, config(fact.Key, fact.Value))
		}
	}
	for _, c := range configs {
		if c.Name == generated {
			c.Annotations = map[string]string{v1alpha1.AnnotationGeneratedBy: v1alpha1.GeneratedFromTemplate}
		}
	}
	slices.Reverse(configs)
	return configs, fleet
}

func TestMerge(t *testing.T) {
	for _, pattern := range []string{"testdata/merge.txt", "testdata/problems.txt"} {
		scenario.Run(t, pattern, func(_ *testing.T, s scenario.Scenario) string {
			configs, fleet := read(s)
			m, err := Merge(configs, nil, fleet)
			if err != nil {
				return problem(err)
			}
			return shown(m)
		})
	}
}

func problem(err error) string {
	var p *Error
	if !errors.As(err, &p) {
		return "another error: " + err.Error()
	}
	if len(p.Culprits) == 0 {
		return p.Reason + ": " + p.Fact
	}
	return fmt.Sprintf("%s %v: %s", p.Reason, p.Culprits, p.Fact)
}

// shown writes a result with a line for each item.
func shown(m Merged) string {
	var out strings.Builder
	var ignition struct {
		Storage, Systemd, Passwd map[string][]json.RawMessage
	}
	if err := json.Unmarshal(m.Spec.Config.Raw, &ignition); err != nil {
		return err.Error()
	}
	for _, section := range []map[string][]json.RawMessage{ignition.Storage, ignition.Systemd, ignition.Passwd} {
		for _, kind := range []string{"files", "directories", "links", "disks", "units", "users", "groups"} {
			for _, item := range section[kind] {
				fmt.Fprintf(&out, "%s %s\n", kind, item)
			}
		}
	}
	if len(m.Spec.KernelArguments) > 0 {
		fmt.Fprintf(&out, "kernelArguments %v\n", m.Spec.KernelArguments)
	}
	if len(m.Spec.Extensions) > 0 {
		fmt.Fprintf(&out, "extensions %v\n", m.Spec.Extensions)
	}
	if m.Spec.KernelType != v1alpha1.KernelDefault {
		fmt.Fprintf(&out, "kernelType %s\n", m.Spec.KernelType)
	}
	if m.Spec.FIPS {
		fmt.Fprintln(&out, "fips")
	}
	if m.Spec.OSImageURL != "" {
		fmt.Fprintf(&out, "osImageURL %s\n", m.Spec.OSImageURL)
	}
	for _, warning := range m.Warnings {
		fmt.Fprintf(&out, "warning %s\n", warning)
	}
	if out.Len() == 0 {
		return "nothing"
	}
	return out.String()
}
