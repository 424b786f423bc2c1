package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// A file that is longer has more than one subject.
	maxFileLines = 500
	// A comment on its own lines ends at this column, so that two files fit side by side.
	maxCommentColumns = 100
	// A function that is longer has more than one step. Tests are tables, and may be longer.
	maxFunctionLines = 80
)

// apiDomains are part of the names of labels, annotations, finalizers and groups.
var apiDomains = []string{"machine.sapcloud.io", "node.gardener.cloud"}

// apiNamesWrittenOnce: constants of apis/ are the only place, so that a name cannot be misspelt
// elsewhere. Tests write names out, to see what a user sees, and so does the autoscaler's double:
// it is an independent client.
func apiNamesWrittenOnce(files []goFile) (findings []string) {
	for _, f := range files {
		if f.inside("apis") || f.inside("e2e/autoscaler") || f.isTest() || f.isGenerated() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sum, ok := n.(*ast.BinaryExpr); ok && addsToDomain(sum) && !f.inside("driver") { // TestKeysPage reads the constants of drivers
				findings = append(findings, f.at(sum)+" builds a name of the API: declare the constant in apis/, with On, By, Value and See")
			}
			literal, ok := n.(*ast.BasicLit)
			if ok && literal.Kind == token.STRING && slices.ContainsFunc(apiDomains, func(domain string) bool {
				return strings.Contains(literal.Value, domain)
			}) {
				findings = append(findings, fmt.Sprintf("%s writes %s: use the constant of apis/machine/v1alpha1", f.at(literal), literal.Value))
			}
			return true
		})
	}
	return findings
}

// addsToDomain reports whether an expression is the domain of the fleet's own names with a literal
// after it.
func addsToDomain(sum *ast.BinaryExpr) bool {
	domain, ok := sum.X.(*ast.SelectorExpr)
	_, isLiteral := sum.Y.(*ast.BasicLit)
	return ok && isLiteral && domain.Sel.Name == "FleetDomain"
}

// noMeaningInMessages: an error or a status has a code for programs; its text is for people, and
// may change.
func noMeaningInMessages(files []goFile) (findings []string) {
	for _, f := range files {
		if f.isTest() || f.isGenerated() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && searchesText(call) && slices.ContainsFunc(call.Args, isMessage) {
				findings = append(findings, f.at(call)+" decides on the text of a message: use errors.As, a code or a reason")
			}
			return true
		})
	}
	return findings
}

// searchesText reports whether a call looks for something in a string.
func searchesText(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := function.X.(*ast.Ident)
	return ok && pkg.Name == "strings" &&
		slices.Contains([]string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Count", "Cut"}, function.Sel.Name)
}

// isMessage reports whether an expression is the text of an error or a status.
func isMessage(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		method, ok := e.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Error"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Message" || e.Sel.Name == "Description"
	}
	return false
}

// eventsReportedInOneWay: whether an Event is a warning follows from its reason, and a text that is
// too long for the API server is cut.
func eventsReportedInOneWay(files []goFile) (findings []string) {
	for _, f := range files {
		if f.isTest() || f.inside("internal/telemetry") || f.inside("e2e/lab") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Eventf" {
					findings = append(findings, f.at(call)+" records an Event: use telemetry.Emit")
				}
			}
			return true
		})
	}
	return findings
}

// goldenFilesHaveOneFlag: -update writes all golden files, and each failure of
// internal/testkit/golden names the command.
func goldenFilesHaveOneFlag(files []goFile) (findings []string) {
	for _, f := range files {
		if !f.isTest() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			name, _ := literal(call.Args[0], nil)
			if function, ok := call.Fun.(*ast.SelectorExpr); ok && function.Sel.Name == "Bool" &&
				slices.Contains([]string{"update", "rewrite", "golden", "write"}, name) {
				findings = append(findings, f.at(call)+" declares a flag for golden files: use internal/testkit/golden")
			}
			return true
		})
	}
	return findings
}

func filesAreShort(files []goFile) (findings []string) {
	for _, f := range files {
		if f.lines > maxFileLines && !f.isGenerated() {
			findings = append(findings, fmt.Sprintf("%s has %d lines, more than %d", f.path, f.lines, maxFileLines))
		}
	}
	return findings
}

// commentsAreWrapped: directives, code, tables and words that are longer than a line excepted.
func commentsAreWrapped(files []goFile) (findings []string) {
	prose := regexp.MustCompile(`^// [^+|\s]\S*\s+\S`)
	for _, f := range files {
		if f.isGenerated() {
			continue
		}
		code := map[int]bool{} // lines with more than a comment
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n.(type) {
			case nil, *ast.Comment, *ast.CommentGroup:
				return false
			}
			code[f.fset.Position(n.Pos()).Line], code[f.fset.Position(n.End()).Line] = true, true
			return true
		})
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				at := f.fset.Position(c.Pos())
				if end := at.Column - 1 + utf8.RuneCountInString(c.Text); end > maxCommentColumns && !code[at.Line] && prose.MatchString(c.Text) {
					findings = append(findings, fmt.Sprintf("%s: a comment ends at column %d, after %d; wrap it", f.at(c), end, maxCommentColumns))
				}
			}
		}
	}
	return findings
}

func functionsAreShort(files []goFile) (findings []string) {
	for _, f := range files {
		if f.isTest() || f.isGenerated() {
			continue
		}
		for _, declaration := range f.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := f.fset.Position(function.End()).Line - f.fset.Position(function.Pos()).Line + 1
			if lines > maxFunctionLines {
				findings = append(findings,
					fmt.Sprintf("%s: %s has %d lines, more than %d", f.at(function), function.Name.Name, lines, maxFunctionLines))
			}
		}
	}
	return findings
}

// packagesHaveNames: a package with an unspecific name collects unrelated code.
func packagesHaveNames(files []goFile) (findings []string) {
	for _, f := range files {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "base", "types", "misc", "shared"}, name) {
			findings = append(findings, fmt.Sprintf("%s: package %s: name it after its content", f.path, name))
		}
	}
	return findings
}

// packagesHaveComments: purpose, guarantees and what is not guaranteed are above the package
// clause, once.
func packagesHaveComments(files []goFile) (findings []string) {
	commented := map[string][]string{}
	for _, f := range files {
		if f.isGenerated() || strings.HasSuffix(f.syntax.Name.Name, "_test") {
			continue
		}
		by := commented[f.folder()]
		if f.syntax.Doc != nil {
			by = append(by, f.path)
		}
		commented[f.folder()] = by
	}
	for folder, by := range commented {
		if len(by) != 1 {
			findings = append(findings, fmt.Sprintf("%s: want one package comment, got %d %v", folder, len(by), by))
		}
	}
	slices.Sort(findings)
	return findings
}
