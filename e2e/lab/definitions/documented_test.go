package definitions_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

// TestDocumentedManifests: the API server accepts the objects in the documentation, and knows all
// of their fields. User data for cloud-init is YAML, with scripts that bash parses.
func TestDocumentedManifests(t *testing.T) {
	t.Parallel()
	definitions := serve(t, mcmcrds.Fleet)
	found := map[string]int{}
	err := filepath.WalkDir("../../../docs", func(page string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		blocks := []string{string(content)}
		if strings.HasSuffix(page, ".md") {
			blocks = nil
			for _, block := range documentedYAML.FindAllStringSubmatch(string(content), -1) {
				blocks = append(blocks, block[1]+block[2])
			}
		}
		for _, block := range blocks {
			if strings.HasPrefix(block, "#cloud-config\n") {
				found["cloud-config"]++
				checkCloudConfig(t, page, block)
			}
			for document := range strings.SplitSeq(block, "\n---\n") {
				if !strings.Contains("\n"+document, "\napiVersion: "+v1alpha1.GroupName+"/") {
					continue
				}
				object := parse(t, []byte(document))
				found[object.GetKind()]++
				options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
				if unknown := pruning.PruneWithOptions(object.DeepCopy().Object, definitions[object.GetKind()].schema,
					true, options); len(unknown) > 0 {
					t.Errorf("%s: %s %s: unknown fields %q", page, object.GetKind(), object.GetName(), unknown)
				}
				if _, err := definitions.create(t.Context(), object); err != nil {
					t.Errorf("%s: %s %s: want it accepted, got: %v", page, object.GetKind(), object.GetName(), err)
				}
			}
		}
		return nil
	})
	if err != nil || found["MachineClass"] < 5 || found["MachineDeployment"] < 5 || found["Machine"] == 0 || found["cloud-config"] < 3 {
		t.Errorf("%v; found %v", err, found)
	}
}

// documentedYAML are the blocks of YAML in a page: on their own, or as the input of a command.
var documentedYAML = regexp.MustCompile("(?s)```yaml\n(.*?)```|<<'?YAML'?\n(.*?)\nYAML\n")

// checkCloudConfig parses user data.
func checkCloudConfig(t *testing.T, page, text string) {
	t.Helper()
	var config struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
		RunCmd     []string
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Errorf("%s: %v", page, err)
	}
	scripts := config.RunCmd
	for _, file := range config.WriteFiles {
		if strings.HasPrefix(file.Content, "#!/bin/bash\n") {
			scripts = append(scripts, file.Content)
		}
	}
	for _, script := range scripts {
		bash := exec.CommandContext(t.Context(), "bash", "-n")
		bash.Stdin = strings.NewReader(script)
		if out, err := bash.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s in\n%s", page, err, out, script)
		}
	}
}
