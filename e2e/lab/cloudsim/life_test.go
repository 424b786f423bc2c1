package cloudsim_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// A create takes 200 ms and a boot 3 s, so a VM's software starts 3.2 s after its create was sent.
func TestLifeCycleOfVM(t *testing.T) {
	settings := cloudsim.DefaultSettings()
	settings.StopTime = cloudapi.Latency{Mean: seconds(10)}
	inBubble(t, settings, func(b *bubble) {
		began := time.Now()
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a", UserData: []byte("--token=abcdef.0123456789abcdef")})
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("the create took %v, want 200ms", took)
		}
		want := cloudapi.Instance{
			ID: "i-000000000001", ProviderID: "simulated:///sim-1/sim-1a/i-000000000001", Name: "a", Region: "sim-1", Zone: "sim-1a",
			InstanceType: "standard-4", Image: "linux-1", Network: "default", Boot: cloudapi.BootSimulated,
			State: cloudapi.StatePending, PrivateIP: "10.64.0.2", CreatedAt: began, SourceDestCheck: true,
		}
		if diff := cmp.Diff(want, vm); diff != "" {
			t.Errorf("new VM (-want +got):\n%s", diff)
		}
		b.pass(3*time.Second - time.Millisecond)
		if _, _, on := b.host.vm(vm.ID); on {
			t.Error("the VM is on before its boot has ended")
		}
		b.pass(time.Millisecond)
		got, _, on := b.host.vm(vm.ID)
		if !on || got.BootstrapToken != "abcdef.0123456789abcdef" || got.Joined || got.Resumed {
			t.Errorf("after the boot: on=%t %+v; want it on, with its token", on, got)
		}
		if state := b.get(vm.ID).State; state != cloudapi.StateRunning {
			t.Errorf("after the boot: %s, want running", state)
		}
		if state := b.remove(vm.ID).State; state != cloudapi.StateStopping {
			t.Errorf("after the delete: %s, want stopping", state)
		}
		if _, _, on := b.host.vm(vm.ID); on {
			t.Error("the VM was not switched off")
		}
		if diff := cmp.Diff([]time.Duration{10 * time.Second}, b.host.grace); diff != "" {
			t.Errorf("grace (-want +got):\n%s", diff)
		}
		b.pass(10 * time.Second)
		if state := b.remove(vm.ID).State; state != cloudapi.StateTerminated {
			t.Errorf("after the stop: %s, want terminated", state)
		}
		b.pass(time.Hour)
		if code := b.refused(http.MethodGet, path(vm.ID), nil); code != cloudapi.CodeNotFound {
			t.Errorf("after an hour: %s, want it forgotten", code)
		}
	})
}

func TestFaultsOfVMs(t *testing.T) {
	settings := cloudapi.Settings{BootTime: cloudapi.Latency{Mean: seconds(1)}}
	for name, c := range map[string]struct {
		faults cloudapi.VMFaults
		after  time.Duration
		state  cloudapi.InstanceState
		on     bool
		health guest.Health
	}{
		"none":        {after: time.Hour, state: cloudapi.StateRunning, on: true},
		"never joins": {faults: cloudapi.VMFaults{NeverJoin: 1}, after: time.Hour, state: cloudapi.StateRunning},
		"has not joined yet": {
			faults: cloudapi.VMFaults{JoinLate: 1, JoinDelay: seconds(9)}, after: 9 * time.Second, state: cloudapi.StateRunning,
		},
		"has joined late": {
			faults: cloudapi.VMFaults{JoinLate: 1, JoinDelay: seconds(9)}, after: 10 * time.Second, state: cloudapi.StateRunning, on: true,
		},
		"dies": {faults: cloudapi.VMFaults{Die: 1, DieAfter: seconds(9)}, after: 10 * time.Second, state: cloudapi.StateTerminated},
		"loses readiness": {
			faults: cloudapi.VMFaults{LoseReady: 1, LoseReadyAfter: seconds(9)}, after: 10 * time.Second, state: cloudapi.StateRunning, on: true,
			health: guest.NotReady,
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings.VMFaults = c.faults
			inBubble(t, settings, func(b *bubble) {
				vm := b.create(cloudapi.CreateInstanceRequest{Name: "a"})
				b.pass(c.after)
				_, health, on := b.host.vm(vm.ID)
				if on != c.on || health != c.health {
					t.Errorf("on=%t health=%v, want %t %v", on, health, c.on, c.health)
				}
				if state := b.get(vm.ID).State; state != c.state {
					t.Errorf("state %s, want %s", state, c.state)
				}
			})
		})
	}
}

