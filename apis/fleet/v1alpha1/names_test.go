package v1alpha1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names are an interface with daemons, also of other projects.
func TestAnnotationPrefix(t *testing.T) {
	p := DaemonPrefix
	for got, want := range map[string]string{
		p.CurrentConfig(): "currentConfig", p.DesiredConfig(): "desiredConfig", p.State(): "state", p.Reason(): "reason",
		p.DesiredDrain(): "desiredDrain", p.LastAppliedDrain(): "lastAppliedDrain",
	} {
		if got != "machine-config-daemon.v1.openshift.com/"+want {
			t.Errorf("%s, want the suffix %s", got, want)
		}
	}
	if got := AnnotationPrefix("machineconfiguration.openshift.io").State(); got != "machineconfiguration.openshift.io/state" {
		t.Error(got)
	}
}

func TestParseNodeState(t *testing.T) {
	for value, want := range map[string]NodeState{
		"done": StateDone, "Done": StateDone, "WORKING": StateWorking, "Degraded": StateDegraded, "unreconcilable": StateUnreconcilable,
		"": StateNone, "finished": StateNone, "\x20done": StateNone, strings.Repeat("done", 1<<16): StateNone,
	} {
		if got := ParseNodeState(value); got != want {
			t.Errorf("%.20q: %q, want %q", value, got, want)
		}
	}
}

// The name is stored on Nodes: it must not change with a version of the fleet.
func TestRenderedNameIsFrozen(t *testing.T) {
	spec := &RenderedMachineConfigSpec{MachineConfigSpec: MachineConfigSpec{KernelArguments: []string{"quiet"}, KernelType: KernelDefault}}
	spec.Config.Raw = []byte(`{"ignition": {"version": "3.5.0"}, "systemd": {"units": [{"name": "a.service", "enabled": true}]}}`)
	name, err := RenderedName("workers", spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := "rendered-workers-6f341cb8e0a1570f562038eda7416354"; name != want {
		t.Errorf("got %s, want %s", name, want)
	}
	spec.Config.Raw = []byte(`{"systemd":{"units":[{"enabled":true,"name":"a.service"}]},"ignition":{"version":"3.5.0"}}`)
	if again, err := RenderedName("workers", spec); err != nil || again != name {
		t.Errorf("written in another way it is %s (%v)", again, err)
	}
	if other, err := RenderedName("masters", spec); err != nil || other == name {
		t.Errorf("for another pool it is %s (%v)", other, err)
	}
}

func TestVerify(t *testing.T) {
	spec := RenderedMachineConfigSpec{Actions: []ActionRule{{Path: "/etc/motd", Action: ActionNone}}}
	name, err := RenderedName("a-b", &spec)
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]bool{
		name: true, strings.Replace(name, "a-b", "a-c", 1): true, // the pool is a part of the name, not of the content
		name[:len(name)-1]: false, name + "0": false, strings.TrimPrefix(name, "rendered-"): false, "": false, "-": false, "rendered-": false,
	} {
		r := &RenderedMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: given}, Spec: spec}
		if got := r.Verify(); got != want {
			t.Errorf("%s: %t, want %t", given, got, want)
		}
	}
	broken := &RenderedMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	for _, raw := range []string{"{", "{} {}", `{"ignition":{}}`} {
		broken.Spec.Config.Raw = []byte(raw)
		if broken.Verify() {
			t.Errorf("content %s verifies", raw)
		}
	}
}

// FuzzRenderedName reads any bytes as an Ignition config: the name is that of the content, however
// it is written.
func FuzzRenderedName(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `{"a":1e400,"b":[1.0,"<>&\u2028"]}`, `{"a":1,"a":2}`, `[`, `{} x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		r := &RenderedMachineConfig{}
		r.Spec.Config.Raw = document
		name, err := RenderedName("p", &r.Spec)
		if r.Name = name; (err == nil) != r.Verify() {
			t.Fatalf("name %q (%v), verifies: %t", name, err, r.Verify())
		}
		if err != nil || len(document) == 0 {
			return
		}
		r.Spec.Config.Raw, err = canonicalJSON(document)
		if err != nil || !r.Verify() {
			t.Fatalf("written anew (%v): %s", err, r.Spec.Config.Raw)
		}
	})
}
