package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one change of the code that weakens a rule.
type mutant struct {
	id     string
	file   string
	change string
	// number selects it in the binary.
	number int
	edits  []edit
}

// pkg is the folder of the mutated package.
func (m *mutant) pkg() string { return path.Dir(m.file) }

// edit is an insertion, or the replacement of a token, in the source of a file.
type edit struct {
	offset, length int
	text           string
	// outer is the length of the node that is wrapped: of two insertions at one offset, that of the
	// larger node is outside.
	outer   int
	closing bool
}

// finder finds the mutants of one file.
type finder struct {
	fset     *token.FileSet
	source   string
	file     string
	pkg      string
	function string
	found    []*mutant
	same     map[string]int
	next     func() int
}

// find returns the mutants of the files in the order of their source.
func find(root string, files []string, next func() int) (found []*mutant, err error) {
	same := map[string]int{}
	for _, name := range files {
		name, function, _ := strings.Cut(name, ":")
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("read the code to mutate: %w", err)
		}
		ms, err := findIn(name, function, string(source), same, next)
		if err != nil {
			return nil, err
		}
		found = append(found, ms...)
	}
	return found, nil
}

// findIn finds the mutants of a file, or of one function of it.
func findIn(name, only, source string, same map[string]int, next func() int) ([]*mutant, error) {
	f := &finder{fset: token.NewFileSet(), source: source, file: name, same: same, next: next}
	syntax, err := parser.ParseFile(f.fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse the code to mutate: %w", err)
	}
	f.pkg = path.Dir(name)
	for _, decl := range syntax.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Body != nil {
			f.function = functionName(function)
			if only == "" || only == f.function {
				f.inBody(function)
			}
		}
	}
	return f.found, nil
}

func functionName(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	of := function.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "." + function.Name.Name
	}
	return function.Name.Name
}

func (f *finder) offset(p token.Pos) int     { return f.fset.Position(p).Offset }
func (f *finder) text(n ast.Node) string     { return f.source[f.offset(n.Pos()):f.offset(n.End())] }
func (f *finder) span(n ast.Node) (a, b int) { return f.offset(n.Pos()), f.offset(n.End()) }
func oneLine(text string) string             { return strings.Join(strings.Fields(text), " ") }
func shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// add records a mutant that is named by an operator and the source that it changes.
func (f *finder) add(operator, change, source string, edits ...edit) {
	source = oneLine(source)
	sum := sha256.Sum256([]byte(source))
	id := fmt.Sprintf("%s.%s/%s/%s", f.pkg, f.function, operator, hex.EncodeToString(sum[:])[:6])
	f.same[id]++
	if n := f.same[id]; n > 1 {
		id = fmt.Sprintf("%s.%d", id, n)
	}
	number := f.next()
	for i := range edits {
		edits[i].text = strings.ReplaceAll(edits[i].text, "#", fmt.Sprint(number))
	}
	f.found = append(f.found, &mutant{id: id, file: f.file, change: change, number: number, edits: edits})
}

// wrap surrounds a node with text; # is the number of the mutant.
func (f *finder) wrap(n ast.Node, before, after string) []edit {
	a, b := f.span(n)
	return []edit{{offset: a, text: before, outer: b - a}, {offset: b, text: after, outer: b - a, closing: true}}
}

// rendered returns the source with all mutants in it, and where in it each of them stands.
func rendered(source string, mutants []*mutant) (text string, spans map[*mutant][2]int) {
	type owned struct {
		edit
		of    *mutant
		order int
	}
	var edits []owned
	for i, m := range mutants {
		for _, e := range m.edits {
			edits = append(edits, owned{e, m, i})
		}
	}
	slices.SortStableFunc(edits, func(a, b owned) int {
		switch {
		case a.offset != b.offset:
			return a.offset - b.offset
		case a.closing != b.closing: // closing edits precede opening ones
			if a.closing {
				return -1
			}
			return 1
		case a.outer != b.outer && a.closing:
			return a.outer - b.outer
		case a.outer != b.outer:
			return b.outer - a.outer
		case a.closing:
			return b.order - a.order
		}
		return a.order - b.order
	})
	spans = map[*mutant][2]int{}
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(source[at:e.offset])
		at = e.offset + e.length
		begin := out.Len()
		out.WriteString(e.text)
		span, known := spans[e.of]
		if !known {
			span[0] = begin
		}
		span[1] = out.Len()
		spans[e.of] = span
	}
	out.WriteString(source[at:])
	return out.String(), spans
}
