package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLogKeys: each key of a line has one type, at each level, and one meaning, which is in the
// table of docs/operations/logs.md.
func TestLogKeys(t *testing.T) {
	typesOf := map[string]map[string]string{} // by key and type, the place
	fset := token.NewFileSet()
	own, all := listPackages(t)
	imported := importer.ForCompiler(fset, "gc", all.lookup)
	for _, p := range own {
		typed := checkTypes(t, p, fset, imported)
		for _, file := range typed.files {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for key, value := range typed.pairs(call) {
					if typesOf[key] == nil {
						typesOf[key] = map[string]string{}
					}
					typesOf[key][value] = typed.fset.Position(call.Pos()).String()
				}
				return true
			})
		}
	}
	for _, keys := range keyFunctions() {
		for _, key := range keys {
			if typesOf[key] == nil {
				typesOf[key] = map[string]string{"text": ""} // as these functions return it
			}
		}
	}
	var rows strings.Builder
	for _, key := range slices.Sorted(maps.Keys(typesOf)) {
		if len(typesOf[key]) > 1 {
			t.Errorf("key %s has several types: %v", key, typesOf[key])
		}
		meaning := meaningsOfKeys()[key]
		if meaning == "" {
			t.Errorf("key %s has no meaning: expected it in meaningsOfKeys", key)
		}
		for value := range typesOf[key] {
			fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", key, value, meaning)
		}
	}
	for key := range meaningsOfKeys() {
		if typesOf[key] == nil {
			t.Errorf("no line has the key %s", key)
		}
	}
	compareTable(t, keysHead, keysTail, "| key | type | value |\n|---|---|---|\n"+rows.String())
}

// listed is a package, as go list describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// isLogger reports whether a package that is imported is one of loggers.
func isLogger(path string) bool { return path == "k8s.io/klog/v2" || path == "github.com/go-logr/logr" }

// exports are the files with the exported types of packages, by their paths.
type exports map[string]string

func (e exports) lookup(path string) (io.ReadCloser, error) {
	name, known := e[path]
	if !known {
		return nil, fmt.Errorf("no export data of %s", path)
	}
	return os.Open(name)
}

// listPackages returns the packages of the module that are part of the binary and log, and the
// exports of all.
func listPackages(t *testing.T) (own []listed, all exports) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Imports", "./...")
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &stderr)
	}
	all = exports{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return own, all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p.Export
		if folder := strings.TrimPrefix(inRepository(p.ImportPath), "./"); folder != p.ImportPath && isOfBinary(goFile{path: folder + "/x.go"}) &&
			slices.ContainsFunc(p.Imports, isLogger) {
			own = append(own, p)
		}
	}
}

// typedPackage is a package whose expressions have types.
type typedPackage struct {
	fset  *token.FileSet
	files []*ast.File
	info  types.Info
}

func checkTypes(t *testing.T, p listed, fset *token.FileSet, imported types.Importer) typedPackage {
	t.Helper()
	typed := typedPackage{fset: fset, info: types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		typed.files = append(typed.files, file)
	}
	config := types.Config{Importer: imported}
	if _, err := config.Check(p.ImportPath, fset, typed.files, &typed.info); err != nil {
		t.Fatal(err)
	}
	return typed
}

// pairs returns the keys of a call of a logger, with the types of their values.
func (p typedPackage) pairs(call *ast.CallExpr) map[string]string {
	if named := namedFunction(call); len(call.Args) == 3 && (named == "NameObject" || named == "WithObject") {
		return p.pairsIn(call.Args[1:])
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if of := p.info.TypeOf(sel.X); of == nil || !strings.HasSuffix(types.Unalias(of).String(), "logr.Logger") {
		return nil
	}
	skipped, logs := map[string]int{"Info": 1, "Error": 2, "WithValues": 0}[sel.Sel.Name]
	if !logs {
		return nil
	}
	return p.pairsIn(call.Args[skipped:])
}

// namedFunction returns the name of the function that is called, without its package.
func namedFunction(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func (p typedPackage) pairsIn(args []ast.Expr) map[string]string {
	found := map[string]string{}
	for i := 0; i < len(args); i++ {
		if call, ok := args[i].(*ast.CallExpr); ok { // of append
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "append" {
				maps.Copy(found, p.pairsIn(call.Args))
			}
			continue
		}
		if constant := p.info.Types[args[i]].Value; constant != nil && i+1 < len(args) {
			found[strings.Trim(constant.ExactString(), `"`)] = kindOf(p.info.TypeOf(args[i+1]))
			i++
		}
	}
	return found
}

// kindOf returns how a value is logged.
func kindOf(t types.Type) string {
	t = types.Unalias(t)
	text := t.String()
	switch {
	case strings.HasSuffix(text, "klog/v2.ObjectRef"):
		return "object"
	case text == "error":
		return "error"
	case strings.HasSuffix(text, "time.Time"), strings.HasSuffix(text, "time.Duration"):
		return strings.ToLower(text[strings.LastIndex(text, ".")+1:])
	}
	switch under := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case under.Info()&types.IsString != 0:
			return "text"
		case under.Info()&types.IsBoolean != 0:
			return "true or false"
		case types.NewMethodSet(t).Lookup(nil, "String") != nil:
			return "text"
		}
		return "number"
	case *types.Slice:
		return "list"
	}
	return text
}

