package archtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makeCommand  = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	codeSpan     = regexp.MustCompile("`([^`\n]+)`")
	heading      = regexp.MustCompile(`^#+ +(.*?) *$`)
	namedPage    = regexp.MustCompile(`docs/[\w/-]{2,}\.md`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestDocumentationNamesWhatExists follows links, make targets and names of files and folders in
// the documentation.
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
		for _, match := range markdownLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			link, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(link, "://") {
				continue
			}
			page := name
			if link != "" {
				page = path.Join(path.Dir(name), link)
			}
			if !exists(page) || anchor != "" && strings.HasSuffix(page, ".md") && !anchors(string(read(t, page)))[anchor] {
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

// TestCodeNamesPagesThatExist: code, scripts and manifests name pages of docs/ that are there.
func TestCodeNamesPagesThatExist(t *testing.T) {
	walk(t, func(name string) {
		if !slices.Contains([]string{".go", ".sh", ".yaml", ""}, path.Ext(name)) {
			return
		}
		for _, page := range namedPage.FindAllString(string(read(t, name)), -1) {
			if !exists(page) {
				t.Errorf("%s names %s, which does not exist", name, page)
			}
		}
	})
}

// TestEveryPageIsInTheIndex: docs/README.md has each page of docs/ once, or the page that lists
// those of its folder.
func TestEveryPageIsInTheIndex(t *testing.T) {
	const index = "docs/README.md"
	lists := map[string]string{
		"docs/adr": "docs/adr/README.md", "docs/architecture": "docs/architecture.md", "docs/runbooks": "docs/runbooks/README.md",
	}
	linked := func(name string) map[string]int {
		pages := map[string]int{}
		for _, match := range markdownLink.FindAllStringSubmatch(string(read(t, name)), -1) {
			link, _, _ := strings.Cut(match[1], "#")
			pages[path.Join(path.Dir(name), link)]++
		}
		return pages
	}
	fromIndex := linked(index)
	for page, links := range fromIndex {
		if links > 1 {
			t.Errorf("%s has %d links to %s, want one", index, links, page)
		}
	}
	walk(t, func(name string) {
		if !strings.HasPrefix(name, "docs/") || !strings.HasSuffix(name, ".md") || name == index {
			return
		}
		if list := lists[path.Dir(name)]; list != "" && list != name {
			if linked(list)[name] == 0 {
				t.Errorf("%s has no link to %s", list, name)
			}
		} else if fromIndex[name] == 0 {
			t.Errorf("%s has no link to %s", index, name)
		}
	})
}

// TestFirstPagesAreShort: what a reader meets first is read as a whole; what is longer belongs to a
// page of its own.
func TestFirstPagesAreShort(t *testing.T) {
	for name, most := range map[string]int{"README.md": 900, "docs/architecture.md": 3000} {
		if words := len(strings.Fields(string(read(t, name)))); words > most {
			t.Errorf("%s has %d words, want at most %d", name, words, most)
		}
	}
}

// layoutEntry matches a line of the layout: two spaces for each level, folders, and what is there.
var layoutEntry = regexp.MustCompile(`^((?:  ){0,2})([a-z][\w-]*(?:/[\w-]+)*/(?:, [\w/-]+/)*)(?: |$)`)

// TestLayoutNamesWhatExists: a folder that the layout of the architecture names is there, and each
// folder of internal/ is in it.
func TestLayoutNamesWhatExists(t *testing.T) {
	_, layout, _ := strings.Cut(string(read(t, "docs/architecture.md")), "## The layout")
	var above [3]string // the folders of each level
	named := map[string]bool{}
	for line := range strings.SplitSeq(layout, "\n") {
		entry := layoutEntry.FindStringSubmatch(line)
		if entry == nil {
			continue
		}
		level := len(entry[1]) / len("  ")
		for folder := range strings.SplitSeq(entry[2], ", ") {
			above[level] = folder
			if level > 0 {
				above[level] = path.Join(above[level-1], folder)
			}
			if named[above[level]] = true; !exists(above[level]) {
				t.Errorf("docs/architecture.md: the layout names %s, which does not exist", above[level])
			}
		}
	}
	if len(named) < 40 {
		t.Errorf("docs/architecture.md: expected a layout of at least 40 folders, found %d", len(named))
	}
	folders, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if name := path.Join("internal", folder.Name()); folder.IsDir() && !named[name] {
			t.Errorf("docs/architecture.md: the layout does not name %s", name)
		}
	}
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

// built are folders that .gitignore has: what is in them depends on what has been run.
var built = []string{"bin", ".lab"}

// looksLikePath reports whether a code span is the path of a file or folder of the repository.
func looksLikePath(span string) bool {
	top, rest, found := strings.Cut(span, "/")
	return found && top != "" && !strings.ContainsAny(rest, " <>*{}$…=") && exists(top) && !slices.Contains(built, top)
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

// anchors returns the anchors of the headings of a page, as GitHub builds them.
func anchors(page string) map[string]bool {
	all, code := map[string]bool{}, false
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		match := heading.FindStringSubmatch(line)
		if code || match == nil {
			continue
		}
		text := markdownLink.ReplaceAllString(strings.ToLower(match[1]), "")
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(text, ""), " ", "-")
		for name, n := anchor, 1; ; n++ {
			if !all[name] {
				all[name] = true
				break
			}
			name = fmt.Sprintf("%s-%d", anchor, n)
		}
	}
	return all
}
