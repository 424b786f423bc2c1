package etcdsnapshot

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Command is the name of this program in a multi-call binary.
const Command = "etcd-snapshot"

const dialTimeout = 5 * time.Second

// options are the flags; each command uses some of them.
type options struct {
	endpoint, cert, key, ca string
	dataDir, name, peerURL  string
	bump                    uint64
}

// Main is the program: `save [flags] FILE` or `restore [flags] FILE`.
func Main(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.StringVar(&o.endpoint, "endpoint", "", "save: `URL` of the etcd")
	flags.StringVar(&o.cert, "cert", "", "save: `file` with a client's certificate")
	flags.StringVar(&o.key, "key", "", "save: `file` with its key")
	flags.StringVar(&o.ca, "ca", "", "save: `file` with the certificate of etcd's authority")
	flags.StringVar(&o.dataDir, "data-dir", "", "restore: `folder` to create; it must not exist, or be empty")
	flags.StringVar(&o.name, "name", "default", "restore: `name` of the member")
	flags.StringVar(&o.peerURL, "peer-url", "", "restore: `URL` of the member for peers")
	flags.Uint64Var(&o.bump, "bump-revision", 0, "restore: how much to `raise` the revision")
	if len(args) == 0 {
		return errors.New("expected save or restore, got nothing")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("expected one file, got %q", flags.Args())
	}
	switch args[0] {
	case "save":
		return o.save(ctx, flags.Arg(0))
	case "restore":
		return o.restore(flags.Arg(0))
	}
	return fmt.Errorf("expected save or restore, got %q", args[0])
}

func (o options) save(ctx context.Context, file string) error {
	// Otherwise the error would only come after the request to the member.
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("expected that %s does not exist: %w", file, errors.Join(err, fs.ErrExist))
	}
	config, err := o.tls()
	if err != nil {
		return err
	}
	_, err = snapshot.NewV3(zap.NewNop()).Save(ctx,
		clientv3.Config{Endpoints: []string{o.endpoint}, DialTimeout: dialTimeout, TLS: config}, file)
	if err != nil {
		return fmt.Errorf("saving etcd to %s: %w", file, err)
	}
	return nil
}

func (o options) tls() (*tls.Config, error) {
	config, err := transport.TLSInfo{CertFile: o.cert, KeyFile: o.key, TrustedCAFile: o.ca}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading --cert, --key and --ca: %w", err)
	}
	return config, nil
}

func (o options) restore(file string) error {
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: o.dataDir,
		Name: o.name, PeerURLs: []string{o.peerURL}, InitialCluster: o.name + "=" + o.peerURL, InitialClusterToken: "etcd-cluster",
		RevisionBump: o.bump, MarkCompacted: o.bump > 0, // etcd requires both or none: watches that have seen lost writes have to list again.
	})
	if err != nil {
		return fmt.Errorf("restoring etcd from %s to %s: %w", file, o.dataDir, err)
	}
	return nil
}
