package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIndexHasOneLineForEachAlert(t *testing.T) {
	dir := t.TempDir()
	source, index := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "README.md")
	text := `
groups:
- name: g
  rules:
  - {record: job:a, expr: b}
  - {alert: A, expr: a, for: 5m, labels: {severity: warning}, annotations: {summary: 'Replica {{ $labels.pod }} waits',
    runbook_url: https://example.org/docs/A.md}}
  - {alert: B, expr: b, labels: {severity: critical}, annotations: {summary: b, runbook_url: https://example.org/docs/B.md}}
  - {alert: B, expr: b, labels: {severity: warning}, annotations: {summary: b, runbook_url: https://example.org/docs/B.md}}
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeIndex(index, source); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	want := "| [A](A.md) | warning | 5m | Replica *pod* waits |\n| [B](B.md) | critical, warning | at once | b |\n"
	if !strings.HasSuffix(string(got), "|---|---|---|---|\n"+want) {
		t.Errorf("want a list that ends with\n%sgot\n%s", want, got)
	}
}
