package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is the path of the root module; the lab's is below it.
const module = "github.com/machine-controller-fleet/machine-controller-fleet"

// root is the repository's folder, seen from this package.
const root = "../.."

// goFile is a Go file of any module. Paths have slashes and start at the repository's folder.
type goFile struct {
	path   string
	lines  int
	syntax *ast.File
	fset   *token.FileSet
}

func (f goFile) folder() string    { return path.Dir(f.path) }
func (f goFile) isTest() bool      { return strings.HasSuffix(f.path, "_test.go") }
func (f goFile) isGenerated() bool { return ast.IsGenerated(f.syntax) }

// at returns the position of a node, for findings.
func (f goFile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// inside reports whether the file is in the folder or below it.
func (f goFile) inside(folder string) bool { return within(f.folder(), folder) }

// within reports whether a slash-separated path is the folder or below it.
func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// imports returns the import paths, those of this repository in the form of inRepository.
func (f goFile) imports() []string {
	paths := make([]string, len(f.syntax.Imports))
	for i, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			p = spec.Path.Value
		}
		paths[i] = inRepository(p)
	}
	return paths
}

// inRepository shortens an import path of this repository to its folder with a leading "./", and
// returns others unchanged.
func inRepository(importPath string) string {
	if !within(importPath, module) {
		return importPath
	}
	return "." + strings.TrimPrefix(importPath, module)
}

// parse reads one file.
func parse(name string, source []byte) (goFile, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return goFile{}, fmt.Errorf("parse: %w", err)
	}
	return goFile{path: name, lines: strings.Count(string(source), "\n"), syntax: syntax, fset: fset}, nil
}

// walk calls visit for every file of the repository that is not hidden, built or test data.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	if err := walkAll(visit); err != nil {
		t.Fatalf("walk the repository: %v", err)
	}
}

func walkAll(visit func(name string)) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != root && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata" || base == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, name)
		visit(filepath.ToSlash(relative))
		return err
	})
}

// packageComments returns the comments of packages, by their folders. It panics on an error: those
// who use it have no test.
func packageComments() map[string]string {
	comments := map[string]string{}
	err := walkAll(func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(name)), nil,
			parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			panic(err)
		}
		comments[path.Dir(name)] += file.Doc.Text()
	})
	if err != nil {
		panic(err)
	}
	return comments
}

// load reads all Go files of the repository, regardless of build tags.
func load(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		file, err := parse(name, read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	})
	return files
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
