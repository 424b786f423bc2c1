package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCostsOfAGraph(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fleet.json")
	graph := `[
		{"Mode":"build","Package":"net/http","Cmd":["compile"],"CmdUser":2000000000,"CmdSys":1000000000},
		{"Mode":"build","Package":"k8s.io/kubernetes/pkg/scheduler","Cmd":["compile"],"CmdUser":4000000000},
		{"Mode":"build","Package":"k8s.io/kubernetes/pkg/apis/core","Cmd":["compile"],"CmdUser":5000000000},
		{"Mode":"build","Package":"k8s.io/api/core/v1","CmdUser":0},
		{"Mode":"link","Package":"k8s.io/kubernetes/cmd","Cmd":["link"],"CmdUser":6000000000}
	]`
	if err := os.WriteFile(name, []byte(graph), 0o600); err != nil {
		t.Fatal(err)
	}
	costs, err := read(name)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := write(&text, []string{name}, []map[string]cost{costs}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(text.String()) {
		if fields := strings.Join(strings.Fields(line), " "); !strings.HasSuffix(fields, " 0 s (0)") {
			got = append(got, fields)
		}
	}
	want := []string{"fleet.json", "all 18 s (4)", "standard library 3 s (1)", "scheduler 4 s (1)", "API server 5 s (1)", "linking 6 s (1)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if _, err := read(name + ".missing"); err == nil {
		t.Error("want an error for a file that does not exist")
	}
}
