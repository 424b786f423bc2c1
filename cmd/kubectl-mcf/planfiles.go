package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan/manifest"
)

const (
	standardInput = "-"
	// mostOfFile is how many bytes a file may have, and mostOfFiles all together.
	mostOfFile, mostOfFiles = 16 << 20, 64 << 20
)

// planFiles names the files of a change, as kubectl apply does.
type planFiles struct {
	names     []string
	recursive bool
}

func (f *planFiles) declare(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.names, "filename", "f", nil, "file with changed objects, as YAML or JSON, or a folder with such files; "+
		"- is standard input; may be repeated")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "also the files in folders below those of --filename")
}

// objects returns the objects in the files that there are plans for, and the names of others.
// Errors: there is none, or a file cannot be read.
func (f *planFiles) objects(in io.Reader) (all []manifest.Manifest, others []string, err error) {
	names, err := f.files()
	if err != nil {
		return nil, nil, err
	}
	left := mostOfFiles
	for _, name := range names {
		found, err := objectsOfFile(name, in, &left)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range found {
			if m.IsPlanned() {
				all = append(all, m)
			} else {
				others = append(others, m.String())
			}
		}
	}
	if len(all) > 0 {
		return all, others, nil
	}
	found := "none"
	if len(others) > 0 {
		found = strings.Join(others, ", ")
	}
	return nil, nil, fmt.Errorf("expected an object of the kind %s in %s, and found %s; there are no plans for other kinds",
		manifest.Kinds(), strings.Join(f.names, ", "), found)
}

// objectsOfFile returns the objects in a file, or in standard input, of which so many bytes may be
// left.
func objectsOfFile(name string, in io.Reader, left *int) ([]manifest.Manifest, error) {
	if name != standardInput {
		opened, err := os.Open(name) //nolint:gosec // the user names it
		if err != nil {
			return nil, err
		}
		defer opened.Close() //nolint:errcheck // it is only read
		in = opened
	}
	content, err := io.ReadAll(io.LimitReader(in, mostOfFile+1))
	*left -= len(content)
	if err == nil && (len(content) > mostOfFile || *left < 0) {
		err = fmt.Errorf("expected at most %d MiB in a file, and %d MiB in all, and there is more", mostOfFile>>20, mostOfFiles>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	all, err := manifest.Read(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

// files returns the files of all names, those in folders in the order of their names.
func (f *planFiles) files() (all []string, err error) {
	if len(f.names) == 0 {
		return nil, usage("expected a file or a folder with changed objects: -f FILE, or -f - for standard input")
	}
	for _, name := range f.names {
		info, err := os.Stat(name)
		if name == standardInput || err == nil && !info.IsDir() {
			all = append(all, name)
			continue
		}
		if err != nil {
			return nil, err
		}
		in, err := f.filesIn(name)
		if err != nil {
			return nil, err
		}
		all = append(all, in...)
	}
	return all, nil
}

// filesIn returns the files in a folder that kubectl apply reads.
func (f *planFiles) filesIn(folder string) (all []string, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != folder && !f.recursive:
			return fs.SkipDir
		case !d.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(path)):
			all = append(all, path)
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errors.New("expected files that end in .yaml, .yml or .json in the folder " + folder + ", and it has none; see --recursive")
	}
	return all, err
}
