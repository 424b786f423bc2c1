package cloudsim_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// ledger has the answers of a cloud that is killed repeatedly.
type ledger struct {
	mu      sync.Mutex
	created map[string]string // client token → ID of the VM
	deleted map[string]bool   // by ID
}

// A cloud that is killed at random moments keeps all that it has answered, creates one VM for each
// token for any number of creates, and its call log has each change.
func TestKill(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	reported := &ledger{created: map[string]string{}, deleted: map[string]bool{}}
	for round := range 5 {
		url, kill := startProcess(t, dir)
		reported.check(t, url)
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() { reported.work(url, fmt.Sprintf("%d-%d", round, worker)) })
		}
		time.Sleep(50*time.Millisecond + time.Duration(rng.Int64N(int64(150*time.Millisecond))))
		kill()
		wg.Wait()
	}
	url, kill := startProcess(t, dir)
	defer kill()
	reported.repeat(t, url)
	reported.check(t, url)
	checkCallLog(t, url, filepath.Join(dir, "calls.jsonl"))
}

// startProcess starts a cloud in a separate process.
func startProcess(t *testing.T, dir string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the cloud did not start: %v", err)
	}
	return string(bytes.TrimSpace(line)), kill
}

// work creates VMs and deletes every third, until the cloud is killed.
func (l *ledger) work(url, name string) {
	for n := 0; ; n++ {
		token := fmt.Sprintf("%s-%d", name, n)
		l.mu.Lock()
		l.created[token] = "" // Requested: whether it was created is not known until the answer.
		l.mu.Unlock()
		vm, err := send(http.MethodPost, url+cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "vm-" + token, ClientToken: token})
		if err != nil {
			return
		}
		l.mu.Lock()
		l.created[token] = vm.ID
		l.mu.Unlock()
		if n%3 > 0 {
			continue
		}
		if _, err := send(http.MethodDelete, url+path(vm.ID), nil); err != nil {
			return
		}
		l.mu.Lock()
		l.deleted[vm.ID] = true
		l.mu.Unlock()
	}
}

// repeat repeats all creates, answered or not.
func (l *ledger) repeat(t *testing.T, url string) {
	t.Helper()
	for token, id := range l.created {
		vm, err := send(http.MethodPost, url+cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "vm-" + token, ClientToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if id != "" && vm.ID != id {
			t.Errorf("token %s: the repeated create returned %s, before it was %s", token, vm.ID, id)
		}
		l.created[token] = vm.ID
	}
}

// check compares the answers with the state.
func (l *ledger) check(t *testing.T, url string) {
	t.Helper()
	there := map[string]cloudapi.Instance{}
	tokens := map[string]string{}
	for _, vm := range everything(t, url) {
		there[vm.ID] = vm
		if other, twice := tokens[vm.ClientToken]; twice {
			t.Errorf("token %s has created two VMs: %s and %s", vm.ClientToken, other, vm.ID)
		}
		tokens[vm.ClientToken] = vm.ID
	}
	for token, id := range l.created {
		if vm, kept := there[id]; id != "" && (!kept || vm.ClientToken != token) {
			t.Errorf("VM %s of token %s, which was answered, is lost", id, token)
		}
	}
	for id := range l.deleted {
		if vm := there[id]; vm.State != cloudapi.StateTerminated {
			t.Errorf("VM %s, whose delete was answered, is %s", id, vm.State)
		}
	}
}

// checkCallLog checks that every change that took effect is in the log once, except for lines that
// were repeated after a crash.
func checkCallLog(t *testing.T, url, path string) {
	t.Helper()
	creates, deletes, seen := map[string]int{}, map[string]int{}, map[uint64]bool{}
	unanswered := 0
	for _, call := range readCalls(t, path) {
		if !call.Changed || seen[call.ID] {
			continue
		}
		seen[call.ID] = true
		if call.Error == cloudapi.CallTimeout {
			unanswered++
		}
		if call.Operation == cloudapi.OpCreateInstance {
			creates[call.Instance]++
		} else {
			deletes[call.Instance]++
		}
	}
	vms := everything(t, url)
	for _, vm := range vms {
		wantDeletes := 0
		if vm.State == cloudapi.StateTerminated {
			wantDeletes = 1
		}
		if creates[vm.ID] != 1 || deletes[vm.ID] != wantDeletes {
			t.Errorf("%s is %s; the call log has %d creates and %d deletes that changed something", vm.ID, vm.State, creates[vm.ID], deletes[vm.ID])
		}
	}
	t.Logf("%d VMs; %d calls took effect and were cut off by a kill", len(vms), unanswered)
}

// everything returns all VMs.
func everything(t *testing.T, url string) []cloudapi.Instance {
	t.Helper()
	resp, err := http.Get(url + cloudapi.PathAllInstances)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list cloudapi.InstanceList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// send makes a call that may fail because the cloud was killed.
func send(method, url string, body any) (cloudapi.Instance, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return cloudapi.Instance{}, err
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(raw))
	if err != nil {
		return cloudapi.Instance{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return cloudapi.Instance{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return cloudapi.Instance{}, fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	var vm cloudapi.Instance
	return vm, json.NewDecoder(resp.Body).Decode(&vm)
}
