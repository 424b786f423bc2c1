//go:build e2e

package e2e

import (
	"flag"
	"maps"
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
	"TestAzure":                    "a lab with a second cloud and its driver",
	"TestChart":                    "needs Helm",
	"TestDriverProcess":            "a lab with a driver in a separate process",
	"TestMachineConfiguration":     "a lab with daemons and real kubelets, which reboot",
	"TestMainJobOnMCMsDefinitions": "a lab whose definitions are replaced",
	"TestNamespaceSwitch":          "a lab whose namespaces are switched on and off",
	"TestPlans":                    "a lab whose VMs take long enough to compare times with plans",
	"TestRealKubeletVolumes":       "volumes of real kubelets move one after the other",
	"TestTraces":                   "a lab with Jaeger",
	"TestUpstreamAutoscaler":       "a lab with a cluster-autoscaler, if there is one",
}

// longest are the tests that -rest leaves out, too, with the target of make that runs each.
var longest = map[string]string{
	"TestEverythingAtOnce":                "everything-e2e",
	"TestPlansOfConfigs":                  "plan-e2e",
	"TestUpstreamAutoscalerOfLargePools":  "autoscaler-e2e",
	"TestUpstreamAutoscalersOfALandscape": "autoscaler-e2e",
}

// onlyLong limits the tests to the long ones.
var onlyLong = flag.Bool("rest", false, "run only the tests that -short leaves out")

// selectTests limits the tests of this process, if flags request it: -short runs the journeys of
// users, -rest the long ones, and neither all.
func selectTests() error {
	switch {
	case testing.Short():
		return flag.Set("test.skip", namesOf(long, longest))
	case *onlyLong:
		return flag.Set("test.run", namesOf(long))
	}
	return nil
}

// namesOf returns a pattern for the names of tests.
func namesOf(all ...map[string]string) string {
	var names []string
	for _, some := range all {
		names = slices.AppendSeq(names, maps.Keys(some))
	}
	return "^(" + strings.Join(names, "|") + ")$"
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
	for _, some := range []map[string]string{long, longest} {
		for name, why := range some {
			if !slices.Contains(names, name) {
				t.Errorf("there is no test %s", name)
			}
			if why == "" {
				t.Errorf("%s: want the reason why it takes long, or the target of make", name)
			}
		}
	}
}
