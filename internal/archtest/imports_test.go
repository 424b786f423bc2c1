package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// controllerOf returns the folder of the controller that a folder belongs to, or "" when it belongs
// to none.
func controllerOf(folder string) string {
	parts := strings.Split(folder, "/")
	if len(parts) < 2 || parts[0] != "controllers" {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// controllersStandAlone: each controller can be read, tested and maintained without the others and
// without sharding; the runner declares the Gate that sharding implements.
func controllersStandAlone(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		folder := strings.TrimPrefix(imported, "./")
		switch {
		case !f.inside("controllers") || !strings.HasPrefix(imported, "./"):
			return ""
		case within(folder, "shard") || within(folder, "membership"):
			return "controllers use the runner's Gate and must not import sharding"
		case controllerOf(folder) != "" && controllerOf(folder) != controllerOf(f.folder()):
			return "controllers must not import each other; they interact through the API"
		}
		return ""
	})
}

// shells are the packages below controllers/machine that send requests for its controller.
var shells = []string{"controllers/machine/cloud", "controllers/machine/credentials"}

// beyondShell reports whether a shell imports a package of controllers/machine other than what is
// below it.
func beyondShell(f goFile, imported string) bool {
	return slices.ContainsFunc(shells, func(shell string) bool {
		return f.inside(shell) && within(imported, "./controllers/machine") && !within(imported, "./"+shell)
	})
}

// importsPointOneWay: a base package imports nothing of what is built on it, and sharding imports
// nothing of controllers. A simulation of controllers, in tests, needs both.
func importsPointOneWay(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		controllers := within(imported, "./controllers")
		switch {
		case beyondShell(f, imported):
			return "the shells of the machine controller receive what they need as values"
		case f.inside("shard") && controllers, f.inside("membership") && controllers:
			return "sharding must not import controllers"
		case f.inside("shard/fence") && within(imported, "./shard"):
			return "shard/fence must not import the session that decides what it permits"
		case f.inside("membership") && within(imported, "./shard"):
			return "membership must not import slots"
		case f.inside("internal") && !f.inside("internal/machinesim") && !f.inside("internal/replica") && !f.inside("internal/view") &&
			(controllers || within(imported, "./shard") || within(imported, "./membership")):
			return "internal packages are the base of controllers and sharding"
		}
		return ""
	})
}

// binariesAreLeaves: the folder of a binary has flags and main only, and the wiring is for the
// binary.
func binariesAreLeaves(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		if imported == "./internal/replica" && !f.inside("cmd") {
			return "internal/replica is wiring, which only the binary imports"
		}
		if strings.HasPrefix(imported, "./cmd/") || strings.HasPrefix(imported, "./e2e/lab/cmd/") ||
			strings.HasPrefix(imported, "./e2e/simulated/cmd/") {
			if !within("./"+f.folder(), imported) {
				return "cmd is wiring, and no package may import it"
			}
		}
		return ""
	})
}

// contractOfDrivers are the packages below driver that the product links.
var contractOfDrivers = []string{"driver", "driver/plugin", "driver/plugin/v1"}

// productLinksNoCloud: the driver of each cloud is a separate process. What is neither a driver
// nor a test may be a part of the product.
func productLinksNoCloud(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		product := !f.isTest() && !f.inside("e2e") && !f.inside("cmd/driver-conformance") &&
			(!f.inside("driver") || slices.Contains(contractOfDrivers, f.folder()))
		if product && within(imported, "./driver") && !slices.Contains(contractOfDrivers, strings.TrimPrefix(imported, "./")) {
			return "the product links no cloud; it calls drivers by driver/plugin"
		}
		return ""
	})
}

// productStandsAlone: the product does not depend on its tests. azuresim is a cloud of the lab,
// which needs the modules of Azure.
func productStandsAlone(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		product := !f.inside("e2e") && !f.inside("driver/azure/cmd/azuresim")
		if product && within(imported, "./e2e") {
			return "lab and e2e test the product, which must import neither"
		}
		return ""
	})
}

// onlyRunnerQueues: back-off, fairness and draining exist once. The simulated cloud is another
// world.
func onlyRunnerQueues(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		if imported == "k8s.io/client-go/util/workqueue" && !f.inside("internal/runner") && !f.inside("e2e/lab") {
			return "use internal/runner"
		}
		return ""
	})
}

// forbiddenImports reports the imports for which forbidden returns a reason; "" means that the
// import is allowed.
func forbiddenImports(files []goFile, forbidden func(f goFile, imported string) string) (findings []string) {
	for _, f := range files {
		for i, imported := range f.imports() {
			if why := forbidden(f, imported); why != "" {
				findings = append(findings, fmt.Sprintf("%s imports %s: %s", f.at(f.syntax.Imports[i]), imported, why))
			}
		}
	}
	return findings
}
