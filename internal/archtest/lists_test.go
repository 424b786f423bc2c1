package archtest

import (
	"fmt"
	"go/ast"
	"slices"
)

// unpagedLists are the files that may list without pages, and why what is listed is bounded.
var unpagedLists = map[string]string{
	"cmd/machine-controller-fleet/check.go":          "the Leases of one fleet, once",
	"controllers/machine/namesakes.go":               "the metadata of machines of one name, at most one for each namespace",
	"controllers/node/controller.go":                 "the metadata of machines of one name, at most one for each namespace",
	"internal/machineconfig/daemon/agent/sources.go": "the metadata of one Node",
	"membership/leases/store.go":                     "the Leases of one fleet, which no tenant writes, and which are decided on together",
	"shard/handback/handback.go":                     "Leases, once, when a fleet leaves",
}

// listsArePaged: a list of the API is requested by internal/decode, or has a limit. A function that
// gets the options of its list from its caller is a part of one: that of an informer, or of
// internal/decode.
func listsArePaged(files []goFile) (findings []string) {
	for _, f := range files {
		of := []string{"client", "driver", "e2e", "hack", "internal/testkit", "internal/decode"}
		if unpagedLists[f.path] != "" || f.isTest() || f.isGenerated() || slices.ContainsFunc(of, f.inside) {
			continue
		}
		var given []string // the parameters of the functions around
		var inspect func(n ast.Node) bool
		inside := func(function *ast.FuncType, body *ast.BlockStmt) bool {
			before := given
			for _, p := range function.Params.List {
				for _, name := range p.Names {
					given = append(given, name.Name)
				}
			}
			if body != nil {
				ast.Inspect(body, inspect)
			}
			given = before
			return false
		}
		inspect = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return inside(n.Type, n.Body)
			case *ast.FuncLit:
				return inside(n.Type, n.Body)
			case *ast.CallExpr:
				if function, ok := n.Fun.(*ast.SelectorExpr); ok && function.Sel.Name == "List" && len(n.Args) == 2 && !isBounded(n.Args[1], given) {
					findings = append(findings, fmt.Sprintf("%s lists without pages: use internal/decode, or set a Limit", f.at(n)))
				}
			}
			return true
		}
		ast.Inspect(f.syntax, inspect)
	}
	return findings
}

// isBounded reports whether options of a list are a parameter, or have a limit.
func isBounded(options ast.Expr, given []string) bool {
	switch options := options.(type) {
	case *ast.Ident:
		return slices.Contains(given, options.Name)
	case *ast.CompositeLit:
		return slices.ContainsFunc(options.Elts, func(e ast.Expr) bool {
			field, ok := e.(*ast.KeyValueExpr)
			if !ok {
				return false
			}
			name, ok := field.Key.(*ast.Ident)
			return ok && name.Name == "Limit"
		})
	}
	return false
}
