package update

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const prefix = v1alpha1.DaemonPrefix

// cluster is a target cluster: its API server, with an oracle that sees each write of a Node, and
// the replicas of a fleet.
type cluster struct {
	*testing.T

	server *apiserver.Server
	events *apitest.EventLog

	mu      sync.Mutex
	wrong   []string
	writes  map[string][]string // bodies of the fleet's patches, by Node
	refused int                 // patches of Nodes that were refused
	lists   int                 // of Nodes, live or for a watch
	status  int                 // writes of statuses of pools
	bug     func(r *http.Request, body []byte) (changed []byte)
	stale   time.Duration // how old lists of Nodes may be; 0 for current ones
	kept    []byte        // the last list of Nodes
	keptAt  time.Time
	isLate  bool // assignments of former owners arrive: only the drains respect maxUnavailable then
}

func newCluster(t *testing.T) *cluster {
	return &cluster{T: t, server: apiserver.New("t", time.Now), events: &apitest.EventLog{}, writes: map[string][]string{}}
}

// pool stores a pool.
func (c *cluster) pool(name, target string, change func(p *v1alpha1.MachineConfigPool)) {
	p := &v1alpha1.MachineConfigPool{}
	p.APIVersion, p.Kind, p.Name = v1alpha1.SchemeGroupVersion.String(), "MachineConfigPool", name
	if stored := c.server.Get("machineconfigpools", "", name); stored != nil {
		c.decode(stored, p)
	}
	p.Status.CurrentMachineConfig = target
	change(p)
	c.put("machineconfigpools", p)
}

func (c *cluster) put(resource string, o any) {
	c.Helper()
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err == nil {
		_, err = c.server.Put(resource, document)
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) decode(o *apiserver.Object, into any) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) getPool(name string) *v1alpha1.MachineConfigPool {
	p := &v1alpha1.MachineConfigPool{}
	c.decode(c.server.Get("machineconfigpools", "", name), p)
	return p
}

func (c *cluster) node(name string) *corev1.Node {
	n := &corev1.Node{}
	c.decode(c.server.Get("nodes", "", name), n)
	return n
}

func (c *cluster) allNodes() (nodes []*corev1.Node) {
	for _, o := range c.server.List("nodes") {
		n := &corev1.Node{}
		c.decode(o, n)
		nodes = append(nodes, n)
	}
	return nodes
}

