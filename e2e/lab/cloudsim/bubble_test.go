package cloudsim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func milliseconds(n int) cloudapi.Duration {
	return cloudapi.Duration(n) * cloudapi.Duration(time.Millisecond)
}

func seconds(n int) cloudapi.Duration { return cloudapi.Duration(n) * cloudapi.Duration(time.Second) }

// bubble is a cloud in a synctest bubble: its time passes without waiting. Calls go to the handler
// without a network.
type bubble struct {
	t     *testing.T
	cfg   cloudsim.Config
	host  *recorder
	cloud *cloudsim.Cloud
	end   func()
}

// inBubble runs a test against a cloud whose time passes at once.
func inBubble(t *testing.T, settings cloudapi.Settings, test func(b *bubble)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, cfg: config(dir, settings)}
		b.start()
		defer func() { b.end() }()
		test(b)
	})
}

// start opens the cloud and runs it.
func (b *bubble) start() {
	b.t.Helper()
	lingers := b.host != nil && b.host.lingers
	b.host = &recorder{on: map[string]guest.VM{}, health: map[string]guest.Health{}, volumes: map[string][]string{}, lingers: lingers}
	b.cfg.Hosts[cloudapi.BootSimulated] = b.host
	cloud, err := cloudsim.Open(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cloud.Run(ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	b.cloud = cloud
	b.end = func() {
		cancel()
		<-ended
		if err := cloud.Close(); err != nil {
			b.t.Errorf("Close: %v", err)
		}
	}
}

// restart ends the cloud and starts it again.
func (b *bubble) restart() {
	b.t.Helper()
	b.end()
	b.start()
}

// pass lets time pass.
func (b *bubble) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// send makes a call. An unanswered one has status 0.
func (b *bubble) send(ctx context.Context, method, path string, body any) (status int, header http.Header, answer []byte) {
	b.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(raw))
	r.Header.Set("User-Agent", "bubble")
	w := httptest.NewRecorder()
	defer func() {
		if cut := recover(); cut == http.ErrAbortHandler { //nolint:errorlint // this very value
			status = 0
		} else if cut != nil {
			panic(cut)
		}
	}()
	b.cloud.Handler().ServeHTTP(w, r)
	return w.Code, w.Result().Header, w.Body.Bytes()
}

// ok makes a call that has to work.
func ok[T any](b *bubble, method, path string, body any) T {
	b.t.Helper()
	status, _, answer := b.send(b.t.Context(), method, path, body)
	var out T
	if status != http.StatusOK {
		b.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// refused makes a call that has to fail, and returns the cloud's error code.
func (b *bubble) refused(method, path string, body any) cloudapi.ErrorCode {
	b.t.Helper()
	status, _, answer := b.send(b.t.Context(), method, path, body)
	if status < 400 {
		b.t.Fatalf("%s %s: %d %s, want an error", method, path, status, answer)
	}
	var out cloudapi.ErrorBody
	if err := json.Unmarshal(answer, &out); err != nil || out.Message == "" {
		b.t.Fatalf("%s %s: %d %s, want an error with a message", method, path, status, answer)
	}
	return out.Code
}

func (b *bubble) create(req cloudapi.CreateInstanceRequest) cloudapi.Instance {
	b.t.Helper()
	return ok[cloudapi.Instance](b, http.MethodPost, cloudapi.PathInstances, req)
}

func (b *bubble) get(id string) cloudapi.Instance {
	b.t.Helper()
	return ok[cloudapi.Instance](b, http.MethodGet, path(id), nil)
}

func (b *bubble) remove(id string) cloudapi.Instance {
	b.t.Helper()
	return ok[cloudapi.Instance](b, http.MethodDelete, path(id), nil)
}

func (b *bubble) patch(settings string) cloudapi.Settings {
	b.t.Helper()
	return ok[cloudapi.Settings](b, http.MethodPatch, cloudapi.PathSettings, json.RawMessage(settings))
}

func (b *bubble) act(id string, action cloudapi.Action) {
	b.t.Helper()
	ok[cloudapi.Instance](b, http.MethodPost,
		strings.Replace(cloudapi.PathInstanceActions, "{id}", id, 1), cloudapi.InstanceAction{Action: action})
	synctest.Wait()
}

func path(id string) string { return strings.Replace(cloudapi.PathInstance, "{id}", id, 1) }

// calls reads the call log.
func (b *bubble) calls() []cloudapi.Call {
	b.t.Helper()
	return readCalls(b.t, b.cfg.CallLog)
}

func readCalls(t *testing.T, path string) []cloudapi.Call {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var calls []cloudapi.Call
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var call cloudapi.Call
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			t.Fatalf("line %d of the call log: %v: %s", len(calls)+1, err, lines.Bytes())
		}
		calls = append(calls, call)
	}
	return calls
}

// recorder is a Host that records its calls.
type recorder struct {
	mu      sync.Mutex
	cloud   guest.Cloud
	on      map[string]guest.VM
	health  map[string]guest.Health
	grace   []time.Duration
	lingers bool // a VM that is switched off is not off yet, also after restarts of the cloud
	volumes map[string][]string
}

func (r *recorder) PowerOn(vm guest.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, on := r.on[vm.ID]; !on {
		r.on[vm.ID], r.health[vm.ID] = vm, vm.Health
	}
}

func (r *recorder) PowerOff(id string, grace time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, on := r.on[id]; on {
		delete(r.on, id)
		r.grace = append(r.grace, grace)
	}
	return !r.lingers
}

// linger makes VMs that are switched off continue, until release.
func (r *recorder) linger() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lingers = true
}

func (r *recorder) release(id string) {
	r.mu.Lock()
	r.lingers = false
	cloud := r.cloud
	r.mu.Unlock()
	cloud.IsOff(id)
}

func (r *recorder) SetVolumes(id string, volumes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.volumes[id] = volumes
}

// seen returns the volumes of a VM.
func (r *recorder) seen(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.volumes[id]
}

func (r *recorder) SetHealth(id string, health guest.Health) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[id] = health
}

func (r *recorder) Run(ctx context.Context, cloud guest.Cloud) error {
	r.mu.Lock()
	r.cloud = cloud
	r.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (r *recorder) vm(id string) (vm guest.VM, health guest.Health, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	vm, on = r.on[id]
	return vm, r.health[id], on
}
