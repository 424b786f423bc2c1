//go:build e2e

package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// section is the heading of the README's part with the commands.
const section = "\n## Install it\n"

// blocks returns the blocks of commands of the section, by the first word of the comment that each begins with.
func blocks(readme string) (map[string]string, error) {
	_, text, found := strings.Cut(readme, section)
	if !found {
		return nil, fmt.Errorf("expected the heading %q, got none", strings.TrimSpace(section))
	}
	text, _, _ = strings.Cut(text, "\n## ")
	all := map[string]string{}
	for i, part := range strings.Split(text, "\n```") {
		block, isCode := strings.CutPrefix(part, "sh\n")
		if !isCode {
			if i%2 == 1 {
				return nil, fmt.Errorf("expected a block of type sh, got %q", part)
			}
			continue
		}
		comment, _ := strings.CutPrefix(block, "# ")
		name, _, named := strings.Cut(comment, ":")
		if !named || all[name] != "" {
			return nil, fmt.Errorf("expected each block to begin with a comment of its own such as \"# Install: …\", got %q", block)
		}
		all[name] = block
	}
	return all, nil
}

// readme returns the README's blocks.
func readme(t *testing.T) map[string]string {
	t.Helper()
	repository, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := blocks(string(text))
	if err != nil {
		t.Fatalf("README.md: %v", err)
	}
	return all
}

// The tests run all blocks but those that start the lab and name the user's own values: these are what the tests set instead.
func TestReadme(t *testing.T) {
	all := readme(t)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"Cluster", "Install", "Scale", "Uninstall", "Upgrade", "Yours"}; !slices.Equal(names, want) {
		t.Errorf("the section has the blocks %q, want %q", names, want)
	}
	if want := fmt.Sprintf("make lab-up REPLICAS=0 NODES=%d ", nodes); !strings.Contains(all["Cluster"], want) {
		t.Errorf("the block Cluster is\n%s\nwant %q in it: the lab of the tests", all["Cluster"], want)
	}
	for _, variable := range []string{"IMAGE", "TAG", "VALUES"} {
		if !strings.Contains(all["Yours"], variable+"=") || !strings.Contains(all["Install"], "$"+variable) {
			t.Errorf("want the variable %s in the blocks Yours and Install", variable)
		}
	}
}

func TestBlocks(t *testing.T) {
	const fence = "```"
	got, err := blocks("# A\n" + section + "text\n" + fence + "sh\n# One: a\nb\n" + fence + "\nmore\n" + fence + "sh\n# Two: c\n" + fence + "\n\n## Next\n" + fence + "sh\n# Three: d\n" + fence)
	if err != nil || len(got) != 2 || got["One"] != "# One: a\nb" || got["Two"] != "# Two: c" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, text := range map[string]string{
		"no section": "# A", "no comment": section + "\n" + fence + "sh\nls\n" + fence, "no type": section + "\n" + fence + "\nls\n" + fence,
		"twice": section + "\n" + fence + "sh\n# One: a\n" + fence + "\n" + fence + "sh\n# One: b\n" + fence,
	} {
		if got, err := blocks(text); err == nil {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
}
