// Package hack has the scripts of the repository, and tests of those that run tests.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository has the modules that hack/test.sh expects, in which some tests fail.
var repository = map[string]string{
	"go.mod":                               "module example.com/scratch\n",
	"failing/failing_test.go":              inPackage("failing", `func TestOne(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error() }) }`+"\n"+`func TestTwo(t *testing.T) {}`),
	"unbuilt/unbuilt_test.go":              inPackage("unbuilt", `func TestNone(t *testing.T) { missing() }`),
	"shard/model/doc.go":                   "package model\n",
	"shard/model/some_test.go":             inPackage("model", `func TestPassed(t *testing.T) {}`),
	"cmd/machine-controller-fleet/main.go": "package main\nimport _ \"net/http\"\nfunc main() {}\n",
	"lab/go.mod":                           "module example.com/scratch/lab\nrequire k8s.io/kubernetes v0.0.0\nreplace k8s.io/kubernetes => ./kubernetes\n",
	"lab/kubernetes/go.mod":                "module k8s.io/kubernetes\n",
	"lab/kubernetes/pkg/k.go":              "package pkg\n",
	"lab/own/own_test.go":                  inPackage("own", `func TestOwn(t *testing.T) { t.Error() }`),
	"lab/links/links.go":                   "package links\nimport _ \"k8s.io/kubernetes/pkg\"\n",
	"lab/links/links_test.go":              inPackage("links", `func TestLinks(t *testing.T) {}`),

	"e2e/autoscaler/go.mod":     "module example.com/scratch/autoscaler\n",
	"e2e/autoscaler/as_test.go": inPackage("autoscaler", `func TestDecides(t *testing.T) {}`),

	"tools/image/go.mod":        "module example.com/scratch/tools/image\n",
	"tools/image/image_test.go": inPackage("main", `func TestBuilds(t *testing.T) {}`),

	"bridge/go.mod":              "module example.com/scratch/bridge\n",
	"bridge/bridge_test.go":      inPackage("bridge", `func TestBridges(t *testing.T) {}`),
	"bridge/azure/go.mod":        "module example.com/scratch/bridge/azure\n",
	"bridge/azure/main.go":       "package main\nfunc main() {}\n",
	"driver/aws/go.mod":          "module example.com/scratch/driver/aws\n",
	"driver/aws/aws_test.go":     inPackage("aws", `func TestCreates(t *testing.T) {}`),
	"driver/azure/go.mod":        "module example.com/scratch/driver/azure\n",
	"driver/azure/azure_test.go": inPackage("azure", `func TestCreates(t *testing.T) {}`),
}

// failing are the files with failing tests.
var failing = []string{"failing/failing_test.go", "unbuilt/unbuilt_test.go", "lab/own/own_test.go"}

func inPackage(name, tests string) string {
	return "package " + name + "\n\nimport \"testing\"\n\n" + tests + "\n"
}

// TestRun_SomePartsFail_AllPartsRun: one failure does not hide the next, and the summary names each with the command that repeats it.
func TestRun_SomePartsFail_AllPartsRun(t *testing.T) {
	dir := scratch(t)
	results := filepath.Join(dir, "results")
	output, code := run(t, dir, "RESULTS="+results+" bash hack/test.sh unit unit")
	if code != 1 {
		t.Errorf("want it to exit 1, got %d", code)
	}
	_, summary, _ := strings.Cut(output, "== failed")
	commands := []string{
		"go test -race -short -run '^(TestOne)$' ./failing",
		"go test -race -short ./unbuilt",
		"go -C lab test -race -run '^(TestOwn)$' ./own",
		"hack/test.sh unit unit",
	}
	for _, want := range append(commands, "./failing TestOne/sub\n", "./lab/own TestOwn\n") {
		if !strings.Contains(summary, want) {
			t.Errorf("want %q at the end", want)
		}
	}
	for _, want := range []string{"/shard/model\t", "/lab/links\t", "/autoscaler\t", "/tools/image\t", "/bridge\t", "/driver/aws\t", "/driver/azure\t"} {
		if strings.Count(output, "\nok  \texample.com/scratch"+want) != 2 {
			t.Errorf("want results of %q twice", want)
		}
	}
	for _, command := range commands[:3] {
		if _, code := run(t, dir, command); code == 0 {
			t.Errorf("%s passes, and should repeat what failed", command)
		}
	}
	if text, err := os.ReadFile(results); err != nil || strings.Count(string(text), "part unit FAILED") != 2 || !strings.Contains(string(text), "test ./failing TestOne/sub\n") {
		t.Errorf("the results are %q (%v)", text, err)
	}

	for _, name := range failing {
		write(t, filepath.Join(dir, name), mended(name))
	}
	first, code := run(t, dir, "bash hack/test.sh unit")
	if code != 0 {
		t.Errorf("expected exit code 0 after the repair, got %d:\n%s", code, first)
	}
	second, _ := run(t, dir, "bash hack/test.sh unit")
	if strings.Count(second, "(cached)") != strings.Count(first, "\nok ") {
		t.Errorf("expected all results from the cache without a change:\n%s", second)
	}
	if third, _ := run(t, dir, "SHUFFLE=7 bash hack/test.sh unit"); strings.Contains(third, "(cached)") || !strings.Contains(third, "SHUFFLE=7") {
		t.Errorf("results come from the cache although another order is requested:\n%s", third)
	}
	if t.Failed() {
		t.Log(output)
	}
}

