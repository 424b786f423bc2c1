package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// folder is a folder for secrets; only its owner may look into it.
type folder string

func newFolder(elements ...string) (folder, error) {
	dir := filepath.Join(elements...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating a folder for secrets: %w", err)
	}
	return folder(dir), nil
}

// pairFiles are the paths of a certificate and its key.
type pairFiles struct {
	cert, key string
}

func (f folder) write(name string, data []byte) (string, error) {
	path := filepath.Join(string(f), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("writing a secret: %w", err)
	}
	return path, nil
}

func (f folder) writePair(name string, pair Pair) (pairFiles, error) {
	cert, err := f.write(name+".crt", pair.Cert)
	if err != nil {
		return pairFiles{}, err
	}
	key, err := f.write(name+".key", pair.Key)
	return pairFiles{cert: cert, key: key}, err
}
