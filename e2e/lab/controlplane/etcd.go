package controlplane

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// Programs are the paths of the multi-call binary, and of the lab's folder.
type Programs struct {
	// Hyperkube is the path of the multi-call binary.
	Hyperkube string
	// Dir is the folder of the lab. Secrets go into pki/, logs into logs/, etcd's data into etcd/.
	Dir string
}

func (p Programs) spec(name, component string, flags ...string) supervise.Spec {
	return supervise.Spec{
		Name: name,
		Path: p.Hyperkube,
		Args: append([]string{component}, flags...),
		Log:  filepath.Join(p.Dir, "logs", name+".log"),
		Env:  []string{garbageCollection},
	}
}

// garbageCollection makes Go collect garbage when the heap has grown fivefold. CPU is scarcer here
// than memory, because labs share it: all end-to-end tests took 8 % less of it than with Go's
// default, GOGC=100.
const garbageCollection = "GOGC=400"

// EtcdName is the name of etcd's process.
const EtcdName = "etcd"

// Etcd is the store of all clusters of a lab.
type Etcd struct {
	url     string
	peerURL string
	client  pairFiles
	ca      string
	dataDir string
	spec    supervise.Spec
}

// NewEtcd creates etcd's secrets. It serves clients at one port of the loopback interface; the
// other one, for peers, is not used.
func NewEtcd(programs Programs, port, peerPort int, now time.Time) (*Etcd, error) {
	secrets, err := newFolder(programs.Dir, "pki", "etcd")
	if err != nil {
		return nil, err
	}
	ca, err := NewCA("lab-etcd-ca", now)
	if err != nil {
		return nil, err
	}
	caFiles, err := secrets.writePair("ca", ca.Pair)
	if err != nil {
		return nil, err
	}
	issue := func(name string, subject Subject) (pairFiles, error) {
		pair, err := ca.Issue(subject, now)
		if err != nil {
			return pairFiles{}, err
		}
		return secrets.writePair(name, pair)
	}
	server, err := issue("server", Subject{User: "etcd", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	client, err := issue("client", Subject{User: "kube-apiserver"})
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	dataDir := filepath.Join(programs.Dir, "etcd")
	return &Etcd{url: url, peerURL: peerURL, client: client, ca: caFiles.cert, dataDir: dataDir, spec: programs.spec(EtcdName, "etcd",
		"--data-dir="+dataDir,
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL,
		"--cert-file="+server.cert, "--key-file="+server.key, "--trusted-ca-file="+caFiles.cert, "--client-cert-auth",
		"--unsafe-no-fsync", // In a lab speed is more important than durability.
		"--log-level=warn",
	)}, nil
}

// Spec returns how to start etcd.
func (e *Etcd) Spec() supervise.Spec { return e.spec }

// DataDir is the folder of its data.
func (e *Etcd) DataDir() string { return e.dataDir }

// SaveCommand is the command line of hyperkube that saves the content of etcd to a file.
func (e *Etcd) SaveCommand(file string) []string {
	return []string{"etcd-snapshot", "save", "--endpoint=" + e.url, "--cert=" + e.client.cert, "--key=" + e.client.key, "--ca=" + e.ca, file}
}

// RestoreCommand is the command line of hyperkube that creates a data folder from such a file.
func (e *Etcd) RestoreCommand(file, dataDir string, bumpRevision uint64) []string {
	return []string{
		"etcd-snapshot", "restore", "--data-dir=" + dataDir, "--peer-url=" + e.peerURL, "--bump-revision=" + strconv.FormatUint(bumpRevision, 10),
		file,
	}
}
