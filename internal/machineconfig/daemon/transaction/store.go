package transaction

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

const (
	manifestFile, journalFile, objectsFolder = "manifest.json", "journal.json", "objects"
	// temporary is the suffix of a record or an object that is being written.
	temporary = ".new"
	// maxFile bounds what is read of one file.
	maxFile = 256 << 20
	// privateMode and privateFolder are the modes of what is in the daemon's folder: it has secrets.
	// publicFolder is that of folders above it.
	privateMode, privateFolder, publicFolder = 0o600, 0o700, 0o755
)

// Store has the records and the objects of the daemon on a machine. Create one with Open. It is not
// safe for concurrent use, and no two processes may have one of the same machine.
type Store struct {
	fs  disk.FS
	dir string

	manifest journal.Manifest
	journal  *journal.Journal
}

// Open reads the records in a folder of the machine, and creates the folder where it does not
// exist.
func Open(machine disk.FS, dir string) (*Store, error) {
	s := &Store{fs: machine, dir: dir}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

// Prepare creates the folder of the records, for a lock in it.
func Prepare(machine disk.FS, dir string) error {
	return (&Store{fs: machine, dir: dir}).prepare()
}

func (s *Store) prepare() error {
	for _, folder := range plan.Folders([]string{s.dir}) {
		if err := s.mkdir(plan.Directory{Path: folder, Mode: publicFolder, UID: keepOwner}); err != nil {
			return err
		}
	}
	for _, folder := range []string{s.dir, s.path(objectsFolder)} {
		if err := s.mkdir(plan.Directory{Path: folder, Mode: privateFolder, UID: keepOwner}); err != nil {
			return err
		}
	}
	return nil
}

// read reads the records.
func (s *Store) read() error {
	content, _, err := s.fs.ReadFile(s.path(manifestFile), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.manifest = journal.Manifest{}
	case err != nil:
		return fmt.Errorf("read the manifest: %w", err)
	default:
		if s.manifest, err = journal.DecodeManifest(content); err != nil {
			return fmt.Errorf("%s: %w", s.path(manifestFile), err)
		}
	}
	content, _, err = s.fs.ReadFile(s.path(journalFile), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		s.journal = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	open, err := journal.Decode(content)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path(journalFile), err)
	}
	s.journal = &open
	return nil
}

// Manifest returns the record of the applied config.
func (s *Store) Manifest() journal.Manifest { return s.manifest }

// Journal returns the open transaction; nil is none.
func (s *Store) Journal() *journal.Journal { return s.journal }

// Object returns a stored content.
func (s *Store) Object(digest string) ([]byte, error) {
	content, _, err := s.fs.ReadFile(s.objectPath(digest), maxFile)
	if err != nil {
		return nil, fmt.Errorf("read a stored content: %w", err)
	}
	if found := plan.Digest(content); found != digest {
		return nil, fmt.Errorf("stored content: expected SHA-256 %s, found %s; the file system has lost data", digest, found)
	}
	return content, nil
}

func (s *Store) path(name string) string { return path.Join(s.dir, name) }

func (s *Store) objectPath(digest string) string { return path.Join(s.dir, objectsFolder, digest) }

// put stores contents that are not stored yet, durably, and returns an error if one does not have
// its digest.
func (s *Store) put(contents map[string][]byte) error {
	for digest, content := range contents {
		if plan.Digest(content) != digest {
			return fmt.Errorf("content with SHA-256 %s: expected %s", plan.Digest(content), digest)
		}
		if _, err := s.Object(digest); err == nil {
			if err := s.sync(s.objectPath(digest)); err != nil {
				return err
			}
			continue
		}
		if err := s.replace(s.objectPath(digest), content); err != nil {
			return err
		}
	}
	return s.sync(s.path(objectsFolder))
}

// replace replaces a file of the daemon's. The folder is not synchronized.
func (s *Store) replace(name string, content []byte) error {
	owner := plan.State{Kind: plan.File, Mode: privateMode, UID: keepOwner, GID: keepOwner}
	if err := s.write(name+temporary, content, owner); err != nil {
		return err
	}
	if err := s.fs.Rename(name+temporary, name); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// commit replaces the manifest, durably.
func (s *Store) commit(m journal.Manifest) error {
	content, err := journal.EncodeManifest(m)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := s.replace(s.path(manifestFile), content); err != nil {
		return err
	}
	s.manifest = m
	return s.sync(s.dir)
}

// open writes the journal, durably.
func (s *Store) open(j journal.Journal) error {
	content, err := journal.Encode(j)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := s.replace(s.path(journalFile), content); err != nil {
		return err
	}
	s.journal = &j
	return s.sync(s.dir)
}

// close removes the journal, durably, and then the objects that nothing refers to any more.
func (s *Store) close() error {
	if err := s.remove(s.path(journalFile)); err != nil {
		return err
	}
	if err := s.sync(s.dir); err != nil {
		return err
	}
	s.journal = nil
	names, err := s.fs.ReadDir(s.path(objectsFolder))
	if err != nil {
		return fmt.Errorf("list stored contents: %w", err)
	}
	used := journal.Objects(s.manifest, nil)
	for _, name := range names {
		if !used[name] {
			if err := s.remove(s.objectPath(name)); err != nil {
				return err
			}
		}
	}
	return nil
}
