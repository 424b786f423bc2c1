package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dialect are words for which plain technical English has a precise one: an actor has a name, and a process reports, records or emits.
var dialect = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|everybody|anybody|told|tells?|telling)\b`)

// plainWords: comments and texts name who does what. Names of domains and of things that do not exist are data.
func plainWords(files []goFile) (findings []string) {
	for _, f := range files {
		if f.isGenerated() || f.inside("internal/archtest") {
			continue
		}
		for _, group := range f.syntax.Comments {
			for _, comment := range group.List {
				if word := dialect.FindString(comment.Text); word != "" {
					findings = append(findings, fmt.Sprintf("%s: a comment says %q: name the actor, or what is reported", f.at(comment), word))
				}
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING || !strings.Contains(text.Value, " ") {
				return true
			}
			if word := dialect.FindString(text.Value); word != "" {
				findings = append(findings, fmt.Sprintf("%s: a text says %q: name the actor, or what is reported", f.at(text), word))
			}
			return true
		})
	}
	return findings
}

// quotesOldWords are the documents that list old names beside the new ones.
var quotesOldWords = []string{"docs/adr/0013-terms-of-the-field.md", "CHANGELOG.md"}

// TestDocumentationIsPlain reads the documentation for the same words.
func TestDocumentationIsPlain(t *testing.T) {
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".md") || slices.Contains(quotesOldWords, name) {
			return
		}
		for i, line := range strings.Split(string(read(t, name)), "\n") {
			if word := dialect.FindString(line); word != "" {
				t.Errorf("%s:%d says %q: name the actor, or what is reported", name, i+1, word)
			}
		}
	})
}
