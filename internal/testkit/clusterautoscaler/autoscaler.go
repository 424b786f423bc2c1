package clusterautoscaler

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

const (
	// ScanInterval is from one Loop to the next.
	ScanInterval = 10 * time.Second
	// callTimeout is for how long a call may take, and instancesFresh for how long instances are
	// cached.
	callTimeout    = 5 * time.Second
	instancesFresh = 2 * time.Minute
	// firstBackoff is for how long a group that has failed is not scaled up at first, and lastBackoff
	// at most.
	firstBackoff = 5 * time.Minute
	lastBackoff  = 30 * time.Minute
	// mostDeletions is how many Nodes one Loop deletes.
	mostDeletions = 10
)

// Pod is a pod that needs a Node for itself.
type Pod struct {
	Name string
	// On are the labels that its Node has to have.
	On map[string]string
	// Node is the name of its Node, "" while it is pending.
	Node string
}

// Fits reports whether a pod may run on a Node.
func (p Pod) Fits(node *corev1.Node) bool {
	for key, value := range p.On {
		if node.Labels[key] != value {
			return false
		}
	}
	return true
}

// Cluster is the target cluster.
type Cluster interface {
	Nodes() []*corev1.Node
	Pods() []Pod
	// Taint adds the taint of a Node that is being deleted, or removes it.
	Taint(node string, on bool)
}

// Config has the settings of an Autoscaler. All are required.
type Config struct {
	Fleet   externalgrpc.CloudProviderClient
	Cluster Cluster
	Now     func() time.Time
	// Provision is how long an instance may take to register.
	Provision time.Duration
	// Unneeded is how long a Node has to be without pods before it is deleted, AfterAdd how long after
	// a scale-up that may be, and AfterFailure how long after a deletion that has failed.
	Unneeded, AfterAdd, AfterFailure time.Duration
}

// Call is a call that was sent.
type Call struct {
	Method, Group string
	At            time.Time
	Err           error
}

// Autoscaler is the double. New returns one.
type Autoscaler struct {
	Config

	calls        []Call
	cached       map[string]cached // instances, by group
	unregistered map[string]time.Time
	failed       map[string]bool // instances whose error is known
	mismatches   map[string]mismatch
	requests     map[string]request
	backoffs     map[string]backoff
	unneeded     map[string]time.Time
	deleting     map[string]bool // Nodes

	grown, refused time.Time
}

type cached struct {
	instances []*externalgrpc.Instance
	at        time.Time
}

// mismatch is a size that differs from the number of Nodes.
type mismatch struct {
	nodes, size int32
	since       time.Time
}

// request is a scale-up that is in progress.
type request struct {
	increase int32
	at       time.Time
}

type backoff struct {
	until time.Time
	last  time.Duration
}

// New returns an Autoscaler that has observed nothing yet.
func New(c Config) *Autoscaler {
	return &Autoscaler{
		Config: c, cached: map[string]cached{}, unregistered: map[string]time.Time{}, failed: map[string]bool{},
		mismatches: map[string]mismatch{}, requests: map[string]request{}, backoffs: map[string]backoff{}, unneeded: map[string]time.Time{},
		deleting: map[string]bool{},
	}
}

// Forget removes the calls so far.
func (a *Autoscaler) Forget() { a.calls = nil }

// Calls returns the calls so far whose method has the suffix.
func (a *Autoscaler) Calls(suffix string) []Call {
	return slices.DeleteFunc(slices.Clone(a.calls), func(c Call) bool { return !strings.HasSuffix(c.Method, suffix) })
}

// IsBackedOff reports whether a group is not scaled up, because it has failed.
func (a *Autoscaler) IsBackedOff(group string) bool { return a.Now().Before(a.backoffs[group].until) }

// group is a node group as a Loop observes it.
type group struct {
	*externalgrpc.NodeGroup

	size      int32
	nodes     []*corev1.Node // that have registered
	late      []string       // instances that have not registered in time
	template  *corev1.Node   // nil without one
	instances []*externalgrpc.Instance
}

// upcoming is how many Nodes a group will have more.
func (g *group) upcoming(deleting map[string]bool) int32 {
	n := g.size - int32(len(g.late))
	for _, node := range g.nodes {
		if !deleting[node.Name] {
			n--
		}
	}
	return max(n, 0)
}

// Loop observes, and changes what it decides on. Errors: those that end upstream's loop.
func (a *Autoscaler) Loop(ctx context.Context) error {
	if _, err := send(ctx, a, "Refresh", "", a.Fleet.Refresh, &externalgrpc.RefreshRequest{}); err != nil {
		return err
	}
	groups, err := a.observe(ctx)
	if err != nil {
		return err
	}
	a.noteFailures(groups)
	a.deleteLate(ctx, groups)
	a.deleteFailed(ctx, groups)
	if fixed, err := a.fixSizes(ctx, groups); fixed || err != nil {
		return err
	}
	used, grown, err := a.scaleUp(ctx, groups)
	if grown || err != nil {
		return err
	}
	return a.scaleDown(ctx, groups, used)
}

