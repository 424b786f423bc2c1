package archtest

import (
	"fmt"
	"go/ast"
	"strconv"
	"strings"
	"testing"
)

// TestControllers makes the table of the values of the key and label "controller" of the constants
// that name runners.
func TestControllers(t *testing.T) {
	const names = "internal/runner/names.go"
	file, err := parse(names, read(t, names))
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	ast.Inspect(file.syntax, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s: want a literal", file.at(spec))
		}
		value, err := strconv.Unquote(literal.Value)
		_, meaning, found := strings.Cut(strings.Join(strings.Fields(spec.Doc.Text()), " "), ": ")
		if err != nil || !found {
			t.Errorf("%s: want a comment with a colon and what the runner reconciles, got %q, %v", file.at(spec), spec.Doc.Text(), err)
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", value, strings.TrimSuffix(meaning, "."))
		return true
	})
	compareTable(t, controllersHead, controllersTail, "| controller | reconciles |\n|---|---|\n"+rows.String())
}

// runnersAreNamedInOnePlace: what users see as the controller of a line or a series is in one list,
// and so in the docs.
func runnersAreNamedInOnePlace(files []goFile) (findings []string) {
	for _, f := range files {
		if f.isTest() || f.inside("internal/testkit") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || !isRunnerConfig(literal.Type) {
				return true
			}
			for _, element := range literal.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if key, named := pair.Key.(*ast.Ident); !ok || !named || key.Name != "Name" {
					continue
				}
				if _, isText := pair.Value.(*ast.BasicLit); isText {
					findings = append(findings, fmt.Sprintf("%s names a runner: use a constant of internal/runner/names.go", f.at(pair)))
				}
			}
			return true
		})
	}
	return findings
}

// isRunnerConfig reports whether a type is runner.Config of any key.
func isRunnerConfig(is ast.Expr) bool {
	if index, generic := is.(*ast.IndexExpr); generic {
		is = index.X
	}
	selector, ok := is.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Config" {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == "runner"
}
