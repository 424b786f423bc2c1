// Command failed names the tests that failed, and the commands that repeat them. It reads what go
// test -json has printed:
//
//	go run ./hack/failed -module example.com/m/lab -folder lab -command 'go -C lab test -race' <output.json
//
// A test that ran when its process ended has failed, too. A test is repeated whole: its subtests
// may build on each other. A package in which no test has failed is repeated whole: it was not
// built, or its process ended outside of a test.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

func main() {
	module := flag.String("module", "", "path of the module whose tests have run")
	folder := flag.String("folder", ".", "its folder in the repository")
	command := flag.String("command", "go test", "the command without -run and packages")
	flag.Parse()
	failed, err := failures(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
	fmt.Fprint(os.Stdout, report(failed, *module, *folder, *command))
}

// failures returns the tests that failed, by their packages.
func failures(output io.Reader) (map[string][]string, error) {
	type name struct{ Package, Test string }
	running := map[name]bool{}
	failed := map[string][]string{}
	for events := json.NewDecoder(output); ; {
		var event struct {
			name
			Action string
		}
		err := events.Decode(&event)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the output of go test -json: %w", err)
		}
		switch event.Action {
		case "run", "cont":
			running[event.name] = true
		case "pause", "pass", "skip", "fail":
			delete(running, event.name)
		}
		if event.Action == "fail" {
			failed[event.Package] = append(failed[event.Package], event.Test)
		}
	}
	for name := range running {
		failed[name.Package] = append(failed[name.Package], name.Test)
	}
	for pkg, tests := range failed {
		tests = slices.DeleteFunc(tests, func(test string) bool { return test == "" }) // it stands for the package
		slices.Sort(tests)
		failed[pkg] = slices.Compact(tests)
	}
	return failed, nil
}

// report returns the names of tests and the commands, or only the command if no package is known to
// have failed.
func report(failed map[string][]string, module, folder, command string) string {
	var out strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(failed)) {
		inModule := "." + strings.TrimPrefix(pkg, module)
		where := "./" + path.Join(folder, inModule)
		repeat := command
		if tests := failed[pkg]; len(tests) == 0 {
			fmt.Fprintf(&out, "  %s\n", where)
		} else {
			var whole []string
			for _, test := range tests {
				if !slices.ContainsFunc(tests, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
					fmt.Fprintf(&out, "  %s %s\n", where, test)
				}
				test, _, _ = strings.Cut(test, "/")
				whole = append(whole, test)
			}
			repeat += fmt.Sprintf(" -run '^(%s)$'", strings.Join(slices.Compact(whole), "|"))
		}
		fmt.Fprintf(&out, "      %s %s\n", repeat, inModule)
	}
	if len(failed) == 0 {
		fmt.Fprintf(&out, "  go test in %s\n      %s\n", folder, command)
	}
	return out.String()
}