// TestRun_PartsAtTheSameTime_EachHasItsResult: the image cannot be built here, since there is no Makefile.
func TestRun_PartsAtTheSameTime_EachHasItsResult(t *testing.T) {
	output, code := run(t, scratch(t), "bash hack/test.sh image+unit")
	if code != 1 {
		t.Errorf("want it to exit 1, got %d", code)
	}
	_, results, _ := strings.Cut(output, "== result")
	for _, want := range []string{
		"image        FAILED", "unit         FAILED", "make build", "./failing TestOne/sub\n", "hack/test.sh image unit",
	} {
		if !strings.Contains(results, want) {
			t.Errorf("want %q at the end of:\n%s", want, output)
		}
	}
}

// TestRun_NoParts_AllOfMakeTest: each of them fails here, or finds tests that do.
func TestRun_NoParts_AllOfMakeTest(t *testing.T) {
	output, code := run(t, scratch(t), "bash hack/test.sh")
	if last := "or all of the failed parts: hack/test.sh unit e2e image alerts-short helm-short chaos-short"; code != 1 || !strings.Contains(output, last) {
		t.Errorf("want exit code 1 and %q, got %d:\n%s", last, code, output)
	}
}

// TestRun_APartIsKilled_ThatIsAFailure: of two that run at the same time.
func TestRun_APartIsKilled_ThatIsAFailure(t *testing.T) {
	dir := scratch(t)
	for _, name := range failing {
		write(t, filepath.Join(dir, name), mended(name))
	}
	write(t, filepath.Join(dir, "Makefile"), "build image:\n\tkill -KILL $$(cut -d' ' -f4 /proc/$$PPID/stat)\n")
	output, code := run(t, dir, "bash hack/test.sh unit+image")
	if code != 1 || !strings.Contains(output, "image, which was killed") || !strings.Contains(output, "unit         ok") {
		t.Errorf("want exit code 1 and the part that was killed, got %d:\n%s", code, output)
	}
}

// TestAgain_FailuresInRuns_TableShowsThem: two runs, the second beside a compiler, which ends with it.
func TestAgain_FailuresInRuns_TableShowsThem(t *testing.T) {
	dir := scratch(t)
	output, code := run(t, dir, "mkdir -p tmp; TMPDIR="+dir+"/tmp bash hack/again.sh 2 1 unit")
	if code != 1 {
		t.Errorf("want it to exit 1, got %d", code)
	}
	_, table, _ := strings.Cut(output, "== again: 2 of 2 failed\n")
	rows := strings.Split(table, "\n")
	if !strings.HasPrefix(table, "  1  -         unit FAILED") || !strings.Contains(table, "\n  2  compiler  unit FAILED") || strings.Count(table, "./failing TestOne/sub") != 2 {
		t.Errorf("the table is %q", rows)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "tmp", "again-*", "*"))
	if err != nil || len(logs) != 5 { // of each run what it printed and its results, and what the compiler printed
		t.Errorf("left are %q (%v)", logs, err)
	}
	if processes, code := run(t, dir, "grep -lz "+dir+"/tmp/again /proc/[0-9]*/environ 2>/dev/null"); code == 0 {
		t.Errorf("processes of the compiler are left: %s", processes)
	}

	for _, name := range failing {
		write(t, filepath.Join(dir, name), mended(name))
	}
	if output, code := run(t, dir, "mkdir -p tmp; TMPDIR="+dir+"/tmp bash hack/again.sh 1 0 unit"); code != 0 || !strings.Contains(output, "== again: 0 of 1 failed") {
		t.Errorf("expected exit code 0 after the repair, got %d:\n%s", code, output)
	}
	if _, code := run(t, dir, "bash hack/again.sh 1 2 unit"); code != 2 {
		t.Errorf("want it to refuse more runs beside a compiler than there are, got %d", code)
	}
}

// scratch makes the repository, with the scripts as they are.
func scratch(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range repository {
		if filepath.Base(name) == "go.mod" {
			text += "go 1.26\n"
		}
		write(t, filepath.Join(dir, name), text)
	}
	for _, name := range []string{"test.sh", "again.sh"} {
		script, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "hack", name), string(script))
		if err := os.Chmod(filepath.Join(dir, "hack", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mended is a file of the repository without what fails in it.
func mended(name string) string {
	return strings.NewReplacer("t.Error()", "", "missing()", "").Replace(repository[name])
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
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "unset SEED SHUFFLE RESULTS; "+command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}
