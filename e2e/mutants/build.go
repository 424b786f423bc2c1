package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the repository's module.
const module = "github.com/machine-controller-fleet/machine-controller-fleet"

// compileError is a position in a message of the compiler.
var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):(\d+): `)

// workshop builds test binaries with all mutants in them.
type workshop struct {
	root, dir string
	mutants   []*mutant
	overlay   string
}

// prepare writes the overlay, and drops mutants until the mutated packages compile. The remaining
// mutants are in w.mutants.
func (w *workshop) prepare(ctx context.Context) (dropped []*mutant, err error) {
	for range 200 {
		spans, err := w.writeOverlay()
		if err != nil {
			return nil, err
		}
		args := []string{"build", "-gcflags=-e", "-overlay", w.overlay}
		for _, m := range w.mutants {
			if p := "./" + m.pkg(); !slices.Contains(args, p) {
				args = append(args, p)
			}
		}
		output, err := w.goTool(ctx, args...)
		if err == nil {
			return dropped, nil
		}
		bad := w.culprits(output, spans)
		if len(bad) == 0 {
			return nil, fmt.Errorf("build the mutants: %w\n%s", err, output)
		}
		dropped = append(dropped, bad...)
		w.mutants = slices.DeleteFunc(w.mutants, func(m *mutant) bool { return slices.Contains(bad, m) })
	}
	return nil, fmt.Errorf("build the mutants: expected fewer than 200 rounds of compiling")
}

func (w *workshop) goTool(ctx context.Context, args ...string) (output string, err error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = w.root
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err = command.Run()
	return out.String(), err
}

// writeOverlay writes the mutated files and returns the positions of the mutants in each, by its
// path and line.
func (w *workshop) writeOverlay() (spans map[string]map[*mutant][2]int, err error) {
	spans = map[string]map[*mutant][2]int{}
	replace := map[string]string{}
	put := func(name, text string) error {
		target := filepath.Join(w.dir, "overlay", strings.ReplaceAll(name, "/", "~"))
		replace[filepath.Join(w.root, name)] = target
		if old, err := os.ReadFile(target); err == nil && string(old) == text {
			return nil
		}
		return os.WriteFile(target, []byte(text), 0o644)
	}
	if err := os.MkdirAll(filepath.Join(w.dir, "overlay"), 0o755); err != nil {
		return nil, fmt.Errorf("create the folder of the overlay: %w", err)
	}
	if err := put(switchPackage+"/switched.go", switchSource); err != nil {
		return nil, fmt.Errorf("write the overlay: %w", err)
	}
	byFile := map[string][]*mutant{}
	for _, m := range w.mutants {
		byFile[m.file] = append(byFile[m.file], m)
	}
	for name, mutants := range byFile {
		source, err := os.ReadFile(filepath.Join(w.root, name))
		if err != nil {
			return nil, fmt.Errorf("read what is mutated: %w", err)
		}
		text, at := rendered(string(source), mutants)
		text, at = withImport(text, at)
		spans[name] = linesOf(text, at)
		if err := put(name, text); err != nil {
			return nil, fmt.Errorf("write the overlay: %w", err)
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, fmt.Errorf("encode the overlay: %w", err)
	}
	w.overlay = filepath.Join(w.dir, "overlay.json")
	if err := os.WriteFile(w.overlay, content, 0o644); err != nil {
		return nil, fmt.Errorf("write the overlay: %w", err)
	}
	return spans, nil
}

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// withImport adds the import of the generated package on the line of the package clause, so that no
// line moves.
func withImport(text string, spans map[*mutant][2]int) (string, map[*mutant][2]int) {
	at := packageClause.FindStringIndex(text)[1]
	added := fmt.Sprintf("; import mutant_ %q", module+"/"+switchPackage)
	for m, span := range spans {
		spans[m] = [2]int{span[0] + len(added), span[1] + len(added)}
	}
	return text[:at] + added + text[at:], spans
}

// position joins a line and a column to one number that is compared.
func position(line, column int) int { return line<<16 + column }

// linesOf turns offsets into positions of the compiler.
func linesOf(text string, spans map[*mutant][2]int) map[*mutant][2]int {
	of := func(offset int) int {
		return position(1+strings.Count(text[:offset], "\n"), offset-strings.LastIndex(text[:offset], "\n"))
	}
	lines := map[*mutant][2]int{}
	for m, span := range spans {
		lines[m] = [2]int{of(span[0]), of(span[1])}
	}
	return lines
}

// culprits are the innermost mutants around what the compiler reports.
func (w *workshop) culprits(output string, spans map[string]map[*mutant][2]int) (bad []*mutant) {
	for _, match := range compileError.FindAllStringSubmatch(output, -1) {
		name := strings.ReplaceAll(filepath.Base(match[1]), "~", "/") // the compiler names the file of the overlay
		line, _ := strconv.Atoi(match[2])
		column, _ := strconv.Atoi(match[3])
		var innermost *mutant
		var size int
		for _, m := range w.mutants {
			span, there := spans[name][m]
			at := position(line, column)
			if !there || at < span[0] || at > span[1] {
				continue
			}
			if innermost == nil || span[1]-span[0] < size {
				innermost, size = m, span[1]-span[0]
			}
		}
		if innermost != nil && !slices.Contains(bad, innermost) {
			bad = append(bad, innermost)
		}
	}
	return bad
}

// binary builds the test binary of a package and returns its path and a hash of its content.
func (w *workshop) binary(ctx context.Context, pkg string) (name, content string, err error) {
	name = filepath.Join(w.dir, strings.ReplaceAll(pkg, "/", "~")+".test")
	if output, err := w.goTool(ctx, "test", "-c", "-vet=off", "-overlay", w.overlay, "-o", name, "./"+pkg); err != nil {
		return "", "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, output)
	}
	built, err := os.ReadFile(name)
	if err != nil {
		return "", "", fmt.Errorf("read the tests of %s: %w", pkg, err)
	}
	sum := sha256.Sum256(built)
	return name, hex.EncodeToString(sum[:8]), nil
}
