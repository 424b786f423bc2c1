package azure

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// VMNames returns the names that a Machine's VM can have.
func VMNames(m *v1alpha1.Machine) (first, second string) { return vmNames(m.Name, string(m.UID)) }
