package archtest

import (
	"fmt"
	"go/ast"
	"slices"
)

// clientConstructors make clients of an API server.
var clientConstructors = []string{
	"NewForConfig", "NewForConfigOrDie", "NewForConfigAndClient", "NewForConfigAndClientOrDie",
	"HTTPClientFor", "TransportFor", "RESTClientFor", "RESTClientForConfigAndClient", "UnversionedRESTClientFor",
	"InClusterConfig", "BuildConfigFromFlags", "BuildConfigFromKubeconfigGetter",
}

// clientsAreFenced: cmd makes all clients, and puts the Fence below each. The store of Leases makes its own, to have
// connections of its own, from a configuration that already has the Fence.
func clientsAreFenced(files []goFile) (findings []string) {
	for _, f := range files {
		if f.inside("cmd") || f.inside("lab") || f.inside("e2e") || f.inside("internal/testkit") || f.isTest() || f.isGenerated() || f.path == "membership/leases/store.go" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if function, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(clientConstructors, function.Sel.Name) {
				findings = append(findings, fmt.Sprintf("%s calls %s: use a client that cmd has made, with the Fence below it", f.at(call), function.Sel.Name))
			}
			return true
		})
	}
	return findings
}
