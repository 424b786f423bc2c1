package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Reader reads snapshots.
type Reader struct {
	// Machines is the client of the machine API, with a configuration of decode.Config, and Control
	// that of the other kinds of the control cluster.
	Machines machineclient.MachineV1alpha1Interface
	Control  kubeclient.Interface
	// Target is the client of the target cluster; nil where NoTarget says why there is none.
	Target   kubeclient.Interface
	NoTarget string
	// IsAssumed reports whether Target is the control cluster because no other one was named. Where
	// it has no Node of any machine it is not the target cluster, and Elsewhere says what to do.
	IsAssumed bool
	Elsewhere string
	// FleetNamespace and FleetName are where the Leases of the fleet are, and how they begin.
	FleetNamespace, FleetName string
	// Timeouts of the fleet.
	Timeouts view.Timeouts
}

// Scope selects what is read.
type Scope struct {
	// Namespace of the objects; "" reads all.
	Namespace string
	// Machines reads MachineDeployments, MachineSets and Machines.
	Machines bool
	// Classes reads MachineClasses.
	Classes bool
	// Namespaces reads the Namespace, or all.
	Namespaces bool
	// Leases reads those of the fleet.
	Leases bool
	// Nodes reads those of the target cluster.
	Nodes bool
	// EventsOf reads the Events about objects of this name, and those about the parents of machines;
	// "" reads none.
	EventsOf string
	// Pods reads the pods of all Nodes, and the PodDisruptionBudgets of all namespaces.
	Pods bool
	// PodsOf reads the pods of this Node, and the PodDisruptionBudgets of all namespaces; "" reads
	// none.
	PodsOf string
}

// Right is a right in RBAC that a read or a write needs.
type Right struct {
	Verb, Resource string
	// Namespace is "" for the whole cluster.
	Namespace string
	// Cluster is "control" or "target".
	Cluster string
}

// String returns the right for people.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	if r.Cluster == target {
		text += " of the target cluster"
	}
	return text
}

const target = "target"

// Explain returns an error of a request with the right that it needs, where that is missing.
func Explain(err error, right Right) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("missing the right to %s: %w", right, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept the credentials of the kubeconfig: %w", err)
	}
	return err
}

// Read reads a snapshot. Errors: the objects of the machine API cannot be read. All else that
// cannot be read is in Missing.
func (r Reader) Read(ctx context.Context, now time.Time, scope Scope) (view.Snapshot, error) {
	s := view.Snapshot{Now: now, FleetName: r.FleetName, Timeouts: r.Timeouts}
	if scope.Machines {
		if err := r.machines(ctx, &s, scope.Namespace); err != nil {
			return s, err
		}
	}
	if scope.Classes {
		right := Right{Verb: "list", Resource: "machineclasses." + v1alpha1.GroupName, Namespace: scope.Namespace}
		missing(&s, view.MissingClasses, right, r.classes(ctx, &s, scope.Namespace))
	}
	if scope.Namespaces {
		r.namespaces(ctx, &s, scope.Namespace)
	}
	if scope.Leases {
		right := Right{Verb: "list", Resource: "leases.coordination.k8s.io", Namespace: r.FleetNamespace}
		missing(&s, view.MissingLeases, right, r.leases(ctx, &s))
		if len(s.Leases) == 0 && !s.Misses(view.MissingLeases) {
			s.Missing = append(s.Missing, view.Missing{What: view.MissingLeases, Why: fmt.Sprintf(
				"there are none of a fleet %s in namespace %s; set --fleet-name and --fleet-namespace", r.FleetName, r.FleetNamespace)})
		}
	}
	if scope.Nodes {
		missing(&s, view.MissingNodes, Right{Verb: "list", Resource: "nodes", Cluster: target}, r.nodes(ctx, &s))
		r.assume(&s)
	}
	if scope.EventsOf != "" {
		right := Right{Verb: "list", Resource: "events.events.k8s.io", Namespace: scope.Namespace}
		missing(&s, view.MissingEvents, right, r.events(ctx, &s, scope))
	}
	if scope.PodsOf != "" || scope.Pods {
		missing(&s, view.MissingPods, Right{Verb: "list", Resource: "pods", Cluster: target}, r.pods(ctx, &s, scope.PodsOf))
		missing(&s, view.MissingBudgets, Right{Verb: "list", Resource: "poddisruptionbudgets.policy", Cluster: target}, r.budgets(ctx, &s))
	}
	return s, nil
}

