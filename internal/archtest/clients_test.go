package archtest

import (
	"fmt"
	"go/ast"
	"slices"
)

// clientConstructors create clients of an API server.
var clientConstructors = []string{
	"NewForConfig", "NewForConfigOrDie", "NewForConfigAndClient", "NewForConfigAndClientOrDie",
	"HTTPClientFor", "TransportFor", "RESTClientFor", "RESTClientForConfigAndClient", "UnversionedRESTClientFor",
	"InClusterConfig", "BuildConfigFromFlags", "BuildConfigFromKubeconfigGetter",
}

// isConstructor reports whether a function creates a client of an API server.
func isConstructor(function *ast.SelectorExpr) bool {
	of, isName := function.X.(*ast.Ident)
	return slices.Contains(clientConstructors, function.Sel.Name) || isName && of.Name == "kubeclient" && function.Sel.Name == "New"
}

// answersAreChecked: a file of a binary that reads a configuration of a client has the clients
// reject answers that no API server has written. The wiring of a replica does so for configurations
// of kubeconfigs.go and those of tests alike.
func answersAreChecked(files []goFile) (findings []string) {
	for _, f := range files {
		if !createsClients(f) || f.isTest() || f.path == "internal/replica/kubeconfigs.go" {
			continue
		}
		reads, checks := "", false
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			function, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch function.Sel.Name {
			case "InClusterConfig", "BuildConfigFromFlags":
				reads = fmt.Sprintf("%s calls %s: put internal/apianswers.Check below its clients", f.at(function), function.Sel.Name)
			case "Check":
				of, isName := function.X.(*ast.Ident)
				checks = checks || isName && of.Name == "apianswers"
			}
			return true
		})
		if reads != "" && !checks {
			findings = append(findings, reads)
		}
	}
	return findings
}

// createsClients reports whether clients are created in the folder of a file: in binaries, and in
// the wiring of a replica.
func createsClients(f goFile) bool { return f.inside("cmd") || f.inside("internal/replica") }

// clientsAreFenced: the wiring creates all clients, and puts the Fence below each. The store of
// Leases creates its own, to have connections of its own, from a configuration that already has the
// Fence.
func clientsAreFenced(files []goFile) (findings []string) {
	for _, f := range files {
		if createsClients(f) || f.inside("e2e") || f.inside("internal/testkit") || f.isTest() || f.isGenerated() ||
			f.path == "membership/leases/store.go" || f.inside("internal/kubeclient") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if function, ok := call.Fun.(*ast.SelectorExpr); ok && isConstructor(function) {
				findings = append(findings,
					fmt.Sprintf("%s calls %s: use a client that internal/replica has created, with the Fence below it", f.at(call), function.Sel.Name))
			}
			return true
		})
	}
	return findings
}
