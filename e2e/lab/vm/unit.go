package vm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// Unit contains what this package reads of the file of a service.
type Unit struct {
	// IsOneshot reports whether its program ends before what requires the unit is started.
	IsOneshot bool
	// Exec is the program and its arguments.
	Exec []string
	// WantedBy and RequiredBy are the units that start it, when it is enabled.
	WantedBy, RequiredBy []string
}

// ParseUnit reads the file of a service. Errors name the setting: it is not valid, or not
// supported; or a unit that requires the service would not wait for it.
func ParseUnit(text string) (Unit, error) {
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return Unit{}, fmt.Errorf("expected a unit file: %w", err)
	}
	var u Unit
	var before []string
	for _, o := range options {
		switch setting := o.Section + "." + o.Name; setting {
		case "Unit.Description", "Unit.After", "Service.RemainAfterExit", "Service.Restart", "Service.RestartSec":
		case "Unit.Before":
			before = append(before, strings.Fields(o.Value)...)
		case "Service.Type":
			if o.Value != "oneshot" {
				return Unit{}, fmt.Errorf("%s: expected oneshot, or none, got %q", setting, o.Value)
			}
			u.IsOneshot = true
		case "Service.ExecStart":
			u.Exec = strings.Fields(o.Value)
		case "Install.WantedBy":
			u.WantedBy = append(u.WantedBy, strings.Fields(o.Value)...)
		case "Install.RequiredBy":
			u.RequiredBy = append(u.RequiredBy, strings.Fields(o.Value)...)
		default:
			return Unit{}, fmt.Errorf("%s: this machine does not support that setting", setting)
		}
	}
	for _, other := range u.RequiredBy {
		if !slices.Contains(before, other) {
			return Unit{}, fmt.Errorf("Install.RequiredBy: expected Unit.Before=%s, too: else both start at a time", other)
		}
	}
	for _, other := range slices.Concat(u.WantedBy, u.RequiredBy) {
		if other == "" || strings.ContainsAny(other, "/%") || other[0] == '.' {
			return Unit{}, fmt.Errorf("the section Install: expected names of units, got %q", other)
		}
	}
	return u, nil
}
