//go:build e2e

package helm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

var (
	// pages have the commands.
	pages = []string{"README.md", "docs/lab.md", "docs/operations/install.md"}
	// block matches one with a name, such as "Install": the first word of the comment that it begins
	// with.
	block = regexp.MustCompile("(?s)\n```sh\n(# ([A-Z][a-z]+): .*?)\n```\n")
)

// addBlocks adds the blocks of commands of a page that have a name. Errors: a name is used twice.
func addBlocks(all map[string]string, page string) error {
	for _, match := range block.FindAllStringSubmatch(page, -1) {
		if name := match[2]; all[name] != "" {
			return fmt.Errorf("expected one block %s, got another one:\n%s", name, match[1])
		}
		all[match[2]] = match[1]
	}
	return nil
}

// documented returns the blocks of the pages, by their names.
func documented(t *testing.T) map[string]string {
	t.Helper()
	repository, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		if err := addBlocks(all, string(text)); err != nil {
			t.Fatalf("%s: %v", page, err)
		}
	}
	return all
}

// The tests run all blocks but those that start the lab and name the user's own values: these are
// what the tests set instead.
func TestDocumentedCommands(t *testing.T) {
	all := documented(t)
	names := slices.Sorted(maps.Keys(all))
	if want := []string{"Cluster", "Install", "Scale", "Uninstall", "Upgrade", "Yours"}; !slices.Equal(names, want) {
		t.Errorf("the pages have the blocks %q, want %q", names, want)
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
	page := "# A\n" + fence + "sh\n# One: a\nb\n" + fence + "\nmore\n" + fence + "sh\nls\n" + fence + "\n" + fence + "sh\n# Two: c\n" + fence +
		"\n"
	all := map[string]string{}
	if err := addBlocks(all, page); err != nil || len(all) != 2 || all["One"] != "# One: a\nb" || all["Two"] != "# Two: c" {
		t.Errorf("got %q, %v", all, err)
	}
	if err := addBlocks(all, page); err == nil {
		t.Error("got no error for a name that is used twice")
	}
}
