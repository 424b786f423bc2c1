//go:build e2e

package attack

import "testing"

// TestAttacks runs many attacks on one fleet at the same time, while the victim's objects are
// watched.
func TestAttacks(t *testing.T) {
	s := newScene(t)
	t.Run("All", func(t *testing.T) {
		for name, attack := range map[string]func(*tenant){
			"DocumentedRights":               documentedRights,
			"SecretOfTheControlCluster":      secretOfTheControlCluster,
			"SharedSecret":                   sharedSecret,
			"EndpointThatNoFlagAllows":       foreignEndpoint,
			"ForgedNotes":                    forgedNotes,
			"PathInTheNameOfASecret":         pathInTheNameOfASecret,
			"NodeOfAnotherMachine":           nodeOfAnotherMachine,
			"NodeOfAnotherMachineWithStatus": withStatus(nodeOfAnotherMachine),
			"NodeThatNobodyManages":          withStatus(unmanagedNode),
			"ForgedTakeOver":                 withStatus(forgedTakeOver),
			"TokenWithoutEnd":                tokenWithoutEnd,
			"TokenWithoutPlaceholder":        tokenWithoutPlaceholder,
			"TokenForAnotherNode":            tokenForAnotherNode,
			"StolenToken":                    stolenToken,
			"AnswersToAStolenToken":          answersToAStolenToken,
			"LyingCloud":                     lyingCloud,
			"KubeletAroundTheAdmin":          kubeletAroundTheAdmin,
			"KubeletThatFlaps":               kubeletThatFlaps,
			"DeadMachinesOfOneTenant":        deadMachinesOfOneTenant,
			"ForgedOwnerReferences":          forgedOwnerReferences,
			"CloudThatNeverAnswers":          cloudThatNeverAnswers,
			"AbsurdNumbers":                  absurdNumbers,
			"LargeObjects":                   largeObjects,
			"TemplatesThatEndThemselves":     templatesThatEndThemselves,
			"PortWithoutEnd":                 portWithoutEnd,
			"Generated":                      withStatus(generated),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				attack(s.tenant(t))
			})
		}
	})
	s.end(t)
}