// missing records a read that has failed.
func missing(s *view.Snapshot, what string, right Right, err error) {
	if err == nil {
		return
	}
	m := view.Missing{What: what, Why: err.Error()}
	if apierrors.IsForbidden(err) {
		m.Right, m.Why = right.String(), "the API server refuses the request"
	}
	s.Missing = append(s.Missing, m)
}

func (r Reader) machines(ctx context.Context, s *view.Snapshot, namespace string) error {
	api := r.Machines
	err := eachPage(ctx, s, "MachineDeployments", api.MachineDeployments(namespace).List, func(page *v1alpha1.MachineDeploymentList) {
		s.Deployments = append(s.Deployments, pointers(page.Items)...)
	})
	if err != nil {
		return Explain(err, Right{Verb: "list", Resource: "machinedeployments." + v1alpha1.GroupName, Namespace: namespace})
	}
	err = eachPage(ctx, s, "MachineSets", api.MachineSets(namespace).List, func(page *v1alpha1.MachineSetList) {
		s.Sets = append(s.Sets, pointers(page.Items)...)
	})
	if err != nil {
		return Explain(err, Right{Verb: "list", Resource: "machinesets." + v1alpha1.GroupName, Namespace: namespace})
	}
	err = eachPage(ctx, s, "Machines", api.Machines(namespace).List, func(page *v1alpha1.MachineList) {
		s.Machines = append(s.Machines, pointers(page.Items)...)
	})
	return Explain(err, Right{Verb: "list", Resource: "machines." + v1alpha1.GroupName, Namespace: namespace})
}

func (r Reader) classes(ctx context.Context, s *view.Snapshot, namespace string) error {
	return eachPage(ctx, s, view.MissingClasses, r.Machines.MachineClasses(namespace).List, func(page *v1alpha1.MachineClassList) {
		s.Classes = append(s.Classes, pointers(page.Items)...)
	})
}

