package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	required := []string{"--state-dir", "s", "--call-log", "c"}
	got, err := parse(
		append(required, "--seed", "7", "--create-latency", "1s", "--create-latency-spread=100ms", "--attach-latency=3s", "--detach-latency=2s",
			"--boot-time", "5s", "--pod-termination-time=-1s", "--update-result=failed", "--update-time=1m", "--components-time=-1s",
			"--reboot-time=7s", "--daemons", "--forget-after", "2h", "--kubelet-command", "bin/lab vm", "--clusters=k"), io.Discard,
	)
	if err != nil {
		t.Fatal(err)
	}
	settings := cloudsim.DefaultSettings()
	settings.Latency[cloudapi.OpCreateInstance] = cloudapi.Latency{
		Mean: cloudapi.Duration(time.Second), Spread: cloudapi.Duration(100 * time.Millisecond),
	}
	settings.Latency[cloudapi.OpAttachVolume] = cloudapi.Latency{Mean: cloudapi.Duration(3 * time.Second)}
	settings.Latency[cloudapi.OpDetachVolume] = cloudapi.Latency{Mean: cloudapi.Duration(2 * time.Second)}
	settings.BootTime.Mean = cloudapi.Duration(5 * time.Second)
	settings.PodTerminationTime = cloudapi.Duration(-time.Second)
	settings.InPlaceUpdates = cloudapi.InPlaceUpdates{
		Result: cloudapi.UpdateFailed, Time: cloudapi.Duration(time.Minute), ComponentsTime: cloudapi.Duration(-time.Second),
	}
	settings.RebootTime = cloudapi.Duration(7 * time.Second)
	settings.ForgetAfter = cloudapi.Duration(2 * time.Hour)
	want := options{
		listen: "127.0.0.1:9797", stateDir: "s", callLog: "c", clusters: "k", kubeletCommand: "bin/lab vm", daemons: true, seed: 7,
		settings: settings,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if got, err := parse(required, io.Discard); err != nil || got.seed == 0 {
		t.Errorf("without --seed: %d, %v; want a new one", got.seed, err)
	}
	for name, args := range map[string][]string{
		"required are missing": nil, "unknown flag": append(required, "--speed=1"), "argument": append(required, "more"),
		"no duration": append(required, "--boot-time=soon"),
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// log is a writer whose contents can be read meanwhile.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	opts, err := parse([]string{"--listen=127.0.0.1:0", "--state-dir", dir, "--call-log", filepath.Join(dir, "calls.jsonl")}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out log
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, opts, slog.New(slog.NewTextHandler(&out, nil))) }()
	address := regexp.MustCompile(`http://[0-9.:]+`)
	for !address.MatchString(out.String()) {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	resp, err := http.Get(address.FindString(out.String()) + cloudapi.PathHealth)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("health: %s", resp.Status)
	}
	defer http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "seed=") {
		t.Error("the seed was not printed")
	}
}

func TestKubeletsNeedACluster(t *testing.T) {
	if _, err := newHosts(options{kubeletCommand: "vm"}, nil, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("%v, want an error that names --kubeconfig", err)
	}
}
