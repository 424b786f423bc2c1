package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestOfTheExample builds this program and the example of docs/drivers, and runs one against the
// other as an author does.
func TestOfTheExample(t *testing.T) {
	folder, err := os.MkdirTemp("", "mcf") //nolint:usetesting // the name of t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	in := func(name string) string { return filepath.Join(folder, name) }
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute) // the example ends after the test
	t.Cleanup(cancel)
	build := exec.CommandContext(ctx, "go", "build", "-o", folder, ".", "../../driver/plugin/example")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	for name, content := range map[string]string{
		"class.yaml":  "provider: folder\nproviderSpec: {size: small}\n",
		"secret.yaml": "stringData: {userData: '#cloud-config', password: 'correct horse battery staple'}\n",
		"vms.sh":      `cd ` + in("vms") + ` && for f in *; do [ ! -e "$f" ] || grep -q '"ended":true' "$f" || echo "folder:///$f $f"; done`,
		"end.sh":      `f=` + in("vms") + `/$(basename "$PROVIDER_ID") && sed -i 's/}$/,"ended":true}/' "$f"`,
	} {
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(in("vms"), 0o700); err != nil {
		t.Fatal(err)
	}
	example := exec.CommandContext(ctx, in("example"), "--socket="+in("s"), "--folder="+in("vms"))
	example.Stderr = os.Stderr
	if err := example.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := example.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := example.Wait(); err != nil {
			t.Errorf("the example: %v", err)
		}
	})
	conformance := func(flags ...string) (string, error) {
		command := exec.CommandContext(ctx, in("driver-conformance"), append([]string{
			"--socket=" + in("s"), "--class=" + in("class.yaml"), "--secret=" + in("secret.yaml"),
			"--vms=sh " + in("vms.sh"), "--end=sh " + in("end.sh"), "--more-than-a-page=21",
		}, flags...)...)
		output, err := command.CombinedOutput()
		return string(output), err
	}
	output, err := conformance()
	if passed := regexp.MustCompile(`(?m)^ +--- PASS: Conformance/`).FindAllString(output, -1); err != nil || len(passed) < 24 {
		t.Errorf("%v, %d cases passed:\n%s", err, len(passed), output)
	}
	if left, err := exec.CommandContext(ctx, "sh", in("vms.sh")).Output(); err != nil || len(left) > 0 {
		t.Errorf("VMs are left, %v:\n%s", err, left)
	}
	if output, err := conformance("--run=delete_of_nothing"); err != nil || strings.Count(output, "--- PASS: Conformance/") != 1 {
		t.Errorf("one case: %v\n%s", err, output)
	}
	if output, err := conformance("--vms=true", "--run=create_creates_a_VM"); err == nil {
		t.Errorf("a cloud without the VM passed:\n%s", output)
	}
}

func TestFlags(t *testing.T) {
	for _, line := range []string{
		"", "--socket=/a --class=c", "--socket=/a --vms=v", "--class=c --vms=v", "--socket=/a --class=c --vms=v word", "--unknown",
	} {
		if _, err := parse(strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
	if _, err := connect(t.Context(), options{socket: "/a", class: "/nowhere"}); err == nil {
		t.Error("a class that does not exist was accepted")
	}
}