// send sends a call, and records it.
func send[Q, A any](
	ctx context.Context, a *Autoscaler, method, group string, call func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q,
) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := a.Now()
	answer, err := call(ctx, request)
	a.calls = append(a.calls, Call{Method: method, Group: group, At: at, Err: err})
	return answer, err
}

// observe returns the groups, by name. Those that cannot be listed are none.
func (a *Autoscaler) observe(ctx context.Context) (groups []*group, err error) {
	all, _ := send(ctx, a, "NodeGroups", "", a.Fleet.NodeGroups, &externalgrpc.NodeGroupsRequest{})
	byID := map[string]*group{}
	for _, of := range all.GetNodeGroups() {
		byID[of.GetId()] = &group{NodeGroup: of}
		groups = append(groups, byID[of.GetId()])
	}
	slices.SortFunc(groups, func(a, b *group) int { return strings.Compare(a.GetId(), b.GetId()) })
	nodes := a.Cluster.Nodes()
	registered := map[string]bool{}
	for _, node := range nodes {
		registered[node.Spec.ProviderID] = true
		of, err := send(ctx, a, "NodeGroupForNode", "", a.Fleet.NodeGroupForNode, &externalgrpc.NodeGroupForNodeRequest{Node: described(node)})
		if err != nil {
			return nil, err
		}
		if g := byID[of.GetNodeGroup().GetId()]; g != nil {
			g.nodes = append(g.nodes, node)
		}
	}
	for name := range a.deleting {
		if !slices.ContainsFunc(nodes, func(node *corev1.Node) bool { return node.Name == name }) {
			delete(a.deleting, name)
		}
	}
	var instances []string
	for _, g := range groups {
		if err := a.observeGroup(ctx, g, registered); err != nil {
			return nil, err
		}
		for _, instance := range g.instances {
			instances = append(instances, instance.GetId())
		}
	}
	for id := range a.unregistered {
		if registered[id] || !slices.Contains(instances, id) {
			delete(a.unregistered, id)
		}
	}
	return groups, nil
}

func (a *Autoscaler) observeGroup(ctx context.Context, g *group, registered map[string]bool) error {
	id := g.GetId()
	if len(g.nodes) > 0 {
		g.template = g.nodes[0]
	} else {
		answer, err := send(ctx, a, "NodeGroupTemplateNodeInfo", id, a.Fleet.NodeGroupTemplateNodeInfo,
			&externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
		if err != nil && status.Code(err) != codes.Unimplemented {
			return err
		}
		if err == nil {
			g.template = &corev1.Node{}
			if err := g.template.Unmarshal(answer.GetNodeBytes()); err != nil {
				return err
			}
		}
	}
	size, err := send(ctx, a, "NodeGroupTargetSize", id, a.Fleet.NodeGroupTargetSize, &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
	if err != nil {
		return err
	}
	g.size = size.GetTargetSize()
	last, known := a.cached[id]
	if !known || a.Now().Sub(last.at) > instancesFresh {
		all, err := send(ctx, a, "NodeGroupNodes", id, a.Fleet.NodeGroupNodes, &externalgrpc.NodeGroupNodesRequest{Id: id})
		if err != nil {
			return err
		}
		last = cached{all.GetInstances(), a.Now()}
		a.cached[id] = last
	}
	g.instances = last.instances
	for _, instance := range g.instances {
		if registered[instance.GetId()] {
			continue
		}
		since, known := a.unregistered[instance.GetId()]
		if !known {
			a.unregistered[instance.GetId()] = a.Now()
		} else if a.Now().Sub(since) > a.Provision {
			g.late = append(g.late, instance.GetId())
		}
	}
	return nil
}

func described(node *corev1.Node) *externalgrpc.ExternalGrpcNode {
	return &externalgrpc.ExternalGrpcNode{
		ProviderID: node.Spec.ProviderID, Name: node.Name, Labels: node.Labels, Annotations: node.Annotations,
	}
}

// deleteNodes deletes Nodes, or instances.
func (a *Autoscaler) deleteNodes(ctx context.Context, g *group, nodes []*externalgrpc.ExternalGrpcNode) error {
	_, err := send(ctx, a, "NodeGroupDeleteNodes", g.GetId(), a.Fleet.NodeGroupDeleteNodes,
		&externalgrpc.NodeGroupDeleteNodesRequest{Id: g.GetId(), Nodes: nodes})
	delete(a.cached, g.GetId())
	return err
}

// backOff does not scale a group up for some time.
func (a *Autoscaler) backOff(id string) {
	next := min(max(2*a.backoffs[id].last, firstBackoff), lastBackoff)
	a.backoffs[id] = backoff{a.Now().Add(next), next}
	delete(a.requests, id)
}
