package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// Policy has the actions for changes: those of a unit or of SSH keys win over those of a path. A
// change that no rule matches needs a reboot. Of several rules for the same thing all count.
type Policy []v1alpha1.ActionRule

// Check returns the first error in a policy.
func (p Policy) Check() error {
	for i, rule := range p {
		if err := check(rule); err != nil {
			return fmt.Errorf("actions[%d]: %w", i, err)
		}
	}
	return nil
}

// check returns the error in a rule that the API server would have rejected.
func check(r v1alpha1.ActionRule) error {
	set := 0
	for _, is := range []bool{r.Path != "", r.Unit != "", r.SSHKeys} {
		if is {
			set++
		}
	}
	hasService := false
	switch r.Action {
	case v1alpha1.ActionNone, v1alpha1.ActionDaemonReload, v1alpha1.ActionReboot:
	case v1alpha1.ActionReload, v1alpha1.ActionRestart:
		hasService = true
	default:
		return fmt.Errorf("expected an action None, DaemonReload, Reload, Restart or Reboot, got %q", r.Action)
	}
	switch {
	case set != 1:
		return fmt.Errorf("expected one of path, unit and sshKeys, got %d of them", set)
	case r.Path != "" && (!path.IsAbs(r.Path) || path.Clean(r.Path) != r.Path):
		return fmt.Errorf("expected an absolute path such as %q, got %q", path.Clean("/"+r.Path), r.Path)
	case hasService != (r.Service != ""):
		return fmt.Errorf("expected a service exactly for Reload and Restart, got %q for %s", r.Service, r.Action)
	case hasService && !IsUnitName(r.Service):
		return fmt.Errorf("expected the name of a unit as service, got %q", r.Service)
	}
	return nil
}

// IsUnitName reports whether a text is the name of a file in a folder, of the characters of
// systemd's names, and cannot be taken for an option of a command.
func IsUnitName(name string) bool {
	isOther := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(`:-_.\@`, r)
	}
	return name != "" && len(name) < 200 && name[0] != '.' && name[0] != '-' && !strings.ContainsFunc(name, isOther)
}

// Actions lists what has to be done for a set of changes, each once.
type Actions struct {
	// Reboot replaces all others.
	Reboot bool `json:"reboot,omitempty"`
	// DaemonReload makes systemd read changed units, before Restart and Reload. Both are sorted, and
	// no unit is in both.
	DaemonReload bool     `json:"daemonReload,omitempty"`
	Restart      []string `json:"restart,omitempty"`
	Reload       []string `json:"reload,omitempty"`
}

// IsNone reports whether there is nothing to do.
func (a Actions) IsNone() bool {
	return !a.Reboot && !a.DaemonReload && len(a.Restart) == 0 && len(a.Reload) == 0
}

// Actions returns what the policy requests for changes. Fields that hooks apply need a reboot.
func (p Policy) Actions(steps []Step, claims []Claim) Actions {
	restart, reload := map[string]bool{}, map[string]bool{}
	a := Actions{Reboot: len(claims) > 0}
	for _, step := range steps {
		a.DaemonReload = a.DaemonReload || step.Unit != ""
		for _, rule := range p.of(step) {
			switch rule.Action {
			case v1alpha1.ActionNone:
			case v1alpha1.ActionDaemonReload:
				a.DaemonReload = true
			case v1alpha1.ActionReload:
				reload[rule.Service] = true
			case v1alpha1.ActionRestart:
				restart[rule.Service] = true
			case v1alpha1.ActionReboot:
				a.Reboot = true
			}
		}
	}
	if a.Reboot {
		return Actions{Reboot: true}
	}
	a.Restart = sortedKeys(restart)
	a.Reload = slices.DeleteFunc(sortedKeys(reload), func(unit string) bool { return restart[unit] })
	return a
}

// of returns the rules for one change: those of its unit or of SSH keys, or else those of the
// longest path.
func (p Policy) of(step Step) (matching []v1alpha1.ActionRule) {
	longest := 0
	for _, rule := range p {
		if rule.Unit != "" && rule.Unit == step.Unit || rule.SSHKeys && step.Keys {
			matching = append(matching, rule)
		}
		if rule.Path != "" && within(step.Path, rule.Path) {
			longest = max(longest, len(rule.Path))
		}
	}
	if len(matching) > 0 {
		return matching
	}
	for _, rule := range p {
		if longest > 0 && len(rule.Path) == longest && within(step.Path, rule.Path) {
			matching = append(matching, rule)
		}
	}
	if len(matching) == 0 {
		return []v1alpha1.ActionRule{{Action: v1alpha1.ActionReboot}}
	}
	return matching
}
