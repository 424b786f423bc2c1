package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"
)

var (
	// templates are the kinds and the template of a command of a runbook that reads conditions.
	templates = regexp.MustCompile(`kubectl get (\S+) .*go-template='([^']*)'`)
	condition = regexp.MustCompile(`eq \.type "(\w+)"`)
	reason    = regexp.MustCompile(`eq \.reason "(\w+)"`)
)

// TestRunbooksShowConditionsOfAllKinds: MachineSets have MCM's field machineSetCondition, and
// conditions next to it where the definitions are the fleet's.
func TestRunbooksShowConditionsOfAllKinds(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range templates.FindAllStringSubmatch(string(text), -1) {
			found++
			parsed, err := template.New(page).Parse(command[2])
			if err != nil {
				t.Fatal(err)
			}
			why := "Why"
			if only := reason.FindStringSubmatch(command[2]); only != nil {
				why = only[1]
			}
			reported := []any{map[string]any{"type": "Other"}, map[string]any{
				"type": condition.FindStringSubmatch(command[2])[1], "status": "True", "reason": why, "message": "m",
			}}
			object := func(name string, status map[string]any) any {
				return map[string]any{"metadata": map[string]any{"namespace": "n", "name": name}, "status": status}
			}
			var out strings.Builder
			if err := parsed.Execute(&out, map[string]any{"items": []any{
				object("d", map[string]any{"conditions": reported}), object("set-of-mcm", map[string]any{"machineSetCondition": reported}),
				object("set", map[string]any{"conditions": reported, "machineSetCondition": reported}), object("new", nil),
			}}); err != nil {
				t.Fatal(err)
			}
			want := []string{"n/d "}
			if strings.Contains(command[1], "mcs") {
				want = append(want, "n/set-of-mcm ", "n/set ")
			}
			for _, name := range want {
				if strings.Count(out.String(), name) != 1 {
					t.Errorf("%s: want %q once, got\n%s", page, name, out.String())
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d commands read conditions, want at least 5", found)
	}
}
