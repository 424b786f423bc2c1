package bridge_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documentation is where the mains of other clouds are.
const documentation = "../../docs/drivers/bridge.md"

// stubs have the functions of MCM's drivers that the mains call, by path below the part of their
// module's name that is their own: the modules cannot be had from the module proxy.
var stubs = map[string]string{
	"aws/pkg/aws": `func NewAWSDriver(any) driver.Driver { return nil }`,
	"aws/pkg/cpi": `type ClientProvider struct{ driver.Driver }`,
	"gcp/pkg/gcp": `type PluginSPIImpl struct{}
type MachinePlugin struct{ driver.Driver }
func NewGCPPlugin(any) *MachinePlugin { return nil }`,
	"openstack/pkg/apis/openstack/install": `var _ driver.Driver
func AddToScheme(*runtime.Scheme) error { return nil }`,
	"openstack/pkg/client": `var _ driver.Driver
func NewClientFactoryFromSecret() {}`,
	"openstack/pkg/driver": `func NewOpenstackDriver(runtime.Decoder, any) driver.Driver { return nil }`,
}

// The mains of the documentation are programs for this bridge: they are checked, in a separate
// module, with stubs in the place of the drivers.
func TestMainsOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	newModule(t, folder)
	for path, content := range stubs {
		write(t, filepath.Join(folder, path, "stub.go"), "package "+filepath.Base(path)+`
import (
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"k8s.io/apimachinery/pkg/runtime"
)
var _ runtime.Object
`+content)
	}
	mains := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllStringSubmatch(string(text), -1)
	const clouds = 3
	if len(mains) != clouds {
		t.Fatalf("%s has %d mains, want %d", documentation, len(mains), clouds)
	}
	for i, main := range mains {
		program := strings.ReplaceAll(main[1], "github.com/gardener/machine-controller-manager-provider-", "mains/")
		write(t, filepath.Join(folder, fmt.Sprintf("main%d", i), "main.go"), program)
	}
	command := exec.CommandContext(t.Context(), "go", "vet", "-mod=mod", "./...") // the mains may need more modules than the bridge
	command.Dir = folder
	if printed, err := command.CombinedOutput(); err != nil {
		t.Errorf("go vet of the mains: %v\n%s", err, printed)
	}
}

// newModule writes the files of a module that is called mains and requires what the bridge does,
// and the bridge.
func newModule(t *testing.T, folder string) {
	t.Helper()
	const module, version = "github.com/machine-controller-fleet/machine-controller-fleet/driver/bridge", " v0.0.0"
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, name), strings.NewReplacer(
			"module "+module, "module mains\n\nrequire "+module+version+"\n\nreplace "+module+" => "+here,
			" => ../..", " => "+filepath.Dir(filepath.Dir(here)),
		).Replace(string(content)))
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = os.WriteFile(name, []byte(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The main of Azure in the documentation is the one that is built.
func TestMainOfAzureInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("azure/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, main, found := strings.Cut(string(program), "func main() {\n"); !found ||
		!strings.Contains(string(text), "```go\nfunc main() {\n"+main+"```") {
		t.Errorf("%s does not have the main of azure/main.go:\n%s", documentation, main)
	}
}