// join adds a Node that is done with a configuration, with the label pool=p.
func (c *cluster) join(name, config string, change func(n *corev1.Node)) {
	n := &corev1.Node{}
	n.APIVersion, n.Kind, n.Name, n.Labels = "v1", "Node", name, map[string]string{"pool": "p"}
	n.Annotations = map[string]string{prefix.CurrentConfig(): config, prefix.DesiredConfig(): config, prefix.State(): "done"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if change != nil {
		change(n)
	}
	c.put("nodes", n)
}

// edit changes a Node as its kubelet, its daemon or a user does.
func (c *cluster) edit(name string, change func(n *corev1.Node)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server.Edit("nodes", "", name, func(u *unstructured.Unstructured) {
		n := &corev1.Node{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
			c.Fatal(err)
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		change(n)
		u.Object, _ = runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	})
}

// daemon writes annotations of a Node, by their names without prefix.
func (c *cluster) daemon(name string, annotations ...string) {
	c.edit(name, func(n *corev1.Node) {
		for i := 0; i < len(annotations); i += 2 {
			n.Annotations[string(prefix)+"/"+annotations[i]] = annotations[i+1]
		}
	})
}

// run lets time pass.
func (c *cluster) run(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) violate(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func isAvailable(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return false
		}
	}
	return !n.Spec.Unschedulable
}

// isServing is another definition of what maxUnavailable protects than that of package candidates.
func isServing(n *corev1.Node) bool {
	a := n.Annotations
	return isAvailable(n) && a[prefix.State()] == "done" && a[prefix.CurrentConfig()] == a[prefix.DesiredConfig()]
}

// replica is one process of the fleet.
type replica struct {
	*cluster

	controller *Controller
	drains     *drainer.Drainer
	view       *objectcache.View
	target     *target.Cluster
	cache      *configcache.Cache
	stop       context.CancelFunc
	ended      sync.WaitGroup
	evict      func(e *policyv1.Eviction) error
	hold       string
	retries    int // for evictions; 180 if 0

	state    sync.Mutex
	owns     bool
	dead     bool
	writesTo int // writes until it dies; negative for never
	lag      time.Duration
	late     func(body []byte) time.Duration // for how long a write that has passed the fence is on its way
	passes   map[*context.CancelFunc]bool
}

// start starts a replica that owns all pools or none.
func (c *cluster) start(owns bool, change func(r *replica)) *replica {
	r := &replica{cluster: c, owns: owns, writesTo: -1, passes: map[*context.CancelFunc]bool{}, view: objectcache.NewView()}
	if change != nil {
		change(r)
	}
	clients := apiserver.ClientsThrough(r)
	r.target = target.New(clients.Core)
	r.target.Evict = func(_ context.Context, e *policyv1.Eviction) error {
		if r.evict != nil {
			return r.evict(e)
		}
		c.server.Remove("pods", e.Namespace, e.Name)
		return nil
	}
	settings := drain.Settings{
		Timeout: time.Hour, MaxEvictRetries: cmp.Or(r.retries, 180), DetachTimeout: time.Minute, ReattachTimeout: time.Minute,
		VolumeParallelism: 4,
	}
	var err error
	r.drains, err = drainer.New(drainer.Config{
		Clock: clock.RealClock{}, Settings: settings, ReportAfter: 5 * time.Second, Confirm: time.Minute,
		Backoff: func(time.Duration, driver.Code, time.Duration) (time.Duration, time.Duration) {
			return time.Second, time.Second
		},
	})
	if err != nil {
		c.Fatal(err)
	}
	r.cache, err = configcache.New(configcache.Config{
		Client: clients.Configs, Metadata: clients.Metadata, OwnsPool: func(*v1alpha1.MachineConfigPool) bool { return r.isOwner() },
		Owns: func(string) bool { return false },
	})
	if err != nil {
		c.Fatal(err)
	}
	r.controller, err = New(Config{
		Pools: r.cache, Owns: func(*v1alpha1.MachineConfigPool) bool { return r.isOwner() }, Fleet: clients.Configs,
		Written: patch.NewLatest[*v1alpha1.MachineConfigPool](), Cluster: r.target, View: r.view, Metadata: clients.Metadata,
		IsNewSet: func(*machinev1alpha1.MachineDeployment, *machinev1alpha1.MachineSet) bool { return true }, Drains: r.drains, Drain: settings,
		Held: func(string) (string, bool) { return r.hold, r.hold != "" }, Prefix: prefix, Events: c.events, Clock: clock.RealClock{}, Gate: r,
		Workers: 2,
	})
	if err != nil {
		c.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	for _, run := range []func(context.Context){r.cache.Run, r.drains.Run, r.controller.Run} {
		r.ended.Go(func() { run(ctx) })
	}
	return r
}

// end stops the replica, and waits until nothing of it runs.
func (r *replica) end() {
	r.kill()
	r.ended.Wait()
}

func (r *replica) kill() {
	r.state.Lock()
	r.dead = true
	r.state.Unlock()
	r.stop()
}

func (r *replica) isOwner() bool {
	r.state.Lock()
	defer r.state.Unlock()
	return r.owns && !r.dead
}

// own gives the replica all pools, or takes them from it, as a session does: its passes end.
func (r *replica) own(owns bool) {
	r.state.Lock()
	r.owns = owns
	if !owns {
		for cancel := range r.passes {
			(*cancel)()
		}
	}
	r.state.Unlock()
	r.cache.Look()
}

// Admit is the runner's Gate.
func (r *replica) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	r.state.Lock()
	defer r.state.Unlock()
	if !r.owns || r.dead {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	r.passes[&cancel] = true
	return ctx, func() {
		r.state.Lock()
		defer r.state.Unlock()
		delete(r.passes, &cancel)
		cancel()
	}, true
}

var _ runner.Gate[types.NamespacedName] = (*replica)(nil)

// notOursError is the refusal of the fence.
type notOursError struct{}

func (notOursError) Error() string { return "the slot is not this replica's" }
func (notOursError) NotOurs() bool { return true }

var errDead = errors.New("the process is dead")

// RoundTrip is the network of a replica: the fence, faults, and the oracle.
func (r *replica) RoundTrip(req *http.Request) (*http.Response, error) {
	isWrite := req.Method != http.MethodGet
	var delay time.Duration
	r.state.Lock()
	dead, owns := r.dead, r.owns
	diesAfter := false
	if isWrite && owns && !dead && r.writesTo >= 0 {
		r.writesTo--
		diesAfter = r.writesTo < 0
	}
	r.state.Unlock()
	if isWrite && r.late != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err //nolint:wrapcheck // it is the transport
		}
		delay, req.Body = r.late(body), io.NopCloser(bytes.NewReader(body))
	}
	switch {
	case dead:
		return nil, errDead
	case isWrite && !owns:
		return nil, notOursError{}
	}
	if delay > 0 { // the sender may be dead when it arrives
		time.Sleep(delay)
	}
	resp, err := r.send(req)
	if diesAfter {
		r.kill()
		return nil, errDead
	}
	if err == nil && resp.Body != nil {
		if events, ok := resp.Body.(*apiserver.Events); ok && r.lag > 0 {
			events.Lag = func(at time.Time) time.Time { return at.Add(r.lag) }
		}
	}
	return resp, err
}

