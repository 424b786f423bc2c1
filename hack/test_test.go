// Package hack has the scripts of the repository, and tests of some of them.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository has the modules whose tests the part unit of hack/test.sh runs.
var repository = map[string]string{
	"go.mod":                       "module example.com/scratch\n\ngo 1.26\n",
	"failing/failing_test.go":      inPackage("failing", `func TestOne(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error() }) }`),
	"e2e/lab/go.mod":               "module example.com/scratch/lab\n\ngo 1.26\n",
	"e2e/lab/passing/some_test.go": inPackage("passing", `func TestPasses(t *testing.T) {}`),
	"cmd/kubectl-mcf/go.mod":       "module example.com/scratch/plugin\n\ngo 1.26\n",
	"cmd/kubectl-mcf/some_test.go": inPackage("main", `func TestPasses(t *testing.T) {}`),
}

func inPackage(name, tests string) string {
	return "package " + name + "\n\nimport \"testing\"\n\n" + tests + "\n"
}

// TestRun: the parts run at the same time, one of them fails, and one is killed.
func TestRun(t *testing.T) {
	dir := scratch(t, "hack/test.sh", "hack/failed/main.go", "hack/tools/gotestsum/go.mod", "hack/tools/gotestsum/go.sum")
	write(t, filepath.Join(dir, "Makefile"), "build:\n\tkill -KILL $$(cut -d' ' -f4 /proc/$$PPID/stat)\n")

	output, code := run(t, dir, "bash hack/test.sh unit+attack")
	_, summary, _ := strings.Cut(output, "== result")
	const command = "go test -tags e2e -short -run '^(TestOne)$' ./failing"
	for _, want := range []string{
		"\nunit         FAILED", "\nattack       FAILED", "\n  ./failing TestOne/sub\n      " + command + "\n", "\n  attack, which was killed\n",
		"hack/test.sh unit attack",
	} {
		if !strings.Contains(summary, want) {
			t.Errorf("want %q at the end of:\n%s", want, output)
		}
	}
	if code != 1 {
		t.Errorf("want exit code 1, got %d", code)
	}
	if output, code := run(t, dir, command); code == 0 {
		t.Errorf("%s passes, and should repeat what failed:\n%s", command, output)
	}

	write(t, filepath.Join(dir, "failing/failing_test.go"), inPackage("failing", "func TestOne(t *testing.T) {}"))
	if output, code := run(t, dir, "bash hack/test.sh unit"); code != 0 || !strings.Contains(output, "passing (cached)") {
		t.Errorf("want exit code 0 after the repair, and results from the cache, got %d:\n%s", code, output)
	}
}

// TestRunUnknownPartIsRefused also when other parts are known.
func TestRunUnknownPartIsRefused(t *testing.T) {
	if output, code := run(t, "..", "bash hack/test.sh test unit+everything"); code != 2 || !strings.Contains(output, "'everything'") {
		t.Errorf("want exit code 2 and the part, got %d:\n%s", code, output)
	}
}

// scratch creates the repository, with copies of files of the real one.
func scratch(t *testing.T, copies ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range repository {
		write(t, filepath.Join(dir, name), text)
	}
	for _, name := range copies {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs a command of a shell, and returns what it prints and its exit code.
func run(t *testing.T, dir, command string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "unset SEED SHUFFLE; "+command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}
