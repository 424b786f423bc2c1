package cloudsim_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func (b *bubble) volume(name string) cloudapi.Volume {
	b.t.Helper()
	return ok[cloudapi.Volume](b, http.MethodPost, cloudapi.PathVolumes, cloudapi.CreateVolumeRequest{Name: name, SizeGiB: 1})
}

func (b *bubble) attach(v cloudapi.Volume, vm cloudapi.Instance) {
	b.t.Helper()
	ok[cloudapi.Volume](b, http.MethodPut, cloudapi.PathVolumes+"/"+v.ID+"/attachment", cloudapi.AttachVolumeRequest{InstanceID: vm.ID})
}

// expectAt checks the VM that a volume is attached to.
func (b *bubble) expectAt(when string, v cloudapi.Volume, vm string) {
	b.t.Helper()
	synctest.Wait()
	if got := ok[cloudapi.Volume](b, http.MethodGet, cloudapi.PathVolumes+"/"+v.ID, nil).AttachedTo; got != vm {
		b.t.Errorf("%s: attached to %q, want %q", when, got, vm)
	}
}

// The host of a VM is notified of its volumes when they change, when the VM boots, and when the
// cloud restarts.
func TestHostsAreNotifiedOfVolumes(t *testing.T) {
	inBubble(t, cloudapi.Settings{BootTime: cloudapi.Latency{Mean: seconds(1)}}, func(b *bubble) {
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a", DataVolumes: []cloudapi.DataVolume{{Name: "own", SizeGiB: 1}}})
		early, late := b.volume("early"), b.volume("late")
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, b.host.seen(vm.ID)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		own := vm.VolumeIDs[0]
		b.attach(early, vm)
		b.pass(2 * time.Second)
		expect("after the boot", early.ID, own)
		b.attach(late, vm)
		expect("after an attach", early.ID, own, late.ID)
		ok[cloudapi.Volume](b, http.MethodDelete, cloudapi.PathVolumes+"/"+early.ID+"/attachment", nil)
		expect("after a detach", own, late.ID)
		b.restart()
		expect("after a restart", own, late.ID)
	})
}

// The volumes of a VM that ends are released when nothing of it runs any more, and not before,
// regardless of requests and restarts of the cloud.
func TestVolumesOfAVMThatEnds(t *testing.T) {
	for name, end := range map[string]func(b *bubble, vm cloudapi.Instance){
		"deleted": func(b *bubble, vm cloudapi.Instance) { b.remove(vm.ID) },
		"dead":    func(b *bubble, vm cloudapi.Instance) { b.act(vm.ID, cloudapi.ActionDie) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, cloudapi.Settings{StopTime: cloudapi.Latency{Mean: seconds(10)}, ForgetAfter: seconds(1)}, func(b *bubble) {
				vm, other := b.create(cloudapi.CreateInstanceRequest{Name: "a"}), b.create(cloudapi.CreateInstanceRequest{Name: "b"})
				v := b.volume("v")
				b.attach(v, vm)
				b.pass(time.Second)
				b.host.linger()
				end(b, vm)
				attachment := cloudapi.PathVolumes + "/" + v.ID + "/attachment"
				bound := func(when string) {
					t.Helper()
					b.expectAt(when, v, vm.ID)
					if code := b.refused(http.MethodDelete, attachment, nil); code != cloudapi.CodeConflict {
						t.Errorf("%s: detach: %s, want %s", when, code, cloudapi.CodeConflict)
					}
					if code := b.refused(http.MethodPut, attachment, cloudapi.AttachVolumeRequest{InstanceID: other.ID}); code != cloudapi.CodeConflict {
						t.Errorf("%s: attach elsewhere: %s, want %s", when, code, cloudapi.CodeConflict)
					}
				}
				bound("while it stops")
				b.pass(time.Hour)
				bound("while it lingers")
				b.restart()
				bound("after a restart")
				b.host.release(vm.ID)
				b.expectAt("when nothing runs any more", v, "")
				b.attach(v, other)
				b.expectAt("afterwards", v, other.ID)
			})
		})
	}
}

// A volume has a folder as long as it exists.
func TestContents(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		expect := func(when string, want ...string) {
			t.Helper()
			entries, err := os.ReadDir(filepath.Join(b.cfg.StateDir, cloudsim.VolumesFolder))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		v := b.volume("v")
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a", DataVolumes: []cloudapi.DataVolume{{Name: "own", SizeGiB: 1}}})
		expect("created", v.ID, vm.VolumeIDs[0])
		file := filepath.Join(b.cfg.StateDir, cloudsim.VolumesFolder, v.ID, "file")
		if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		// The state after the cloud was killed while it removed one and created another.
		if err := os.MkdirAll(filepath.Join(b.cfg.StateDir, cloudsim.VolumesFolder, "vol-none", "folder"), 0o700); err != nil {
			t.Fatal(err)
		}
		b.restart()
		expect("after a restart", v.ID, vm.VolumeIDs[0])
		if data, err := os.ReadFile(file); err != nil || string(data) != "data" {
			t.Errorf("the contents are %q, %v", data, err)
		}
		b.remove(vm.ID)
		expect("without the VM", v.ID)
		ok[cloudapi.Volume](b, http.MethodDelete, cloudapi.PathVolumes+"/"+v.ID, nil)
		expect("without the volume")
	})
}
