package clusters

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
)

// recorder is the host of one cluster.
type recorder struct {
	guest.Nowhere

	mu   sync.Mutex
	on   map[string]guest.Health
	runs int
}

func newRecorder() *recorder { return &recorder{on: map[string]guest.Health{}} }

func (r *recorder) PowerOn(vm guest.VM) { r.on[vm.ID] = vm.Health }

func (r *recorder) PowerOff(id string, _ time.Duration) bool {
	delete(r.on, id)
	return true
}

func (r *recorder) SetHealth(id string, health guest.Health) { r.on[id] = health }

func (r *recorder) Run(ctx context.Context, _ guest.Cloud) error {
	r.mu.Lock()
	r.runs++
	r.mu.Unlock()
	<-ctx.Done()
	return nil
}

func TestVMsJoinTheClusterOfTheirUserData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[string]*recorder{"": newRecorder(), "https://a": newRecorder(), "https://b": newRecorder(), "https://idle": newRecorder()}
		var opened []string
		h := New(Config{Default: all[""], Log: slog.New(slog.DiscardHandler), Open: func(server string) (guest.Host, error) {
			opened = append(opened, server)
			if all[server] == nil {
				return nil, errors.New("unknown")
			}
			return all[server], nil
		}})
		h.PowerOn(guest.VM{ID: "a1", Server: "https://a"})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx, nil) }()
		synctest.Wait()
		for id, server := range map[string]string{"a2": "https://a", "b": "https://b", "first": "", "lost": "https://c"} {
			h.PowerOn(guest.VM{ID: id, Server: server})
			h.PowerOn(guest.VM{ID: id, Server: server}) // the cloud does so again
		}
		h.SetHealth("b", guest.NotReady)
		h.SetHealth("lost", guest.NotReady)
		synctest.Wait()
		for server, want := range map[string]map[string]guest.Health{
			"": {"first": guest.Healthy}, "https://a": {"a1": guest.Healthy, "a2": guest.Healthy}, "https://b": {"b": guest.NotReady},
			"https://idle": {},
		} {
			if !maps.Equal(all[server].on, want) {
				t.Errorf("VMs of cluster %q: expected %v, got %v", server, want, all[server].on)
			}
			if runs := all[server].runs; runs != 1 && server != "https://idle" || runs != 0 && server == "https://idle" {
				t.Errorf("cluster %q is run %d times", server, runs)
			}
		}
		if slices.Sort(opened); !slices.Equal(opened, []string{"https://a", "https://b", "https://c"}) {
			t.Errorf("opened %q", opened)
		}
		if !h.PowerOff("a1", 0) || !h.PowerOff("lost", 0) || len(all["https://a"].on) != 1 {
			t.Errorf("after a VM was switched off: %v", all["https://a"].on)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
