package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func TestClassProblem(t *testing.T) {
	onBench(t, func(b *bench) {
		expect := func(when, name, want string) {
			b.Helper()
			b.pass(time.Minute) // what was read of Secrets is forgotten
			got, err := b.process.ClassProblem(b.Context(), types.NamespacedName{Namespace: "n", Name: name})
			if err != nil || !strings.HasPrefix(got, want) || (got == "") != (want == "") {
				b.Errorf("%s: got %q, %v, want %q", when, got, err, want)
			}
		}
		expectError := func(when string) {
			b.Helper()
			b.pass(time.Minute)
			if got, err := b.process.ClassProblem(b.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err == nil {
				b.Errorf("%s: got %q, want an error", when, got)
			}
		}
		expect("a class that works", "c", "")
		expect("no class", "d", `MachineClass "d" does not exist in namespace "n"`)
		b.patchClass(`{"provider":"other"}`)
		expect("an unknown provider", "c", `MachineClass "c": `)
		b.patchClass(`{"provider":"` + testProvider + `","nodeTemplate":{"capacity":{"cpu":"1","gpu":"0","memory":"1Gi"}}}`)
		expect("an invalid class", "c", `MachineClass "c" is invalid: [nodeTemplate.instanceType`)
		b.patchClass(`{"nodeTemplate":null,"providerSpec":{"encryptionAtHost":true}}`)
		expect("a field that concerns security", "c", `no VM is created from MachineClass "c", because its driver would ignore fields`)
		if note, _ := b.unknownFields(); note != "encryptionAtHost" {
			b.Errorf("the class records the unknown fields %q", note)
		}
		b.patchClass(`{"providerSpec":null}`)
		cloud := &mute{b.cloud.Driver(), driver.Errorf(driver.OpFields, driver.InvalidArgument, "size is no number")}
		b.rewire = func(w *wires) { w.cloud = cloud }
		b.takeOver(0)
		expect("a wrong provider spec", "c",
			"Cloud provider message - machine codes error: code = [InvalidArgument] message = [size is no number]")
		cloud.err = driver.Errorf(driver.OpFields, driver.Unavailable, "no process")
		expectError("a driver that is away")
		cloud.err = driver.Errorf(driver.OpFields, driver.DeadlineExceeded, "hangs")
		expectError("a driver that hangs")
		cloud.err = nil
		b.server.Merge("secrets", "n", "s", `{"data":null}`)
		expect("no user data", "c", `the secrets of MachineClass "c" have no key "userData"`)
		b.server.Remove("secrets", "n", "s")
		expect("no Secret", "c", `Secret "s", which MachineClass "c" names, does not exist`)
		b.patchClass(`{"secretRef":{"namespace":"other"}}`)
		expect("a Secret of another namespace", "c", `MachineClass "c" may not use Secret "other/s"`)
		b.server.Refuse("get secrets", errors.New("away"))
		b.patchClass(`{"secretRef":{"namespace":"n"}}`)
		expectError("a Secret that cannot be read")
		for _, op := range []driver.Op{driver.OpCreate, driver.OpStatus} {
			if calls := b.cloud.Calls(op); len(calls) > 0 {
				b.Errorf("%d calls of %s", len(calls), op)
			}
		}
	})
}
