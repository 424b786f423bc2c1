package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// packagesAreUsed: every package that declares something is imported, that of the product by code
// which is not a test. A package whose last user was removed is dead code that is still maintained.
func packagesAreUsed(files []goFile) (findings []string) {
	imported, byTests := map[string]bool{}, map[string]bool{}
	declaring := map[string]goFile{}
	for _, f := range files {
		for _, p := range f.imports() {
			folder, ours := strings.CutPrefix(p, "./")
			switch {
			case !ours || folder == f.folder():
			case f.isTest():
				byTests[folder] = true
			default:
				imported[folder] = true
			}
		}
		if !f.isTest() && !f.isGenerated() && f.syntax.Name.Name != "main" && declares(f) {
			declaring[f.folder()] = f
		}
	}
	for folder, f := range declaring {
		isUsed := imported[folder] || isForTests(f) && byTests[folder]
		if !isUsed {
			findings = append(findings, fmt.Sprintf("%s: no code imports this package; remove it", folder))
		}
	}
	slices.Sort(findings)
	return findings
}

// declares reports whether a file has more than a package comment and imports.
func declares(f goFile) bool {
	return slices.ContainsFunc(f.syntax.Decls, func(d ast.Decl) bool {
		general, ok := d.(*ast.GenDecl)
		return !ok || general.Tok != token.IMPORT
	})
}

// isForTests reports whether a file belongs to a package that only tests import.
func isForTests(f goFile) bool {
	return f.inside("internal/testkit") || f.inside("e2e") || strings.HasSuffix(f.folder(), "test")
}
