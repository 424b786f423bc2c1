package vm

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// parse parses a command line of `lab vm`.
func parse(args ...string) (*Config, error) {
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var c Config
	c.Bind(flags)
	return &c, flags.Parse(args)
}

// complete is a command line with all that is needed, and the files that it names.
func complete(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"volumes/vol-1", "attached", "images"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"kubeconfig": "K", "ca": "CA", "volumes/vol-1/file": "V", "attached/vol-1": "", "images/app": "I",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{
		"--dir=" + filepath.Join(dir, "disk"), "--name=vm-0", "--provider-id=simulated:///r/z/vm-0", "--node-ip=127.0.0.1", "--port=10250",
		"--health-port=10248", "--cpu=4", "--memory-mib=8192", "--labels=a=b,c/d=e", "--forced-env=HOST=127.0.0.1,EMPTY=",
		"--volumes=" + filepath.Join(dir, "volumes"), "--attached=" + filepath.Join(dir, "attached"),
		"--bootstrap-kubeconfig=" + filepath.Join(dir, "kubeconfig"), "--client-ca-file=" + filepath.Join(dir, "ca"),
		"--images=" + filepath.Join(dir, "images"),
	}
}

// The configuration of the command line is available inside.
func TestDisk(t *testing.T) {
	userData := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(userData, []byte("U"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := parse(append(complete(t), "--daemon=/daemon", "--daemon-flags=--drift=repair,--v=2", "--user-data="+userData)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // The second time is like a reboot.
		if err := c.writeDisk(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadConfig(filepath.Join(c.Dir, "kubelet", "machine.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Dir: c.Dir, Name: "vm-0", ProviderID: "simulated:///r/z/vm-0", NodeIP: "127.0.0.1", Port: 10250, HealthPort: 10248, CPU: 4,
		MemoryMiB: 8192, Labels: map[string]string{"a": "b", "c/d": "e"}, ForcedEnv: map[string]string{"HOST": "127.0.0.1", "EMPTY": ""},
		Daemon: "/daemon", DaemonFlags: []string{"--drift=repair", "--v=2"}, Images: filepath.Join(filepath.Dir(c.Dir), "images"),
		Volumes: filepath.Join(filepath.Dir(c.Dir), "volumes"), Attached: filepath.Join(filepath.Dir(c.Dir), "attached"),
	}
	if id := got.InstanceID(); id != "vm-0" {
		t.Errorf("the cloud's ID is %q, want vm-0", id)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"bootstrap.kubeconfig": "K", "client-ca.crt": "CA", "user-data": "U"} {
		if data, err := os.ReadFile(filepath.Join(c.Dir, "kubelet", name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v; want %q", name, data, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		flag string
		want string
	}{
		"no name":         {"--name=", "--name"},
		"no disk":         {"--dir=", "--dir"},
		"no address":      {"--node-ip=localhost", "--node-ip"},
		"port too high":   {"--port=65536", "--port"},
		"no health port":  {"--health-port=0", "--health-port"},
		"no cores":        {"--cpu=0", "--cpu"},
		"negative memory": {"--memory-mib=-1", "--memory-mib"},
		"half of volumes": {"--attached=", "--attached"},
		"broken labels":   {"--labels=a=b,c", "labels"},
		"nameless env":    {"--forced-env==x", "forced-env"},
		"no kubeconfig":   {"--bootstrap-kubeconfig=/does/not/exist", "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parse(append(complete(t), test.flag)...)
			if err == nil {
				err = c.Validate()
			}
			if err == nil {
				err = c.writeDisk()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one about %s", err, test.want)
			}
		})
	}
}

func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a=b,c=d=e", ",,", "=", "a", "a=b,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got map[string]string
		if err := pairs(&got)(text); err != nil {
			return
		}
		for key, value := range got {
			if key == "" || !strings.Contains(","+text+",", ","+key+"="+value+",") {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}
