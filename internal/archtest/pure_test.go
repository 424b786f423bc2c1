package archtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/types"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// purity matches the comment of a package that decides without I/O: values in, values out.
var purity = regexp.MustCompile(`\bIt is (the )?pure\b`)

// pure returns the folders of the packages that are pure, as their comments say.
var pure = sync.OnceValue(func() (folders []string) {
	for folder, comment := range packageComments() {
		if purity.MatchString(strings.Join(strings.Fields(comment), " ")) {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	return folders
})

// pureStandardLibrary is the part of the standard library that a pure package may import: nothing
// that waits, reads, writes, logs or draws random numbers.
var pureStandardLibrary = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/base32", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors",
	"fmt", "hash/fnv", "iter", "maps", "math", "math/bits", "net/netip", "net/url", "path", "regexp", "slices", "sort", "strconv", "strings",
	"time", "unicode", "unicode/utf8",
}

// pureTrees are the other packages that a pure package may import, with everything below it.
var pureTrees = []string{"./apis", "k8s.io/api", "k8s.io/apimachinery"}

// driverContract is the one impure package that a pure one may import, and not what is below it: a
// driver's error codes, and which provider IDs name one VM, are facts to decide on.
const driverContract = "./driver"

// libraries are pure functions that are written elsewhere, by the only pure package that may import
// them, with everything below them.
var libraries = map[string][]string{
	"shard/assignment": {"github.com/buraksezer/consistent", "github.com/cespare/xxhash/v2"},
	"controllers/machineconfig/kubeletconfig/fold": {"reflect"},
	"controllers/machineconfig/render/merge":       {"github.com/coreos/ignition/v2/config", "github.com/coreos/vcontext/report", "reflect"},
	"controllers/machineconfig/template/expand":    {"sigs.k8s.io/yaml", "text/template"},
	"internal/machinefacts":                        {"github.com/go-json-experiment/json", "reflect"},
	"internal/target/access":                       {"go.yaml.in/yaml/v3"},
}

// foreignImpure are the trees that a pure package may not even import indirectly. Of this
// repository it may import indirectly only what it may import directly.
var foreignImpure = []string{"k8s.io/client-go", "go.opentelemetry.io/otel", "github.com/prometheus/client_golang"}

func isPure(folder string) bool { return slices.Contains(pure(), folder) }

// mayBePureImport reports whether a pure package may import a path (in the form of goFile.imports).
func mayBePureImport(imported string) bool {
	return imported == driverContract || slices.Contains(pureStandardLibrary, imported) ||
		slices.Contains(pure(), strings.TrimPrefix(imported, "./")) ||
		slices.ContainsFunc(pureTrees, func(tree string) bool { return within(imported, tree) })
}

func pureImports(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		library := slices.ContainsFunc(libraries[f.folder()], func(tree string) bool { return within(imported, tree) })
		if isPure(f.folder()) && !f.isTest() && !library && !mayBePureImport(imported) {
			return "a pure package receives its input as values; pure_test.go has what it may import"
		}
		return ""
	})
}

// pureSignatures: no context, logger or clock is passed in a parameter or a field, and no function
// that returns the time.
func pureSignatures(files []goFile) (findings []string) {
	forbidden := []string{"context.Context", "logr.Logger", "klog.Logger", "*slog.Logger", "clock.", "func() time.Time", "func() metav1.Time"}
	for _, f := range files {
		if !isPure(f.folder()) || f.isTest() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok {
				return true
			}
			text := types.ExprString(field.Type)
			if slices.ContainsFunc(forbidden, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
				findings = append(findings, fmt.Sprintf("%s takes %s: pass a value, for example the time", f.at(field), text))
			}
			return true
		})
	}
	return findings
}

// TestPurePackagesReachNothingImpure follows imports transitively.
func TestPurePackagesReachNothingImpure(t *testing.T) {
	arguments := []string{"list", "-json=ImportPath,Deps"}
	for _, folder := range pure() {
		arguments = append(arguments, "./"+folder)
	}
	list := exec.CommandContext(t.Context(), "go", arguments...)
	list.Dir = root
	var stderr strings.Builder
	list.Stderr = &stderr
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list of the pure packages: %v\n%s", err, stderr.String())
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var pkg struct {
			ImportPath string
			Deps       []string
		}
		if err := decoder.Decode(&pkg); err != nil {
			t.Fatalf("answer of go list: %v", err)
		}
		for _, dep := range pkg.Deps {
			if !mayBeReached(dep) {
				t.Errorf("%s is pure and imports %s indirectly", pkg.ImportPath, dep)
			}
		}
	}
}

// mayBeReached reports whether a pure package may depend on a path, directly or not.
func mayBeReached(dep string) bool {
	if within(dep, module) {
		return mayBePureImport(inRepository(dep))
	}
	return !slices.ContainsFunc(foreignImpure, func(tree string) bool { return within(dep, tree) })
}
