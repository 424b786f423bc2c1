// Package golden compares what code says with files of the repository, which -update writes: the
// flag is the same for all tests.
//
// Guarantees: a test that fails names the command that writes its files. Not guaranteed: that what
// is written is right. The author has to review the changes.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//nolint:gochecknoglobals // flags exist before the first test
var update = flag.Bool("update", false, "write the golden files of the tests anew; review what changes")

// Update reports whether golden files are written instead of compared.
func Update() bool { return *update }

// Compare compares the lines of a file with what the code says now, or writes the file.
func Compare(t *testing.T, file, now string) {
	t.Helper()
	if Update() {
		Write(t, file, now)
		return
	}
	was, err := os.ReadFile(file) //nolint:gosec // a file of the test that calls
	if err != nil {
		t.Fatalf("%v; if the file is new: %s", err, Command(t))
	}
	if diff := cmp.Diff(strings.Split(string(was), "\n"), strings.Split(now, "\n")); diff != "" {
		t.Errorf("%s is not what the code says; if the code is right: %s\n(-file +code):\n%s", file, Command(t), diff)
	}
}

// Write writes a golden file.
func Write(t *testing.T, file, now string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Command returns the command that writes the golden files of the test, to be run in the
// repository's folder.
func Command(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd() // of a test: its package
	if err != nil {
		t.Fatal(err)
	}
	module, top := "", ""
	for folder := here; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err != nil {
			continue
		}
		if module == "" {
			module = folder
		}
		top = folder
	}
	inModule, err := filepath.Rel(module, here)
	if err != nil {
		t.Fatal(err)
	}
	command := "go test"
	if in, err := filepath.Rel(top, module); err == nil && in != "." {
		command = "go -C " + in + " test"
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	return command + " ./" + filepath.ToSlash(inModule) + " -run '^" + test + "$' -update"
}
