//go:build e2e

package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// long are the tests that -short leaves out and -rest is limited to, with the reason why each takes
// long.
var long = map[string]string{
	"TestAzure":                           "a lab with a second cloud and its driver",
	"TestChart":                           "needs Helm",
	"TestDriverProcess":                   "a lab with a driver in a separate process",
	"TestMachineConfiguration":            "a lab with daemons and real kubelets, which reboot",
	"TestMainJobOnMCMsDefinitions":        "a lab whose definitions are replaced",
	"TestNamespaceSwitch":                 "a lab whose namespaces are switched on and off",
	"TestPlans":                           "a lab whose VMs take long enough to compare times with plans",
	"TestRealKubeletVolumes":              "volumes of real kubelets move one after the other",
	"TestTraces":                          "a lab with Jaeger",
	"TestUpstreamAutoscaler":              "a lab with a cluster-autoscaler, if there is one",
	"TestUpstreamAutoscalerOfLargePools":  "hundreds of Nodes, with a cluster-autoscaler if there is one",
	"TestUpstreamAutoscalersOfALandscape": "a lab with three target clusters, with a cluster-autoscaler if there is one",
}

// onlyLong limits the tests to the long ones.
var onlyLong = flag.Bool("rest", false, "run only the tests that -short leaves out")

// selectTests limits the tests of this process, if flags request it: -short runs the journeys of
// users, -rest the others, and neither all.
func selectTests() error {
	names := make([]string, 0, len(long))
	for name := range long {
		names = append(names, name)
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	switch {
	case testing.Short():
		return flag.Set("test.skip", pattern)
	case *onlyLong:
		return flag.Set("test.run", pattern)
	}
	return nil
}

// TestLongTestsExist: the name of a test that is gone, or has another name now, would hide that it
// runs in the wrong form.
func TestLongTestsExist(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	for name, why := range long {
		if !slices.Contains(names, name) {
			t.Errorf("there is no test %s", name)
		}
		if why == "" {
			t.Errorf("%s: want the reason why it takes long", name)
		}
	}
}
