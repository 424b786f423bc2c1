package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// machinery are the folders below controllers/ that all controllers share; every other folder there is a controller.
var machinery = []string{"controllers/disruption", "controllers/nodeowner", "controllers/nodeupdate", "controllers/ready"}

// controllerOf returns the folder of the controller that a folder belongs to, or "" when it belongs to none.
func controllerOf(folder string) string {
	parts := strings.Split(folder, "/")
	if len(parts) < 2 || parts[0] != "controllers" {
		return ""
	}
	folder = parts[0] + "/" + parts[1]
	if slices.Contains(machinery, folder) {
		return ""
	}
	return folder
}

// controllersStandAlone: each controller can be read, tested and owned without the others and without sharding; the
// runner declares the Gate that sharding implements.
func controllersStandAlone(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		folder := strings.TrimPrefix(imported, "./")
		switch {
		case !f.inside("controllers") || !strings.HasPrefix(imported, "./"):
			return ""
		case within(folder, "shard") || within(folder, "membership"):
			return "controllers ask the runner's Gate and know nothing of sharding"
		case controllerOf(folder) != "" && controllerOf(folder) != controllerOf(f.folder()):
			return "controllers do not import each other; they meet in the API"
		}
		return ""
	})
}

// importsPointOneWay: what everything is built on imports nothing of what is built on it, and sharding knows nothing of controllers.
// A simulation of controllers, in tests, needs both.
func importsPointOneWay(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		controllers := within(imported, "./controllers")
		switch {
		case f.inside("shard") && controllers, f.inside("membership") && controllers:
			return "sharding knows nothing of controllers"
		case f.inside("shard/fence") && within(imported, "./shard"):
			return "the fence permits and refuses what a session decides, and knows no session"
		case f.inside("membership") && within(imported, "./shard"):
			return "membership knows nothing of slots"
		case f.inside("internal") && !f.inside("internal/machinesim") && (controllers || within(imported, "./shard") || within(imported, "./membership")):
			return "internal packages are what controllers and sharding are built on"
		}
		return ""
	})
}

// binariesAreLeaves: what a binary's folder holds is wiring.
func binariesAreLeaves(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		if strings.HasPrefix(imported, "./cmd/") || strings.HasPrefix(imported, "./lab/cmd/") {
			if !within("./"+f.folder(), imported) {
				return "cmd wires and is imported by nobody"
			}
		}
		return ""
	})
}

// productStandsAlone: what is shipped does not depend on what tries it out.
func productStandsAlone(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		product := !f.inside("lab") && !f.inside("e2e")
		if product && (within(imported, "./lab") || within(imported, "./e2e")) {
			return "lab and e2e are for trying the product, which knows neither"
		}
		return ""
	})
}

// onlyRunnerQueues: back-off, fairness and draining exist once. The simulated cloud is another world.
func onlyRunnerQueues(files []goFile) (findings []string) {
	return forbiddenImports(files, func(f goFile, imported string) string {
		if imported == "k8s.io/client-go/util/workqueue" && !f.inside("internal/runner") && !f.inside("lab") {
			return "use internal/runner"
		}
		return ""
	})
}

// forbiddenImports asks forbidden about every import; its answer is the reason why not, or "".
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
