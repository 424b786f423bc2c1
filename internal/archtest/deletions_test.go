package archtest

import (
	"go/ast"
	"slices"
	"strings"
)

// deletionsHaveReceipts: a request that deletes a Machine, a Node or a resource at a cloud is sent
// by the function that is passed, with its reason, to the Recorder of internal/deletion. What is
// between a controller and a cloud passes requests on.
func deletionsHaveReceipts(files []goFile) (findings []string) {
	for _, f := range files {
		if !f.inside("controllers") && !f.inside("cmd") && !f.inside("internal/replica") && !f.inside("shard") || f.inside("shard/fence") ||
			f.isTest() {
			continue
		}
		recorded := map[ast.Node]bool{}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isRecorded(call) {
				for _, argument := range call.Args {
					if request, ok := argument.(*ast.FuncLit); ok {
						recorded[request] = true
					}
				}
			}
			if recorded[n] {
				return false
			}
			if call, ok := n.(*ast.CallExpr); ok && deletesWithReason(call) {
				findings = append(findings, f.at(call)+" deletes without a receipt: pass the request to deletion.Recorder.Delete")
			}
			return true
		})
	}
	return findings
}

// isRecorded reports whether a call is that of a Recorder, which is the field Deletions of a
// configuration, or the field deletions of a type.
func isRecorded(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Delete" {
		return false
	}
	recorder, ok := method.X.(*ast.SelectorExpr)
	return ok && strings.EqualFold(recorder.Sel.Name, "deletions")
}

// deletesWithReason reports whether a call deletes something of which there has to be a receipt.
func deletesWithReason(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch method.Sel.Name {
	case "DeleteMachine", "DeleteResource":
		return true
	case "Delete", "DeleteCollection":
		client, ok := method.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		kind, ok := client.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"Machines", "Nodes"}, kind.Sel.Name)
	}
	return false
}
