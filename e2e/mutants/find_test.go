package main

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// sample has a place for each operator.
const sample = `package sample

func (r *Replica) decide(now, at int) bool {
	if r.held && !r.busy || now < at {
		r.ask(request{Need: member.NeedFence})
	}
	switch {
	case r.gone:
		r.step, r.again = now, max(now, at)
	}
	r.count = len(r.all)
	r.again = at.Add(second)
	if r.open {
		r.count++
	}
	r.mu.Lock()
	if err != nil {
		return false
	}
	return r.ok(now)
}
`

func numbers() func() int {
	n := 0
	return func() int { n++; return n }
}

func found(t *testing.T, source string) []*mutant {
	t.Helper()
	mutants, err := findIn("a/b/sample.go", "", source, map[string]int{}, numbers())
	if err != nil {
		t.Fatal(err)
	}
	return mutants
}

func TestOperators(t *testing.T) {
	count := map[string]int{}
	for _, m := range found(t, sample) {
		parts := strings.Split(m.id, "/")
		count[parts[len(parts)-2]]++
		if !strings.HasPrefix(m.id, "a/b.Replica.decide/") {
			t.Errorf("ID %s: want package and function in it", m.id)
		}
	}
	for operator, want := range map[string]int{
		"if-never": 2, "always": 1, "case-never": 1, "and": 2, "or": 2, "boundary": 1, "weaker": 1, "keep": 2, "operand": 2, "assign": 3,
		"call": 1, "wait": 1, "true": 1, "false": 1,
	} {
		if count[operator] != want {
			t.Errorf("%s: want %d mutants, got %d", operator, want, count[operator])
		}
	}
}

func TestIDsStayWhenOtherLinesChange(t *testing.T) {
	moved := strings.Replace(sample, "	r.mu.Lock()\n", "\n\n	r.mu.Lock()\n	r.other(1)\n", 1)
	after := map[string]bool{}
	for _, m := range found(t, moved) {
		after[m.id] = true
	}
	for _, m := range found(t, sample) {
		if !after[m.id] {
			t.Errorf("%s has gone: %s", m.id, m.change)
		}
	}
}

func TestMutantsAreGoOnTheLinesOfTheSource(t *testing.T) {
	mutants := found(t, sample)
	text, spans := rendered(sample, mutants)
	text, spans = withImport(text, spans)
	if _, err := parser.ParseFile(token.NewFileSet(), "sample.go", text, parser.AllErrors); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got, want := strings.Count(text, "\n"), strings.Count(sample, "\n"); got != want {
		t.Errorf("want %d lines, got %d", want, got)
	}
	for _, m := range mutants {
		if span := spans[m]; !strings.Contains(text[span[0]:span[1]], "mutant_.") {
			t.Errorf("%s: want a mutant at %v, got %q", m.id, span, text[span[0]:span[1]])
		}
	}
}