// The fate of the n-th VM depends on the seed and n only.
func TestFateIsRepeatable(t *testing.T) {
	fates := func() string {
		var all strings.Builder
		inBubble(t, cloudapi.Settings{VMFaults: cloudapi.VMFaults{Die: 0.5}, Latency: map[cloudapi.Operation]cloudapi.Latency{
			cloudapi.OpGetInstance: {Mean: milliseconds(1), Spread: milliseconds(1)},
		}}, func(b *bubble) {
			for range 32 {
				vm := b.create(cloudapi.CreateInstanceRequest{Name: "a"})
				b.pass(time.Millisecond)
				all.WriteString(string(b.get(vm.ID).State[0]))
			}
		})
		return all.String()
	}
	first, second := fates(), fates()
	if first != second || !strings.Contains(first, "r") || !strings.Contains(first, "t") {
		t.Errorf("fates %s and %s; want them to be the same, and some of either kind", first, second)
	}
}

func TestActions(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a"})
		b.pass(time.Second)
		for _, c := range []struct {
			action cloudapi.Action
			health guest.Health
			on     bool
		}{
			{cloudapi.ActionLoseReady, guest.NotReady, true},
			{cloudapi.ActionFreeze, guest.Frozen, true},
			{cloudapi.ActionRecover, guest.Healthy, true},
			{cloudapi.ActionDie, guest.Healthy, false},
		} {
			b.act(vm.ID, c.action)
			if _, health, on := b.host.vm(vm.ID); health != c.health || on != c.on {
				t.Errorf("after %s: on=%t health=%v, want %t %v", c.action, on, health, c.on, c.health)
			}
		}
		if state := b.get(vm.ID).State; state != cloudapi.StateTerminated {
			t.Errorf("after its death: %s, want terminated", state)
		}
	})
}

func TestZoneFails(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		inside := b.create(cloudapi.CreateInstanceRequest{Name: "a", Zone: "sim-1b", ClientToken: "a"})
		outside := b.create(cloudapi.CreateInstanceRequest{Name: "b"})
		b.pass(time.Second)
		b.patch(`{"failedZones": ["sim-1b"]}`)
		synctest.Wait()
		if _, health, _ := b.host.vm(inside.ID); health != guest.Frozen {
			t.Errorf("a VM in the zone: health %v, want frozen", health)
		}
		if _, health, _ := b.host.vm(outside.ID); health != guest.Healthy {
			t.Errorf("a VM in another zone: health %v, want healthy", health)
		}
		again := cloudapi.CreateInstanceRequest{Name: "a", Zone: "sim-1b", ClientToken: "a"}
		if got := b.create(again); got.ID != inside.ID {
			t.Errorf("a repeated create returned %s, want %s", got.ID, inside.ID)
		}
		if code := b.refused(http.MethodPost,
			cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "c", Zone: "sim-1b"}); code != cloudapi.CodeNoCapacity {
			t.Errorf("a create in the zone: %s, want %s", code, cloudapi.CodeNoCapacity)
		}
		b.patch(`{"failedZones": null}`)
		synctest.Wait()
		if _, health, _ := b.host.vm(inside.ID); health != guest.Healthy {
			t.Errorf("after the zone came back: health %v, want healthy", health)
		}
	})
}

