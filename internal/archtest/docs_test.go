package archtest

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makeCommand  = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	codeSpan     = regexp.MustCompile("`([^`\n]+)`")
)

// TestDocumentationNamesWhatExists follows links, make targets and names of files and folders in the documentation.
func TestDocumentationNamesWhatExists(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range makeTarget.FindAllSubmatch(read(t, "Makefile"), -1) {
		targets[string(match[1])] = true
	}
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		text := string(read(t, name))
		for _, match := range markdownLink.FindAllStringSubmatch(text, -1) {
			link, _, _ := strings.Cut(match[1], "#")
			if link != "" && !strings.Contains(link, "://") && !exists(path.Join(path.Dir(name), link)) {
				t.Errorf("%s links to %s, which does not exist", name, match[1])
			}
		}
		for _, match := range makeCommand.FindAllStringSubmatch(text, -1) {
			if !targets[match[1]] {
				t.Errorf("%s names make %s, which is no target", name, match[1])
			}
		}
		for _, match := range codeSpan.FindAllStringSubmatch(text, -1) {
			if looksLikePath(match[1]) && !exists(match[1]) {
				t.Errorf("%s names %s, which does not exist", name, match[1])
			}
		}
	})
}

// TestBenchmarksAreExplained: names of rows are an interface.
func TestBenchmarksAreExplained(t *testing.T) {
	var bars map[string]float64
	if err := json.Unmarshal(read(t, "e2e/bench/bars.json"), &bars); err != nil {
		t.Fatal(err)
	}
	text := string(read(t, "docs/benchmarks.md"))
	for name := range bars {
		if !strings.Contains(text, "| `"+name+"` |") {
			t.Errorf("docs/benchmarks.md: want a row that explains %s", name)
		}
	}
}

// looksLikePath reports whether a code span is the path of a file or folder of the repository.
func looksLikePath(span string) bool {
	top, rest, found := strings.Cut(span, "/")
	return found && top != "" && !strings.ContainsAny(rest, " <>*{}$…=") && exists(top) && top != "bin"
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}
