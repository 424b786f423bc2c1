package merge

import (
	"fmt"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Reasons of the condition RenderDegraded.
const (
	// ReasonRendered means that the target is what the MachineConfigs result in.
	ReasonRendered = "Rendered"
	// ReasonInvalidPool means that the pool itself cannot be rendered for: its selector, its name, or
	// its actions.
	ReasonInvalidPool = "InvalidPool"
	// ReasonNoMachineConfigs means that the pool selects no MachineConfig.
	ReasonNoMachineConfigs = "NoMachineConfigs"
	// ReasonInvalidMachineConfig means that a MachineConfig is invalid by itself.
	ReasonInvalidMachineConfig = "InvalidMachineConfig"
	// ReasonInvalidResult means that MachineConfigs which are valid by themselves are not valid
	// together.
	ReasonInvalidResult = "InvalidResult"
	// ReasonTooLarge means that there are too many MachineConfigs, or that the result has too many
	// bytes.
	ReasonTooLarge = "TooLarge"
	// ReasonIrreconcilable means that Nodes which have the target cannot be brought to the result in
	// place.
	ReasonIrreconcilable = "Irreconcilable"
	// ReasonNameTaken means that an object with the name of the result has another content, or is
	// being deleted.
	ReasonNameTaken = "NameTaken"
)

// Error describes why no RenderedMachineConfig can be created.
type Error struct {
	// Reason is one of the reasons above.
	Reason string
	// Culprits are the names of the MachineConfigs to correct, where there are such.
	Culprits []string
	// Fact describes what is wrong, and what to do, without the names of the culprits.
	Fact string
}

// mostNames is how many names a message lists.
const mostNames = 10

// Error returns the culprits and the fact.
func (e *Error) Error() string {
	if len(e.Culprits) == 0 {
		return bounded.Text(e.Fact, bounded.Message)
	}
	return bounded.Text(fmt.Sprintf("MachineConfig %s: %s", listed(e.Culprits), e.Fact), bounded.Message)
}

// listed returns names, the first ones when there are many.
func listed(names []string) string {
	if len(names) <= mostNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), len(names)-mostNames)
}
