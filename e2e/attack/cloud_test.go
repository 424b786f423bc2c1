//go:build e2e

package attack

import (
	"maps"
	"slices"
	"strings"
)

// lyingCloud answers the create of a machine with each false answer. The status of the machine is
// short and printable, and no other tenant is affected. TestAttacks checks the memory of the
// replicas at the end.
func lyingCloud(a *tenant) {
	reports := map[string]struct {
		code  string
		words []string
	}{
		"large":     {"Unknown", []string{"more than", "was not read"}},
		"endless":   {"Unknown", []string{"more than", "was not read"}},
		"deep":      {"Unknown", []string{"the cloud's answer"}},
		"verbose":   {"Internal", []string{"InternalError", "line"}},
		"page":      {"Unknown", []string{"a server that is not the cloud answered", "418"}},
		"redirect":  {"Unknown", []string{"redirect", "not followed"}},
		"traversal": {"Internal", []string{"expected VM"}},
		"thief":     {"", nil},
	}
	lies := slices.Sorted(maps.Keys(reports))
	for _, lie := range lies {
		a.class(lie, a.cloud.endpoint(lie))
		a.machine(lie, lie)
	}
	for _, lie := range lies {
		text := a.reports(lie, reports[lie].code, reports[lie].words...)
		a.Logf("%s: %s", lie, text)
		if strings.Contains(text, "the-secret") || strings.Contains(text, "\u202e") || strings.Contains(text, a.cloud.elsewhere.URL) {
			a.Errorf("machine %s repeats the text of the cloud: %s", lie, text)
		}
	}
	a.nothingLeaks(adminSecret)
	for _, lie := range lies {
		a.remove(lie)
	}
	a.gone("thief") // its cloud reports that the VM is deleted, which it does not have
}