// Reports of a host are stored, and passed to it after a restart.
func TestRestart(t *testing.T) {
	inBubble(t, cloudapi.Settings{BootTime: cloudapi.Latency{Mean: seconds(10)}}, func(b *bubble) {
		old := b.create(cloudapi.CreateInstanceRequest{
			Name: "old", Tags: map[string]string{"k": "v"}, ClientToken: "old",
			DataVolumes: []cloudapi.DataVolume{{Name: "data", SizeGiB: 1}},
		})
		b.pass(10 * time.Second)
		b.host.cloud.Joined(old.ID, "joined")
		b.act(old.ID, cloudapi.ActionLoseReady)
		before := b.get(old.ID)
		young := b.create(cloudapi.CreateInstanceRequest{Name: "young"})
		b.pass(5 * time.Second)

		b.restart()
		synctest.Wait()
		if diff := cmp.Diff(before, b.get(old.ID)); diff != "" {
			t.Errorf("after the restart (-want +got):\n%s", diff)
		}
		if vm, _, on := b.host.vm(old.ID); !on || !vm.Joined || !vm.Resumed || vm.Health != guest.NotReady {
			t.Errorf("after the restart: on=%t %+v; want it resumed, joined and not ready", on, vm)
		}
		if again := b.create(cloudapi.CreateInstanceRequest{
			Name: "old", Tags: map[string]string{"k": "v"}, ClientToken: "old",
			DataVolumes: []cloudapi.DataVolume{{Name: "data", SizeGiB: 1}},
		}); again.ID != old.ID {
			t.Errorf("the client token is forgotten: %s, want %s", again.ID, old.ID)
		}
		if list := ok[cloudapi.InstanceList](b, http.MethodGet, cloudapi.PathInstances+"?tag=k=v", nil); len(list.Items) != 1 {
			t.Errorf("%d VMs have the tag, want 1", len(list.Items))
		}
		b.pass(5 * time.Second)
		if vm, _, on := b.host.vm(young.ID); !on || vm.Resumed {
			t.Errorf("a VM that booted during the restart: on=%t resumed=%t, want true, false", on, vm.Resumed)
		}
		if next := b.create(cloudapi.CreateInstanceRequest{Name: "next"}); next.ID <= young.ID {
			t.Errorf("the next VM is %s, after %s", next.ID, young.ID)
		}
		b.remove(old.ID)
		if volumes := ok[cloudapi.VolumeList](b, http.MethodGet, cloudapi.PathVolumes, nil); len(volumes.Items) != 0 {
			t.Errorf("%d volumes are left of the VM", len(volumes.Items))
		}
	})
}

// A VM with a kubelet boots with its user data, also when the cloud was restarted meanwhile. Of
// that of other VMs only the token is kept.
func TestUserData(t *testing.T) {
	inBubble(t, cloudapi.Settings{BootTime: cloudapi.Latency{Mean: seconds(10)}}, func(b *bubble) {
		kubelets := &recorder{on: map[string]guest.VM{}, health: map[string]guest.Health{}, volumes: map[string][]string{}}
		b.end()
		b.cfg.Hosts[cloudapi.BootKubelet], b.cfg.KubeletNetwork = kubelets, netip.MustParsePrefix("127.40.3.0/24")
		b.start()
		const userData = "#cloud-config\n# a very long text\n"
		kubelet := b.create(cloudapi.CreateInstanceRequest{Name: "a", Boot: cloudapi.BootKubelet, UserData: []byte(userData)})
		simulated := b.create(cloudapi.CreateInstanceRequest{Name: "b", UserData: []byte(userData)})
		b.restart()
		b.pass(10 * time.Second)
		if vm, _, on := kubelets.vm(kubelet.ID); !on || string(vm.UserData) != userData {
			t.Errorf("on=%t, user data %q", on, vm.UserData)
		}
		if vm, _, on := b.host.vm(simulated.ID); !on || vm.UserData != nil {
			t.Errorf("a simulated VM: on=%t, user data %q; want none", on, vm.UserData)
		}
	})
}

func TestSettingsSurvive(t *testing.T) {
	start := cloudapi.Settings{BootTime: cloudapi.Latency{Mean: seconds(1)}}
	inBubble(t, start, func(b *bubble) {
		b.patch(`{"bootTime": {"mean": "2s"}, "faults": [{"kind": "internal", "rate": 0}]}`)
		current := func() time.Duration {
			return time.Duration(ok[cloudapi.Settings](b, http.MethodGet, cloudapi.PathSettings, nil).BootTime.Mean)
		}
		b.restart()
		if got := current(); got != 2*time.Second {
			t.Errorf("after a restart: boot time %v, want 2s", got)
		}
		b.cfg.Settings.BootTime.Mean = seconds(3)
		b.restart()
		if got := current(); got != 3*time.Second {
			t.Errorf("after a restart with other settings: boot time %v, want 3s", got)
		}
		for _, bad := range []string{
			`{"faults": [{"kind": "bad luck"}]}`, `{"failedZones": ["moon"]}`, `{"vmFaults": {"die": 2}}`, `{"bootTime": {"mean": "-1s"}}`,
			`{"speed": 1}`, `[]`, `{"latency": {"Fly": {"mean": "1s"}}}`,
		} {
			if code := b.refused(http.MethodPatch, cloudapi.PathSettings, []byte(nil)); code != cloudapi.CodeInvalidParameter {
				t.Errorf("empty patch: %s", code)
			}
			if status, _, answer := b.sendRaw(http.MethodPatch, cloudapi.PathSettings, bad); status != http.StatusBadRequest {
				t.Errorf("patch %s: %d %s, want 400", bad, status, answer)
			}
		}
	})
}
