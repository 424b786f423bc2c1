package join

import (
	"os"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_4"
	latest "github.com/coreos/ignition/v2/config/v3_5"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
)

const (
	formsPage   = "../../../docs/operations/machine-config.md"
	initialFile = "/etc/machine-config-daemon/initial.json"
)

// form returns the block of code in the documentation that begins with some text, with the
// placeholders filled in for a configuration.
func form(t *testing.T, begin string) (text, config string) {
	t.Helper()
	page, err := os.ReadFile(formsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), begin)
	block, _, ends := strings.Cut(rest, "\n```")
	if !found || !ends {
		t.Fatalf("%s: expected a block of code that begins with %q", formsPage, begin)
	}
	o := rendered(t, "x")
	values, err := Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for placeholder, value := range values {
		pairs = append(pairs, placeholder, value)
	}
	block = strings.NewReplacer(pairs...).Replace(block)
	if strings.Contains(block, "<<") {
		t.Errorf("a placeholder is left: %s", block)
	}
	return block, o.Name
}

// expectConfig fails unless a daemon reads a configuration from what a VM has in the file of
// --initial.
func expectConfig(t *testing.T, content []byte, want string) {
	t.Helper()
	if config, err := desired.Parse(content); err != nil || config.Name != want {
		t.Errorf("the daemon reads %q (%v), want %q", config.Name, err, want)
	}
}

// cloud-init accepts the form as YAML, and the file that it writes is the configuration.
func TestCloudInitForm(t *testing.T) {
	text, want := form(t, "```yaml\n#cloud-config")
	var config struct {
		WriteFiles []struct {
			Path        string `json:"path"`
			Permissions string `json:"permissions"`
			Encoding    string `json:"encoding"`
			Content     string `json:"content"`
		} `json:"write_files"`
		RunCmd []string `json:"runcmd"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	units := 0
	for _, file := range config.WriteFiles {
		switch {
		case file.Path == initialFile:
			if file.Encoding != "gz+b64" || file.Permissions != "0600" {
				t.Errorf("%+v", file)
			}
			expectConfig(t, plain(t, file.Content), want)
		case strings.HasPrefix(file.Path, "/etc/systemd/system/"):
			units++
		}
	}
	if units != 2 || len(config.RunCmd) == 0 {
		t.Errorf("%d units, commands %q", units, config.RunCmd)
	}
}

// Ignition accepts the form, and the config that it merges.
func TestIgnitionForm(t *testing.T) {
	text, want := form(t, "```json\n")
	config, report, err := ignition.ParseCompatibleVersion([]byte(text))
	if err != nil || report.IsFatal() || len(report.Entries) > 0 {
		t.Fatalf("%v %s", err, report.String())
	}
	inline := func(source string) []byte {
		value, isInline := strings.CutPrefix(source, "data:;base64,")
		if !isInline {
			t.Fatalf("expected a data URL, got %s", source)
		}
		return plain(t, value)
	}
	merged := config.Ignition.Config.Merge
	if len(merged) != 1 {
		t.Fatalf("%d configs are merged", len(merged))
	}
	if _, report, err := latest.ParseCompatibleVersion(inline(*merged[0].Source)); err != nil || len(report.Entries) > 0 {
		t.Errorf("the merged config: %v %s", err, report.String())
	}
	for _, file := range config.Storage.Files {
		if file.Path == initialFile {
			expectConfig(t, inline(*file.Contents.Source), want)
			return
		}
	}
	t.Errorf("no file %s", initialFile)
}
