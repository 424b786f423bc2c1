//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// columns is the width of the terminal on which kubectl mcf is run.
const columns = 140

// recorder runs kubectl mcf on a terminal, and stores what is worth reading.
type recorder struct {
	*testing.T

	lab *harness.Lab
	bin string
	// text is that of the recording.
	text strings.Builder
}

func newRecorder(t *testing.T, lab *harness.Lab) *recorder {
	t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	return &recorder{T: t, lab: lab, bin: bin}
}

// command returns a command of kubectl mcf in the folder of the lab.
func (r *recorder) command(ctx context.Context, args string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "kubectl"), append([]string{"mcf"}, strings.Fields(args)...)...)
	cmd.Dir = r.lab.Dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(r.lab.Dir, "admin.kubeconfig"), "PATH="+r.bin+":"+os.Getenv("PATH"),
		"NO_COLOR=1", "TERM=xterm")
	return cmd
}

// run runs kubectl mcf, and checks its exit code and that it prints the texts.
func (r *recorder) run(ctx context.Context, code int, args string, texts []string) string {
	r.Helper()
	printed, got, err := harness.RunOnTerminal(r.command(ctx, args), columns)
	if err != nil {
		r.Fatalf("kubectl mcf %s: %v", args, err)
	}
	if got != code {
		r.Errorf("kubectl mcf %s: exit code %d, want %d:\n%s", args, got, code, printed)
	}
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			r.Errorf("kubectl mcf %s: want %q in\n%s", args, text, printed)
		}
	}
	return printed
}

// says runs kubectl mcf, and checks its exit code and what it prints.
func (w *everything) says(code int, args string, texts ...string) {
	w.Helper()
	w.recorder.run(w.Context(), code, args, texts)
}

// records is says with a part of the recording. Parts without a heading of their own continue the
// one before.
func (w *everything) records(heading string, code int, args string, texts ...string) {
	w.Helper()
	printed := w.recorder.run(w.Context(), code, args, texts)
	r := &w.recorder.text
	if heading != "" {
		fmt.Fprintf(r, "```\n\n%s\n\n```console\n", heading)
	} else {
		r.WriteString("\n")
	}
	fmt.Fprintf(r, "$ kubectl mcf %s\n%s", args, strings.ReplaceAll(printed, w.lab.Dir, ".lab"))
	if code != 0 {
		fmt.Fprintf(r, "$ echo $?\n%d\n", code)
	}
}

// save writes the recording.
func (r *recorder) save() {
	r.Helper()
	if !*record || r.Failed() {
		return
	}
	root, err := harness.Repository()
	if err == nil {
		text := strings.TrimPrefix(r.text.String(), "```\n\n") + "```\n"
		err = os.WriteFile(filepath.Join(root, "docs", "operations", "recording.md"), []byte(recordingHead+text), 0o644)
	}
	if err != nil {
		r.Error(err)
	}
}

// recordingHead is how the recording begins.
const recordingHead = `# A recording: everything at once

What ` + "[`kubectl mcf`](../kubectl-mcf.md)" + ` prints, on a terminal of 140 columns, about a fleet of five replicas with three target
clusters in which all of this happens at the same time. ` + "`make everything-e2e RECORD=1`" + ` has written this page, and the pictures of
[the page of the fleet](page.md). It runs in [a lab](../lab.md#a-landscape), whose folder is the working folder.
Without ` + "`RECORD=1`" + ` it only checks what is shown, and that all of it ends.

- ` + "`cluster-1`" + `: the MachineDeployment ` + "`api`" + ` is rolled out; the rollout of ` + "`web`" + ` waits for a drain, which a
  PodDisruptionBudget blocks, and that of ` + "`cache`" + ` for a VM that the cloud has no room for; the zone of ` + "`edge`" + ` is dead.
- ` + "`light-1`" + ` is healthy. The slot of its namespace is handed over, which waits for a request in flight. Deletions are held there.
- ` + "`light-2`" + ` does not answer.
- The replicas ` + "`fleet-3`" + ` and ` + "`fleet-4`" + ` have started, and ` + "`fleet-2`" + ` was stopped.

`

const (
	inReal     = " --target-kubeconfig targets/cluster-1.kubeconfig"
	byEndpoint = " --endpoints endpoints.json"
)