// meaningsOfKeys are the values of keys, for people.
func meaningsOfKeys() map[string]string {
	return map[string]string{
		"action":            "what a pass does next",
		"aim":               "what a drain is for, such as `deletion` or `preservation`",
		"args":              "the arguments of a command",
		"attachments":       "volumes that are attached",
		"away":              "for how long an API server has not answered",
		"before":            "the target before",
		"began":             "the begin of a time without replicas",
		"cause":             "why an object does not decode",
		"changes":           "how many slots",
		"code":              "the [code](../troubleshooting.md#a-machine-is-in-crashloopbackoff) of a call of a driver",
		"config":            "the RenderedMachineConfig",
		"controller":        "the controller whose pass it is, see [controllers](#controllers)",
		"controllerConfig":  "the ControllerConfig",
		"digest":            "what approves the deletion of orphans",
		"ended":             "its end",
		"epoch":             "of the slot, see `slot`",
		"err":               "the error",
		"evidence":          "what a deletion was decided on",
		"fileLock":          "whether the session holds the lock of its folder",
		"files":             "how many files are changed",
		"flag":              "a flag",
		"for":               "for how long",
		"found":             "the state in which a change was found",
		"from":              "the dead session that held the slots before",
		"hadFinalizer":      "whether the Node had the fleet's finalizer",
		"holder":            "who holds a Lease of Machine Controller Manager",
		"id":                "a resource at a cloud",
		"kind":              "the kind of an object, or of a resource at a cloud",
		"kubeletConfig":     "the KubeletConfig",
		"lastAnswer":        "when an API server has answered last",
		"leader":            "true for the leader's work, which has no slot",
		"lease":             "the name of a Lease",
		"limit":             "the verbosity in effect",
		"machine":           "the Machine",
		"machineClass":      "the MachineClass",
		"machineConfig":     "the MachineConfig",
		"machineConfigPool": "the MachineConfigPool",
		"machineDeployment": "the MachineDeployment",
		"machineSet":        "the MachineSet",
		"machineUID":        "the UID of the Machine of what is deleted",
		"message":           "the message of the Event or of the condition with the same words ([Events](../events.md)), or of a decision",
		"name":              "the name of an object, see `kind`",
		"namespace":         "a namespace, where the line is about one",
		"namespaces":        "how many namespaces",
		"next":              "the state that follows `found`",
		"node":              "the Node",
		"notAfter":          "when a certificate expires",
		"notReady":          "how many machines are not Ready",
		"number":            "how many machines",
		"numberOfSlots":     "how many slots the fleet has",
		"on":                "whether the namespace is switched on",
		"operation":         "the call of the driver, as in metrics",
		"orphans":           "how many orphans",
		"outcome":           "whether a deletion was `Accepted`, or is `Unknown`",
		"panic":             "what a driver has panicked with",
		"path":              "the path of a request",
		"pods":              "how many pods",
		"provider":          "the provider of the MachineClass",
		"providerID":        "the VM",
		"ready":             "how many machines are Ready",
		"reason":            "that of the Event or of the condition ([Events](../events.md))",
		"reboots":           "whether the machine boots again",
		"replica":           "the replica, on each line of its work",
		"replicas":          "the replicas of a MachineDeployment",
		"requested":         "the verbosity that was requested",
		"resourceVersion":   "the version of an object",
		"retryEvery":        "the time between attempts",
		"revision":          "the revision of a MachineSet",
		"claimants":         "machines with [conflicting claims](../vocabulary.md#the-work)",
		"rule":              "the [rule](safety.md#who-deleted-it-and-why) of a deletion",
		"scope":             "a zone or a target cluster",
		"secret":            "the Secret",
		"self":              "whether it is this session",
		"server":            "`control` or `target`",
		"serverAhead":       "by how much the clock of an API server is ahead",
		"session":           "a session",
		"shardBy":           "`--shard-by`",
		"slot":              "under which ownership a pass or a request is sent",
		"slots":             "numbers of slots, such as `0-3,7`",
		"socket":            "the socket of a driver's process",
		"stack":             "where a driver has panicked",
		"step":              "the step that has failed",
		"surplus":           "whether the machine has another VM",
		"target":            "the target of a pool",
		"thresholds":        "the thresholds of circuit breakers",
		"traceID":           "the trace of the pass, if it is sampled",
		"uid":               "the UID of an object",
		"unfit":             "the replica that does not serve its slots",
		"user":              "the user who has requested a change",
		"version":           "the version of a driver",
		"volume":            "the PersistentVolume",
		"wait":              "after which time the object is reconciled again, if no event comes before",
		"why":               "the reason, as text",
		"works":             "whether an account works",
	}
}
