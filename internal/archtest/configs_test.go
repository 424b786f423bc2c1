package archtest

import (
	"fmt"
	"go/ast"
	"strings"
)

// configsAreValidated: a configuration that a New of the product gets is validated by it, so that a
// missing field is an error with its name, and no panic at its first use.
func configsAreValidated(files []goFile) (findings []string) {
	validated := map[string]bool{} // by folder and type
	var constructors []constructor
	for _, f := range files {
		if f.isTest() || f.isGenerated() || isForTests(f) || f.inside("hack") {
			continue
		}
		for _, decl := range f.syntax.Decls {
			switch function, ok := decl.(*ast.FuncDecl); {
			case !ok:
			case function.Recv != nil && function.Name.Name == "Validate":
				validated[f.folder()+" "+configName(function.Recv.List[0].Type)] = true
			case function.Recv == nil && strings.HasPrefix(function.Name.Name, "New"):
				constructors = append(constructors, constructorsOf(f, function)...)
			}
		}
	}
	for _, m := range constructors {
		if !validated[m.file.folder()+" "+m.config] {
			findings = append(findings,
				fmt.Sprintf("%s gets a %s without Validate; add it, with internal/required", m.file.at(m.function), m.config))
		} else if !isPure(m.file.folder()) && !callsValidate(m.function) { // what is pure gets valid values
			findings = append(findings, fmt.Sprintf("%s does not call Validate of its %s", m.file.at(m.function), m.config))
		}
	}
	return findings
}

// constructor is a function that gets a configuration of its package.
type constructor struct {
	file     goFile
	function *ast.FuncDecl
	config   string
}

func constructorsOf(f goFile, function *ast.FuncDecl) (constructors []constructor) {
	for _, parameter := range function.Type.Params.List {
		if name := configName(parameter.Type); name != "" {
			constructors = append(constructors, constructor{f, function, name})
		}
	}
	return constructors
}

// configName returns the name of a type of this package that ends with Config; "" of others.
func configName(of ast.Expr) string {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if index, generic := of.(*ast.IndexExpr); generic {
		of = index.X
	}
	if name, ok := of.(*ast.Ident); ok && strings.HasSuffix(name.Name, "Config") {
		return name.Name
	}
	return ""
}

func callsValidate(function *ast.FuncDecl) (calls bool) {
	ast.Inspect(function.Body, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		calls = calls || ok && selector.Sel.Name == "Validate"
		return !calls
	})
	return calls
}