// read runs the verbs that change nothing.
func (w *everything) read() {
	w.Helper()
	w.records("What is wrong, the worst first:", 0, "status -A", "TargetUnavailable", "CircuitBreakerOpen", "RolloutStalled", "SlotsMoving",
		"CrashLoopBackOff", "Terminating", "rollouts under way", "4 replicas")
	w.records("The objects of a namespace; machines in the same state are one line:", 0, "tree -n cluster-1"+inReal,
		"MachineDeployment edge", "4 Machines", "NotReady", "Cordoned", "RolloutStalled")
	w.records("Rollouts:", 0, "rollout status api -n cluster-1 --watch=false", "waiting")
	w.records("", 1, "rollout status cache -n cluster-1 --timeout=2s", "stalled", "is not done after 2s")
	w.records("", 0, "rollout history web -n cluster-1", "current", "REVISION")
	w.records("What a machine of the dead zone waits for, and a drain:", 0,
		"why "+w.lost+" -n cluster-1", "CircuitBreakerOpen", "its Node to be Ready again")
	w.says(0, "why "+w.refused+" -n cluster-1", "the next call of the cloud", "the quota is 0")
	w.records("", 0, "drain "+w.drained+inReal, "1 blocked", "shop/db", "at the latest")
	w.says(0, "why "+w.drained+" -n cluster-1"+inReal, "its Node to be drained", "RolledOut")
	w.says(0, "why "+w.drained+" -n cluster-1", "its Node to be drained")
	w.says(1, "drain "+w.drained, "--target-kubeconfig")
	w.says(1, "why nothing -n cluster-1", "no Events or receipts")
	w.records("Replicas, their slots, and what they work on:", 0, "owners -A", fmt.Sprintf("Moving to %s", w.to), "light-2/remote")
	w.records("", 0, "slots", "gone", "leads", "Moving", fmt.Sprintf("%d of %d slots are held", w.lab.SlotCount, w.lab.SlotCount))
	w.says(0, fmt.Sprintf("slots %d", w.moving), "Moving", w.from, w.to)
	w.records("", 0, "top"+byEndpoint, "CORES", "fleet-3", "leads")
	w.says(0, "version"+byEndpoint, "kubectl-mcf", "fleet-3")
	w.records("Target clusters:", 0, "targets", "no ", "light-2", "yes", "certificate, expires")
	for _, verb := range []string{
		"tree -A", "status -A", "rollout history web -n cluster-1", "why " + w.lost + " -n cluster-1", "owners -A",
		"drain " + w.drained + inReal, "slots", "targets", "top" + byEndpoint, "version" + byEndpoint,
	} {
		w.forms(verb)
	}
}

// plans asks what changes would do.
func (w *everything) plans() {
	w.Helper()
	for _, pool := range []string{"web", "edge"} {
		change := "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineDeployment\nmetadata: {name: " + pool + ", namespace: cluster-1}\n" +
			"spec: {template: {metadata: {annotations: {example.com/version: \"2\"}}}}\n"
		w.must(os.WriteFile(filepath.Join(w.lab.Dir, pool+".yaml"), []byte(change), 0o600))
	}
	w.records("What a change of the template of `web` would do:", 0, "plan -f web.yaml"+inReal+byEndpoint,
		"replaced", "shop/db-", "a rollout is under way already")
	w.says(3, "plan -f edge.yaml --exit-code"+inReal+byEndpoint, "CircuitBreakerOpen", "sim-1b")
	w.forms("plan -f edge.yaml" + inReal + byEndpoint)
}

