package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/light"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/manifests"
)

const (
	// memberLink is the link of a member: the proxy between all replicas and its API server.
	memberLink = "server"
	// lightName is the process of all light clusters.
	lightName = "light"
	lightFile = "light.json"
	// membersFolder has a kubeconfig with all rights for each member, and cloudsimFolder those of
	// cloudsim.
	membersFolder  = "targets"
	cloudsimFolder = "clusters"
	// bootsAtATime is how many API servers start at a time: each takes seconds of a CPU.
	bootsAtATime = 4
)

// Kinds of a member.
const (
	RealMember  = "real"
	LightMember = "light"
)

// Member is a target cluster of a landscape, which belongs to the namespace of its name in the
// control cluster.
type Member struct {
	Name string `json:"name"`
	// Kind is RealMember for a kube-apiserver, or LightMember for an API server in memory (package
	// light).
	Kind string `json:"kind"`
	// Server is the URL of the API server, Proxy that by which the fleet reaches it.
	Server string `json:"server"`
	Proxy  string `json:"proxy"`
	// Credentials counts those that the fleet has had for the cluster.
	Credentials int `json:"credentials"`

	real *controlplane.Cluster // nil if it is light
	ca   *controlplane.CA      // of a light one
}

// kubeconfig returns a kubeconfig for a user of the cluster.
func (l *Launcher) kubeconfig(m *Member, server string, user controlplane.Subject) ([]byte, error) {
	if m.real != nil {
		return m.real.KubeconfigVia(server, user)
	}
	pair, err := m.ca.Issue(user, l.clock.Now())
	if err != nil {
		return nil, err
	}
	return controlplane.Kubeconfig(server, m.ca.Cert, pair)
}

// makeMembers makes the target clusters of a landscape, with a proxy for each.
func (l *Launcher) makeMembers(ctx context.Context, programs controlplane.Programs) error {
	if !l.options.landscape() {
		return nil
	}
	ports, err := l.ports.take(ctx, 3*l.options.Clusters+2*l.options.Light)
	if err != nil {
		return err
	}
	for i := range l.options.Clusters {
		name := "cluster-" + strconv.Itoa(i+1)
		at := controlplane.Ports{APIServer: ports[0], ControllerManager: ports[1]}
		cluster, err := controlplane.NewCluster(name, name+"-", programs, at, l.etcd, l.clock.Now())
		if err != nil {
			return err
		}
		cluster.OmitScheduler()
		l.members = append(l.members, &Member{Name: name, Kind: RealMember, Server: cluster.Server(), Proxy: loopback(ports[2]), real: cluster})
		ports = ports[3:]
	}
	for i := range l.options.Light {
		name := "light-" + strconv.Itoa(i+1)
		ca, err := controlplane.NewCA("lab-"+name+"-ca", l.clock.Now())
		if err != nil {
			return err
		}
		l.members = append(l.members, &Member{
			Name: name, Kind: LightMember, Server: "https://" + loopback(ports[0]), Proxy: loopback(ports[1]), ca: ca,
		})
		ports = ports[2:]
	}
	for _, folder := range []string{membersFolder, cloudsimFolder} {
		if err := os.MkdirAll(l.options.folder().path(folder), 0o700); err != nil {
			return fmt.Errorf("making the folder of kubeconfigs: %w", err)
		}
	}
	for _, m := range l.members {
		if err := l.makeMember(m); err != nil {
			return fmt.Errorf("target cluster %s: %w", m.Name, err)
		}
	}
	return l.saveMembers()
}

