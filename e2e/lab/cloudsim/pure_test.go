package cloudsim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestFindBootstrapToken(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	for userData, want := range map[string]string{
		"":                                      "",
		"#!/bin/sh\nno token here\n":            "",
		token:                                   token,
		"--token " + token + " --x":             token,
		"token: \"" + token + "\"\n":            token,
		"token%3D" + token + "%0A":              token,
		"xabcdef.0123456789abcdef":              "",
		"abcdef.0123456789abcdef0":              "",
		"ABCDEF.0123456789ABCDEF":               "",
		"aaaaaa.b\n" + token:                    token,
		token + "," + "zzzzzz.0000000000000000": token,
	} {
		if got := findBootstrapToken([]byte(userData)); got != want {
			t.Errorf("findBootstrapToken(%q) = %q, want %q", userData, got, want)
		}
	}
}

func TestFindServer(t *testing.T) {
	for userData, want := range map[string]string{
		"": "", "curl https://example.org/kubelet": "", "server: http://plain": "", "observer: https://a": "",
		"clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n": "https://127.0.0.1:6443",
		`{"cluster":{server: "https://a.example:1", "x": 1}}`:         "https://a.example:1", "server: https://a\nserver: https://b": "https://a",
	} {
		if got := findServer([]byte(userData)); got != want {
			t.Errorf("findServer(%q) = %q, want %q", userData, got, want)
		}
	}
}

// User data may be large, and records of VMs stay for a while.
func TestEndForgetsUserData(t *testing.T) {
	i := &instance{UserData: []byte("x")}
	if i.end(time.Time{}, "test"); i.UserData != nil {
		t.Errorf("a VM that has ended has the user data %q", i.UserData)
	}
}

func FuzzFindBootstrapToken(f *testing.F) {
	f.Add([]byte("x"), []byte("abcdef.0123456789abcdef"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		const token = "abcdef.0123456789abcdef"
		found := findBootstrapToken(append(append(append([]byte{}, before...), "\n"+token+"\n"...), after...))
		if len(found) != len(token) || found[6] != '.' {
			t.Errorf("found %q", found)
		}
	})
}

func TestAddress(t *testing.T) {
	network := cloudapi.Network{CIDR: "10.64.0.0/12"}
	for n, want := range map[uint64]string{
		0: "10.64.0.1", 1: "10.64.0.2", 254: "10.64.0.255", 255: "10.64.1.0", 1<<20 - 3: "10.79.255.254", 1<<20 - 2: "10.64.0.1",
	} {
		if got, err := address(network, n); err != nil || got != want {
			t.Errorf("address %d = %s, %v, want %s", n, got, err, want)
		}
	}
	if _, err := address(cloudapi.Network{CIDR: "nonsense"}, 1); err == nil {
		t.Error("a network without a CIDR has addresses")
	}
}

// An incomplete line of a killed cloud does not corrupt the next line.
func TestIncompleteLineOfCallLogIsRemoved(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"whole":          {"{}\n{}\n", "{}\n{}\n"},
		"half a line":    {"{}\n{\"id\":", "{}\n"},
		"only half":      {"{\"id\":", ""},
		"empty":          {"", ""},
		"half and large": {"{}\n" + strings.Repeat("x", 10_000), "{}\n"},
	} {
		path := filepath.Join(t.TempDir(), "calls.jsonl")
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := openCallLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.close(); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != c.after {
			t.Errorf("%s: %q, %v; want %q", name, after, err, c.after)
		}
	}
}

// Only one cloud may open a state.
func TestStateIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	first, err := openStore(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.close() }()
	if second, err := openStore(path); err == nil {
		_ = second.close()
		t.Error("two clouds use one state")
	}
}

func FuzzMergeSettings(f *testing.F) {
	f.Add([]byte(`{"bootTime": {"mean": "2s"}}`))
	f.Add([]byte(`{"faults": [{"kind": "internal", "rate": 0.5}], "latency": null}`))
	f.Fuzz(func(_ *testing.T, patch []byte) {
		merged, err := mergeSettings(DefaultSettings(), patch)
		if err == nil {
			_ = validate(merged, newCatalog())
		}
	})
}
