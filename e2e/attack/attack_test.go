//go:build e2e

package attack

import "testing"

// TestAttacks runs many attacks on one fleet at the same time, while the victim's objects are watched.
func TestAttacks(t *testing.T) {
	s := newScene(t)
	t.Run("All", func(t *testing.T) {
		for name, attack := range map[string]func(*tenant){
			"SecretOfTheControlCluster": secretOfTheControlCluster,
			"SharedSecret":              sharedSecret,
			"EndpointThatNoFlagAllows":  foreignEndpoint,
			"ForgedNotes":               forgedNotes,
			"PathInTheNameOfASecret":    pathInTheNameOfASecret,
			"NodeOfAnotherMachine":      nodeOfAnotherMachine,
			"NodeThatNobodyManages":     unmanagedNode,
			"ForgedTakeOver":            forgedTakeOver,
			"TokenForever":              tokenForever,
			"TokenWithoutPlaceholder":   tokenWithoutPlaceholder,
			"TokenForAnotherNode":       tokenForAnotherNode,
			"StolenToken":               stolenToken,
			"LyingCloud":                lyingCloud,
			"KubeletAroundTheAdmin":     kubeletAroundTheAdmin,
			"KubeletThatFlaps":          kubeletThatFlaps,
			"DeadMachinesOfOneTenant":   deadMachinesOfOneTenant,
			"ForgedOwnerReferences":     forgedOwnerReferences,
			"CloudThatNeverAnswers":     cloudThatNeverAnswers,
			"AbsurdNumbers":             absurdNumbers,
			"PortWithoutEnd":            portWithoutEnd,
			"Generated":                 generated,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				attack(s.tenant(t))
			})
		}
	})
	s.end(t)
}