// forms runs a verb with each form of its output.
func (w *everything) forms(verb string) {
	w.Helper()
	var asJSON, asYAML map[string]any
	if err := json.Unmarshal([]byte(w.recorder.run(w.Context(), 0, verb+" -o json", nil)), &asJSON); err != nil || len(asJSON) == 0 {
		w.Errorf("kubectl mcf %s -o json: %d fields, %v", verb, len(asJSON), err)
	}
	err := yaml.Unmarshal([]byte(w.recorder.run(w.Context(), 0, verb+" -o yaml", nil)), &asYAML)
	if err != nil || len(asYAML) != len(asJSON) {
		w.Errorf("kubectl mcf %s -o yaml: %d fields, -o json has %d, %v", verb, len(asYAML), len(asJSON), err)
	}
	names := strings.Fields(w.recorder.run(w.Context(), 0, verb+" -o name", nil))
	for _, name := range names {
		if kind, of, ok := strings.Cut(name, "/"); !ok || kind == "" || of == "" || kind != strings.ToLower(kind) {
			w.Errorf("kubectl mcf %s -o name: %q is no name of an object", verb, name)
		}
	}
	if len(names) == 0 && !strings.HasPrefix(verb, "version") {
		w.Errorf("kubectl mcf %s -o name has no names", verb)
	}
	if wide := w.recorder.run(w.Context(), 0, verb+" -o wide", nil); strings.Contains(wide, "…") && !strings.HasPrefix(verb, "slots") {
		w.Errorf("kubectl mcf %s -o wide is cut:\n%s", verb, wide)
	}
}

// write runs the verbs that change something.
func (w *everything) write() {
	w.Helper()
	w.records("What people change:", 0, "hold -n light-1 --reason incident-7", "deletions are held")
	w.says(0, "status -n light-1", "DeletionsHeld", "incident-7")
	w.records("", 0, "preserve "+w.lost+" -n cluster-1 --for 4h", "is preserved until")
	w.says(0, "tree edge -n cluster-1 --grouping=false -o wide", "it is preserved until")
	w.records("", 0, "unpreserve "+w.lost+" -n cluster-1", "ends its preservation")
	w.says(0, "preserve "+w.wellOne+" -n light-1 --when-failed", "will be preserved when it fails")
	w.records("", 0, "rollout pause api -n cluster-1", "paused")
	w.says(0, "rollout status api -n cluster-1 --watch=false", "it is paused")
	w.records("", 1, "rollout restart api -n cluster-1", "is paused")
	w.records("", 0, "rollout resume api -n cluster-1", "resumed")
	w.says(1, fmt.Sprintf("move %d fleet-2", w.moving), "expected a replica that lives")
	w.says(2, "hold -n light-1", "--reason")
	w.says(2, "tree -o table", "--output: expected")
}

// page looks at the page of the fleet, by kubectl mcf dashboard.
func (w *everything) page() {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	cmd := w.recorder.command(ctx, "dashboard --no-browser --replica "+w.from+byEndpoint)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	printed, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	address := ""
	lines := bufio.NewScanner(printed)
	for address == "" && lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "http://127.0.0.1:") {
			address = line
		}
	}
	if address == "" {
		w.Fatal("kubectl mcf dashboard has printed no address")
	}
	w.look(address)
	stop()
	_, _ = io.Copy(io.Discard, printed)
	if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		w.Errorf("kubectl mcf dashboard: %v after an interrupt, want exit code 0", err)
	}
}

// look has a browser check the page, and take the pictures of it.
func (w *everything) look(address string) {
	w.Helper()
	expected, err := json.Marshal(map[string][]string{
		"trouble":       {"TargetUnavailable", "CircuitBreakerOpen", "RolloutStalled", w.refused, "incident-7"},
		"machines":      {"cluster-1/edge", "4 Unknown", "light-1/batch", "light-2/remote"},
		"fleet-section": {"4 of 5 live", "has left", "Moving", w.from, w.to},
		"rollouts":      {"cluster-1/api", "cluster-1/cache", "cluster-1/web", "stalled"},
		"drains":        {w.drained, "blocked", "shop/db-", "PodDisruptionBudget shop/db"},
		"breakers":      {"cluster-1/edge", "sim-1b"},
		"targets":       {"light-2", "not available", "light-1", "cluster-1"},
		"deletions":     {w.drained, "RolledOut"},
	})
	w.must(err)
	root, err := harness.Repository()
	w.must(err)
	pictures := w.TempDir()
	if *record {
		pictures = filepath.Join(root, "docs", "operations", "images")
	}
	cmd := exec.CommandContext(w.Context(), "node", "look.js")
	cmd.Dir = filepath.Join(root, "e2e", "page")
	cmd.Env = append(os.Environ(), "PAGE_URL="+address, "EXPECT="+string(expected), "PICTURES="+pictures, "SECTIONS=fleet-section,drains")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		w.Errorf("the page: %v\n%s", err, output.String())
	}
}