// send has the API server answer, and checks each write of a Node.
func (c *cluster) send(req *http.Request) (*http.Response, error) {
	node, isNode := strings.CutPrefix(req.URL.Path, "/api/v1/nodes/")
	if strings.HasSuffix(req.URL.Path, "/status") {
		c.mu.Lock()
		c.status++
		c.mu.Unlock()
	}
	if req.URL.Path == "/api/v1/nodes" && req.URL.Query().Get("watch") == "" {
		c.mu.Lock()
		c.lists++
		c.mu.Unlock()
	}
	if req.URL.Path == "/api/v1/nodes" && req.URL.Query().Get("limit") != "" && req.URL.Query().Get("labelSelector") != "" && c.stale > 0 {
		return c.sendStale(req)
	}
	if !isNode || req.Method != http.MethodPatch {
		return c.server.RoundTrip(req) //nolint:wrapcheck // it is the transport
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is the transport
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bug != nil {
		body = c.bug(req, body)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	before := c.allNodes()
	resp, err := c.server.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		c.writes[node] = append(c.writes[node], string(body))
		c.check(node, before, c.allNodes())
	} else {
		c.refused++
	}
	return resp, err //nolint:wrapcheck // it is the transport
}

// sendStale answers a list of Nodes with an older one: the planted bug of a cache that is taken for
// the API server.
func (c *cluster) sendStale(req *http.Request) (*http.Response, error) {
	resp, err := c.server.RoundTrip(req)
	if err != nil {
		return resp, err //nolint:wrapcheck // it is the transport
	}
	body, err := io.ReadAll(resp.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || time.Since(c.keptAt) > c.stale {
		c.kept, c.keptAt = body, time.Now()
	}
	resp.Body = io.NopCloser(bytes.NewReader(c.kept))
	return resp, err //nolint:wrapcheck // it is the transport
}

// check is the oracle: a write of the fleet never makes more Nodes unavailable than maxUnavailable
// allows, and writes only what is the fleet's.
func (c *cluster) check(name string, before, after []*corev1.Node) {
	stored := c.server.Get("machineconfigpools", "", "p")
	if stored == nil {
		return
	}
	p := &v1alpha1.MachineConfigPool{}
	c.decode(stored, p)
	most := len(before) * 4 / 10
	if value := p.Spec.MaxUnavailable; value == nil || value.StrVal == "" {
		most = 1
		if value != nil {
			most = int(value.IntVal)
		}
	}
	most = max(most, 1)
	count := func(nodes []*corev1.Node, is func(*corev1.Node) bool) (n int) {
		for _, node := range nodes {
			if !is(node) {
				n++
			}
		}
		return n
	}
	if was, is := count(before, isServing), count(after, isServing); is > was && is > most && !c.isLate {
		c.violate("a write of Node %s leaves %d Nodes that do not serve; %d before, maxUnavailable is %d", name, is, was, most)
	}
	if was, is := count(before, isAvailable), count(after, isAvailable); is > was && is > most {
		c.violate("a write of Node %s leaves %d Nodes unavailable; %d before, maxUnavailable is %d", name, is, was, most)
	}
	was, is := find(before, name), find(after, name)
	for _, key := range []string{prefix.CurrentConfig(), prefix.State(), prefix.Reason(), prefix.DesiredDrain()} {
		if was.Annotations[key] != is.Annotations[key] {
			c.violate("the fleet has written %s of Node %s", key, name)
		}
	}
	if was.Annotations[prefix.DesiredConfig()] != is.Annotations[prefix.DesiredConfig()] && p.Spec.Paused {
		c.violate("Node %s was assigned a configuration although the pool is paused", name)
	}
	if was.Spec.Unschedulable && !is.Spec.Unschedulable && was.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
		c.violate("Node %s became schedulable, and was not cordoned by the fleet", name)
	}
}

func find(nodes []*corev1.Node, name string) *corev1.Node {
	return nodes[slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })]
}

// pod puts a pod that is ready on a Node.
func (c *cluster) pod(node, name string) {
	c.put("pods", &corev1.Pod{
		TypeMeta: podType(), ObjectMeta: objectMeta("n", name, map[string]string{"app": name}),
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	})
}

func (c *cluster) fine() {
	c.Helper()
	for _, wrong := range c.wrong {
		c.Error(wrong)
	}
}

func (c *cluster) emitted(reason string) int {
	row, known := machinev1alpha1.FindEventReason(reason)
	if !known {
		c.Fatalf("no such reason: %s", reason)
	}
	return c.events.Count(row)
}
