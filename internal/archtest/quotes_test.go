package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	quotingPage  = "docs/troubleshooting.md"
	policiesFile = "charts/machine-controller-fleet/templates/target-policies.yaml" // whose messages the fleet repeats
)

var (
	noProse   = regexp.MustCompile("(?ms)```.*?```|`[^`\n]*`|^\\|[^\n]*$")
	quotation = regexp.MustCompile(`"([^"]{12,})"|(?:^|[^*\w])\*([^*]{12,})\*(?:[^*\w]|$)`)
	// placeholder is what a message has of its own each time: names in quotes or of one letter,
	// numbers with what they count, kinds in two forms, and what is left out.
	placeholder = regexp.MustCompile("\"[^\"]*\"|\\([^)]*\\)|\\b[a-zA-Z](?:/[a-zA-Z])?\\b|\\d+(?:[a-z]+| \\w+)|PodDisruptionBudgets?|[`…,;:.]")
	verb        = regexp.MustCompile(`%[-+# 0-9.*]*(?:\[\d+\])?[a-zA-Z]`)
)

// TestTroubleshootingQuotesTheCode: what a user searches for in docs/troubleshooting.md is what the
// fleet writes: texts in double quotes or italics, and the cells of columns with messages. Their
// parts between placeholders are in a string of the code.
func TestTroubleshootingQuotesTheCode(t *testing.T) {
	var texts []string
	for _, f := range load(t) {
		if f.isTest() || f.isGenerated() || !isOfBinary(f) && !f.inside("e2e/lab") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			x, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text := joined(x)
			if text != "" {
				texts = append(texts, verb.ReplaceAllString(text, "\x00"))
			}
			return text == ""
		})
	}
	texts = append(texts, string(read(t, policiesFile)))
	code := strings.ToLower(strings.Join(texts, "\n"))
	quotes := quotesIn(string(read(t, quotingPage)))
	if len(quotes) < 35 {
		t.Errorf("%s: %d quotes are found, expected more", quotingPage, len(quotes))
	}
	for _, quote := range quotes {
		for _, part := range placeholder.Split(quote, -1) {
			part = strings.TrimSpace(part)
			if strings.Contains(part, " ") && !strings.Contains(code, strings.ToLower(part)) {
				t.Errorf("%s quotes %q, and no message has %q", quotingPage, quote, part)
			}
		}
	}
}

// joined returns the text of literals with + between them, where what is no literal is left out; ""
// if there are none.
func joined(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			text, _ := literal(x, nil)
			return text
		}
	case *ast.BinaryExpr:
		if left, right := joined(x.X), joined(x.Y); x.Op == token.ADD && left+right != "" {
			_, leftIs := x.X.(*ast.Ident)
			_, rightIs := x.Y.(*ast.Ident)
			if leftIs || rightIs {
				return left + "\x00" + right
			}
			return left + right
		}
	}
	return ""
}

// quotesIn returns the texts of a page that are messages.
func quotesIn(page string) []string {
	var quotes []string
	var column int // of the messages in this table; 0 if there is none
	for line := range strings.SplitSeq(page, "\n") {
		cells := strings.Split(line, "|")
		head := slices.IndexFunc(cells, func(cell string) bool {
			return slices.Contains([]string{"description", "description begins with", "other message"}, strings.TrimSpace(cell))
		})
		switch {
		case len(cells) < 3:
			column = 0
		case head > 0:
			column = head
		case column > 0 && !strings.HasPrefix(line, "|---"):
			cell := strings.TrimSpace(cells[column])
			if !strings.HasPrefix(cell, "`") {
				quotes = append(quotes, cell)
				break
			}
			for _, span := range codeSpan.FindAllStringSubmatch(cell, -1) {
				quotes = append(quotes, span[1])
			}
		}
	}
	prose := noProse.ReplaceAllString(page, "")
	for paragraph := range strings.SplitSeq(prose, "\n\n") {
		for _, match := range quotation.FindAllStringSubmatch(strings.ReplaceAll(paragraph, "\n", " "), -1) {
			quotes = append(quotes, match[1]+match[2])
		}
	}
	return quotes
}
