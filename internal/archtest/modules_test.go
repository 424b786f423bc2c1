package archtest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// linkFleet are the modules whose programs link packages of the root module. They agree on all
// versions: where two differ in one, everything that imports it is compiled twice.
var linkFleet = []string{".", "e2e/lab", "driver/aws", "driver/azure", "driver/bridge", "driver/bridge/azure", "cmd/kubectl-mcf"}

// sameInTools are the modules on whose versions the others agree, too.
var sameInTools = []string{
	"k8s.io/", "sigs.k8s.io/", "go.opentelemetry.io/", "google.golang.org/grpc", "google.golang.org/protobuf",
	"github.com/Azure/azure-sdk-for-go/", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go",
}

// ownVersions are the exceptions: the modules in which the go.mod of a folder may differ, by
// prefix, and why.
var ownVersions = []struct{ folder, prefix, reason string }{
	{"driver/bridge/azure", "github.com/Azure", "MCM's driver for Azure does not compile with later SDKs"},
	{"e2e/autoscaler", "", "it has the client-go of the cluster-autoscaler whose part it plays"},
	{"hack/tools/jaeger", "", "built with the versions of its release"},
	{"hack/tools/keda", "", "built with the versions of its release"},
	{"hack/tools/prometheus", "", "built with the versions of its release"},
}

// goModLine is a requirement, or a replacement by another version.
var goModLine = regexp.MustCompile(`(?m)^\s*(?:require |replace )?([^\s/]+\.\S+) (?:v\S+ => \S+ |=> \S+ )?(v\S+)(?: //.*)?$`)

// versionsDiffer returns the modules of which several versions are required, by the content of
// go.mod files by folder.
func versionsDiffer(goMods map[string]string) (findings []string) {
	versions := map[string]map[string]string{} // of a module, each with a folder
	for folder, content := range goMods {
		own := map[string]string{}
		for _, line := range goModLine.FindAllStringSubmatch(content, -1) {
			own[line[1]] = line[2] // replacements follow requirements
		}
		for required, version := range own {
			if !isCompared(folder, required) {
				continue
			}
			if versions[required] == nil {
				versions[required] = map[string]string{}
			}
			versions[required][version] = folder
		}
	}
	for _, required := range slices.Sorted(maps.Keys(versions)) {
		if len(versions[required]) > 1 {
			findings = append(findings, fmt.Sprintf("%s has several versions, %v; raise the lower one with go get", required, versions[required]))
		}
	}
	return findings
}

func isCompared(folder, required string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(required, prefix) }
	for _, e := range ownVersions {
		if folder == e.folder && begins(e.prefix) {
			return false
		}
	}
	return !within(required, module) && (slices.Contains(linkFleet, folder) || slices.ContainsFunc(sameInTools, begins))
}

func TestModulesAgreeOnVersions(t *testing.T) {
	goMods := map[string]string{}
	walk(t, func(name string) {
		if path.Base(name) == "go.mod" {
			goMods[path.Dir(name)] = string(read(t, name))
		}
	})
	for _, finding := range versionsDiffer(goMods) {
		t.Error(finding)
	}
}

func TestVersionsDiffer(t *testing.T) {
	const one = "require (\n\tk8s.io/api v0.1.0\n\tgolang.org/x/net v0.1.0 // indirect\n)\n"
	const other = "require (\n\tk8s.io/api v0.0.0\n\tgolang.org/x/net v0.2.0\n)\nreplace k8s.io/api v0.0.0 => k8s.io/api v0.1.0\n"
	for name, test := range map[string]struct {
		folder, goMod string
		findings      int
	}{
		"the same":                       {"e2e/lab", one, 0},
		"other versions":                 {"e2e/lab", strings.ReplaceAll(other, "=> k8s.io/api v0.1.0", "=> k8s.io/api v0.2.0"), 2},
		"a replacement makes it equal":   {"e2e/lab", other, 1},
		"a tool differs in other things": {"hack/tools/helm", other, 0},
		"a tool with another Kubernetes": {"hack/tools/helm", "require k8s.io/api v0.2.0\n", 1},
		"an exception":                   {"hack/tools/keda", "require k8s.io/api v0.2.0\n", 0},
	} {
		if got := versionsDiffer(map[string]string{".": one, test.folder: test.goMod}); len(got) != test.findings {
			t.Errorf("%s: got %q, want %d findings", name, got, test.findings)
		}
	}
}