// makeMember makes the proxy and the kubeconfigs of a member.
func (l *Launcher) makeMember(m *Member) error {
	server, err := url.Parse(m.Server)
	if err != nil {
		return err
	}
	if err := l.proxies.Open(linkName(m.Name, memberLink), m.Proxy, server.Host); err != nil {
		return err
	}
	m.Proxy = "https://" + m.Proxy
	for folder, user := range map[string]controlplane.Subject{
		membersFolder: {User: "admin", Groups: []string{controlplane.MastersGroup}}, cloudsimFolder: {User: cloudsimName},
	} {
		kubeconfig, err := l.kubeconfig(m, m.Server, user)
		if err == nil {
			err = l.options.folder().writeFile(folder+"/"+m.Name+".kubeconfig", kubeconfig)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Launcher) saveMembers() error { return l.options.folder().writeJSON(membersFile, l.members) }

// bootMembers starts all target clusters of a landscape, and waits until they are ready.
func (l *Launcher) bootMembers(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(bootsAtATime)
	if l.options.Light > 0 {
		group.Go(func() error { return l.bootLight(groupCtx) })
	}
	for _, m := range l.members {
		if m.real != nil {
			group.Go(func() error { return l.bootReal(groupCtx, m.real) })
		}
	}
	return group.Wait()
}

// bootReal starts a target cluster, and installs the access of the lab and of the fleet.
func (l *Launcher) bootReal(ctx context.Context, cluster *controlplane.Cluster) error {
	if err := l.bootCluster(ctx, cluster); err != nil {
		return err
	}
	client, err := cluster.Admin()
	if err != nil {
		return err
	}
	defer client.Close()
	for _, path := range []string{"/api/v1/namespaces/kube-system", "/api/v1/namespaces/kube-node-lease"} {
		if err := l.await(ctx, path, nil, func(ctx context.Context) error {
			_, err := client.Get(ctx, path)
			return err
		}); err != nil {
			return err
		}
	}
	return errors.Join(client.Apply(ctx, manifests.Target()), client.Apply(ctx, manifests.FleetTarget()))
}

// bootLight starts the process of all light clusters.
func (l *Launcher) bootLight(ctx context.Context) error {
	ports, err := l.ports.take(ctx, 1)
	if err != nil {
		return err
	}
	all := light.Set{Listen: loopback(ports[0])}
	for _, m := range l.members {
		if m.real != nil {
			continue
		}
		pair, err := m.ca.Issue(controlplane.Subject{User: controlplane.APIServer, Hosts: []string{"127.0.0.1"}}, l.clock.Now())
		if err != nil {
			return err
		}
		all.Clusters = append(all.Clusters, light.Config{
			Name: m.Name, Listen: strings.TrimPrefix(m.Server, "https://"), CA: m.ca.Cert, Cert: pair.Cert, Key: pair.Key,
		})
	}
	folder := l.options.folder()
	if err := folder.writeJSON(lightFile, all); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, which serves light clusters: %w", err)
	}
	spec := l.spec(lightName, "", []string{"light", folder.path(lightFile)})
	spec.Path = self
	url := "http://" + all.Listen
	return l.bootProcess(ctx, spec, url, httpProbe(url+"/healthz"))
}

// installMembers makes a namespace in the control cluster for each target cluster: with the
// credentials of the fleet, a class of VMs, and user data with which these join the cluster.
func (l *Launcher) installMembers(ctx context.Context) error {
	if !l.options.landscape() {
		return nil
	}
	client, err := l.control.Admin()
	if err != nil {
		return err
	}
	defer client.Close()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(bootsAtATime)
	for _, m := range l.members {
		group.Go(func() error {
			if err := client.Apply(groupCtx, manifests.Member(m.Name, m.Server)); err != nil {
				return fmt.Errorf("namespace of target cluster %s: %w", m.Name, err)
			}
			return l.rotate(groupCtx, client, m)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return l.saveMembers()
}

// rotate gives the fleet other credentials for a target cluster: a certificate of another user, in
// the Secret of the namespace.
func (l *Launcher) rotate(ctx context.Context, client *controlplane.Client, m *Member) error {
	l.mu.Lock()
	m.Credentials++
	user := controlplane.Subject{User: "fleet-of-" + m.Name + "-" + strconv.Itoa(m.Credentials), Groups: []string{fleetGroup}}
	l.mu.Unlock()
	kubeconfig, err := l.kubeconfig(m, m.Proxy, user)
	if err != nil {
		return err
	}
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": m.Name, "name": targetSecret},
		"stringData": map[string]any{"kubeconfig": string(kubeconfig)},
	})
	if err != nil {
		return fmt.Errorf("encoding a Secret: %w", err)
	}
	return client.Apply(ctx, secret)
}

// targetSecret is the default of the fleet's flag --target-secret.
const targetSecret = "machine-controller-fleet-target"

// Rotate gives the fleet other credentials for a target cluster of a landscape, or for all when no
// name is given.
func (l *Launcher) Rotate(ctx context.Context, name string) error {
	client, err := l.control.Admin()
	if err != nil {
		return err
	}
	defer client.Close()
	found := false
	for _, m := range l.members {
		if name == "" || m.Name == name {
			found = true
			if err := l.rotate(ctx, client, m); err != nil {
				return fmt.Errorf("target cluster %s: %w", m.Name, err)
			}
		}
	}
	if !found {
		return fmt.Errorf("%w: expected a target cluster of %s, got %q", errBadRequest, membersFile, name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saveMembers()
}

func (l *Launcher) handleLandscape(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/targets/rotate", func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		err := l.Rotate(context.WithoutCancel(r.Context()), name)
		l.log.Info("rotate", "target", name, "err", err)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, struct{}{})
	})
}