// eachPage reads a list of the machine API, and records objects that do not decode as missing.
func eachPage[P decode.Page](ctx context.Context, s *view.Snapshot, what string, list decode.ListPage[P], visit func(P)) error {
	return decode.UntilPage(ctx, what, metav1.ListOptions{}, list, func(page P, undecodable []*decode.Failure) bool {
		visit(page)
		for _, f := range undecodable {
			s.Missing = append(s.Missing, view.Missing{
				What: fmt.Sprintf("%s %s/%s", what, f.Namespace, f.Name),
				Why:  "the object cannot be decoded: " + f.Error(),
			})
		}
		return false
	})
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

func (r Reader) namespaces(ctx context.Context, s *view.Snapshot, name string) {
	if name != "" {
		n, err := r.Control.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		missing(s, view.MissingNamespaces, Right{Verb: "get", Resource: "namespaces"}, err)
		if err == nil {
			s.Namespaces = append(s.Namespaces, n)
		}
		return
	}
	err := decode.EachPage(ctx, view.MissingNamespaces, r.Control.CoreV1().Namespaces().List, func(page *corev1.NamespaceList) {
		s.Namespaces = append(s.Namespaces, pointers(page.Items)...)
	})
	missing(s, view.MissingNamespaces, Right{Verb: "list", Resource: "namespaces"}, err)
}

func (r Reader) leases(ctx context.Context, s *view.Snapshot) error {
	list := r.Control.CoordinationV1().Leases(r.FleetNamespace).List
	return decode.EachPage(ctx, view.MissingLeases, list, func(page *coordinationv1.LeaseList) {
		for _, l := range pointers(page.Items) {
			if l.Labels[v1alpha1.LabelFleet] == r.FleetName || l.Name == r.FleetName+"-leader" {
				s.Leases = append(s.Leases, l)
			}
		}
	})
}

// assume records that Nodes are missing where the assumed target cluster has none of the machines.
func (r Reader) assume(s *view.Snapshot) {
	named := map[string]bool{}
	for _, m := range s.Machines {
		if name := m.Labels[v1alpha1.LabelNode]; name != "" {
			named[name] = true
		}
	}
	if !r.IsAssumed || len(named) == 0 || s.Misses(view.MissingNodes) ||
		slices.ContainsFunc(s.Nodes, func(n *corev1.Node) bool { return named[n.Name] }) {
		return
	}
	why := "the cluster of the kubeconfig has no Node of these machines; " + r.Elsewhere
	s.Missing = append(s.Missing, view.Missing{What: view.MissingNodes, Why: why})
}

// Node adds a Node of the target cluster to a snapshot. One that does not exist is not missing,
// unless the target cluster is assumed.
func (r Reader) Node(ctx context.Context, s *view.Snapshot, name string) {
	if r.Target == nil {
		missing(s, view.MissingNodes, Right{}, fmt.Errorf("%w: %s", errNoTarget, r.NoTarget))
		return
	}
	node, err := r.Target.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.Nodes = append(s.Nodes, node)
	case apierrors.IsNotFound(err) && r.IsAssumed:
		why := err.Error() + " in the cluster of the kubeconfig; " + r.Elsewhere
		s.Missing = append(s.Missing, view.Missing{What: view.MissingNodes, Why: why})
	case !apierrors.IsNotFound(err):
		missing(s, view.MissingNodes, Right{Verb: "get", Resource: "nodes", Cluster: target}, err)
	}
}

var errNoTarget = errors.New("no target cluster")

func (r Reader) nodes(ctx context.Context, s *view.Snapshot) error {
	if r.Target == nil {
		return fmt.Errorf("%w: %s", errNoTarget, r.NoTarget)
	}
	return decode.EachPage(ctx, view.MissingNodes, r.Target.CoreV1().Nodes().List, func(page *corev1.NodeList) {
		s.Nodes = append(s.Nodes, pointers(page.Items)...)
	})
}

func (r Reader) events(ctx context.Context, s *view.Snapshot, scope Scope) error {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("regarding.name", scope.EventsOf).String()}
	visit := func(page *eventsv1.EventList, _ []*decode.Failure) bool {
		s.Events = append(s.Events, pointers(page.Items)...)
		return false
	}
	return decode.UntilPage(ctx, view.MissingEvents, options, r.Control.EventsV1().Events(scope.Namespace).List, visit)
}

// pods reads the pods of a Node, or of all with "".
func (r Reader) pods(ctx context.Context, s *view.Snapshot, node string) error {
	if r.Target == nil {
		return fmt.Errorf("%w: %s", errNoTarget, r.NoTarget)
	}
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	return decode.UntilPage(ctx, "Pods", options, r.Target.CoreV1().Pods("").List, func(page *corev1.PodList, _ []*decode.Failure) bool {
		s.Pods = append(s.Pods, pointers(page.Items)...)
		return false
	})
}

func (r Reader) budgets(ctx context.Context, s *view.Snapshot) error {
	if r.Target == nil {
		return fmt.Errorf("%w: %s", errNoTarget, r.NoTarget)
	}
	list := r.Target.PolicyV1().PodDisruptionBudgets("").List
	return decode.EachPage(ctx, "PodDisruptionBudgets", list, func(page *policyv1.PodDisruptionBudgetList) {
		s.Budgets = append(s.Budgets, pointers(page.Items)...)
	})
}
