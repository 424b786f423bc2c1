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

// dialect are words for which plain technical English has a precise one: an actor has a name, and a
// process reports, records or emits.
var dialect = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|everybody|anybody|told|tells?|telling)\b`)

// plainWords: comments and texts name who does what. Names of domains and of things that do not
// exist are data.
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

// fieldTerms lists words for which docs/vocabulary.md or a plain word exists: "regardless of",
// "next to", "permanently", "its own", "from the API server"; a VM is created, a request sent, a
// table written; and software has limits and states instead of patience and feelings.
var fieldTerms = regexp.MustCompile(`(?i)\b((whatever|beside|for ever|forever|past (all|the|its) caches?` +
	`|rivals?|strangers?|liars?|witness(es|ed)?|wanderers?|doom(s|ed)?|foresees?|complain(s|ed)?|heed(s|ed)?` +
	`|(im)?patien(t|ce)|hurry|hurries|calms?|obedient|obeys?|stubborn|kindly|greedy` +
	`|lets? go|letting go|(gives?|gave|giving) up|go(es)? home|thinks?|believe[sd]?|talks?|hears?|sees to` +
	`|made (anew|again|by|of|from|for|under)|unmade|remade` +
	`|(makes?|making) (an?|one|no|another) (request|copy|certificate|token|folder|client))\b` +
	`|made[.,;:)]|of (its|their) own[.,;:)])`)

// vagueDefinition matches a comment that leaves it to the reader what the named thing is: it
// contains, records, returns or lists something, or it is a thing with a name.
var vagueDefinition = regexp.MustCompile(`^// \w+ (is|are) (what|all that)\b`)

// wordStart matches where a word begins in a name.
var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// termsOfTheField: comments, texts and names have the field's terms.
func termsOfTheField(files []goFile) (findings []string) {
	for _, f := range files {
		if f.isGenerated() || f.inside("internal/archtest") {
			continue
		}
		check := func(n ast.Node, text string) {
			if word := fieldTerms.FindString(text); word != "" {
				findings = append(findings, fmt.Sprintf("%s: %q: use the field's term", f.at(n), word))
			}
		}
		for _, group := range f.syntax.Comments {
			for _, comment := range group.List {
				check(comment, comment.Text)
				if vagueDefinition.MatchString(comment.Text) {
					findings = append(findings, f.at(comment)+": define what it contains, records, returns or lists")
				}
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if n.Kind == token.STRING && strings.Contains(n.Value, " ") {
					check(n, n.Value)
				}
			case *ast.Ident:
				check(n, wordStart.ReplaceAllString(n.Name, "$1 $2"))
			}
			return true
		})
	}
	return findings
}

// testFunctions matches the names of functions that go test runs.
var testFunctions = regexp.MustCompile(`^(Test|Benchmark|Fuzz)[^a-z]`)

// testNames are plain phrases that state the expected behaviour, without underscores.
var testNames = regexp.MustCompile(`^(Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9]*$`)

// testsAreNamedAlike: all tests are in one style.
func testsAreNamedAlike(files []goFile) (findings []string) {
	for _, f := range files {
		if !f.isTest() {
			continue
		}
		for _, declaration := range f.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil || !testFunctions.MatchString(function.Name.Name) {
				continue
			}
			if !testNames.MatchString(function.Name.Name) {
				findings = append(findings, fmt.Sprintf("%s: %s: name the test by a phrase without underscores", f.at(function), function.Name.Name))
			}
		}
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
			if word := fieldTerms.FindString(line); word != "" {
				t.Errorf("%s:%d says %q: use the field's term", name, i+1, word)
			}
		}
	})
}
