package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/certificates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/clusterautoscaler"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// labelPool and labelZone are those that pods select Nodes by.
const labelPool, labelZone = "pool", corev1.LabelTopologyZone

// autoscaled is a trial whose MachineDeployments cluster-autoscalers scale, one for each namespace.
// Connections lead to the replicas in turn, as those to a Service.
type autoscaled struct {
	*trial

	authority *certificates.Signer
	scalers   []*scaler
	pods      []*clusterautoscaler.Pod
	errs      []error         // that have ended loops
	noQuota   map[string]bool // classes whose machines the cloud has no capacity for
	never     bool            // VMs that are new do not join
	scheduled time.Time       // when schedule was last called

	mu        sync.Mutex
	dials     int
	listeners map[*process]*bufconn.Listener
	serving   sync.WaitGroup
}

// scaler is the cluster-autoscaler of a namespace.
type scaler struct {
	*clusterautoscaler.Autoscaler

	next time.Time // of its next loop
}

func newAutoscaled(t *testing.T, edits ...func(*Options)) *autoscaled {
	t.Helper()
	edits = append(edits, func(o *Options) { o.ServeAutoscalers = true })
	s := &autoscaled{
		trial: newTrial(t, replicaOptions(edits...), 1, nil), authority: certificates.New(t, nil), noQuota: map[string]bool{},
		listeners: map[*process]*bufconn.Listener{},
	}
	s.target = apiserver.New("t", time.Now)
	s.network.disturb(&disturbance{
		name: "access of autoscalers", answers: review, of: func(q request) bool { return strings.HasSuffix(q.path, "/subjectaccessreviews") },
	})
	s.wrapDriver = func(d driver.Driver) driver.Driver {
		return driver.Around(d, func(ctx context.Context, call driver.Call, next func(context.Context) error) error {
			if call.Op == driver.OpCreate && s.noQuota[call.Target.Class.Name] {
				return &driver.Error{Code: driver.ResourceExhausted, Op: call.Op, Err: errors.New("no quota")}
			}
			return next(ctx)
		})
	}
	return s
}

// end ends all processes, and waits until nothing runs any more.
func (s *autoscaled) end() {
	s.trial.end()
	s.serving.Wait()
	if s.wrong != "" {
		s.Error(s.wrong)
	}
}

// review allows the ServiceAccount autoscaler of each namespace to scale there.
func review(r *http.Request) *http.Response {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	asked, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	of, ok := asked.(*authorizationv1.SubjectAccessReview)
	if err != nil || !ok {
		return nil
	}
	allowed := of.Spec.User == "system:serviceaccount:"+of.Spec.ResourceAttributes.Namespace+":autoscaler"
	return answerOf(r, http.StatusCreated, "application/json",
		fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":%t}}`, allowed))
}

// connect returns a client of the fleet: the autoscaler of a namespace.
func (s *autoscaled) connect(namespace string) externalgrpc.CloudProviderClient {
	s.Helper()
	certificate := certificates.New(s.T, s.authority, certificates.Named("system:serviceaccount:"+namespace+":autoscaler")).Certificate()
	connection, err := grpc.NewClient("passthrough:///"+certificates.ServerName,
		grpc.WithTransportCredentials(credentials.NewTLS(s.authority.ForClient(certificate))), grpc.WithContextDialer(s.dial))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = connection.Close() })
	return externalgrpc.NewCloudProviderClient(connection)
}

// dial connects to one of the replicas that work.
func (s *autoscaled) dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	ready := slices.DeleteFunc(s.alive(), func(p *process) bool { return p.leaving })
	if len(ready) == 0 {
		s.mu.Unlock()
		return nil, errBroken
	}
	p := ready[s.dials%len(ready)]
	s.dials++
	listener := s.listeners[p]
	if listener == nil {
		const buffer = 64 << 10
		listener = bufconn.Listen(buffer)
		s.listeners[p] = listener
		s.serve(p, listener)
	}
	s.mu.Unlock()
	conn, err := listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &dialed{Conn: conn, closed: make(chan struct{})}
	s.serving.Go(func() {
		select {
		case <-p.dead:
			_ = c.Close()
		case <-c.closed:
		}
	})
	return c, nil
}

// dialed is a connection whose Close closes a channel, too.
type dialed struct {
	net.Conn

	once   sync.Once
	closed chan struct{}
}

func (c *dialed) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// serve serves autoscalers at a replica, as its process does: until it is asked to leave.
func (s *autoscaled) serve(p *process, listener *bufconn.Listener) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.Context()))
	s.serving.Go(func() {
		defer stop()
		select {
		case <-p.dead:
		case <-p.leave:
		}
	})
	config := s.authority.ForServer(s.T)
	s.serving.Go(func() {
		if err := p.fleet.Autoscalers().Serve(ctx, listener, config); err != nil {
			s.fail("serve autoscalers: %v", err)
		}
	})
}

// pool creates a node group with a class of its name, in the zone of its name.
func (s *autoscaled) pool(namespace, name string, replicas, least, most int) {
	s.createClass(namespace)
	s.put(s.control, "machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": namespace, "name": name},
		"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "small"},
		"nodeTemplate": map[string]any{
			"capacity": map[string]any{"cpu": "4", "memory": "16Gi", "gpu": "0"}, "instanceType": "standard-4", "region": "r", "zone": name,
		},
	})
	s.createRoot(&root{namespace: namespace, name: name, replicas: replicas})
	s.control.Edit("machinedeployments", namespace, name, func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationMinSize: fmt.Sprint(least), v1alpha1.AnnotationMaxSize: fmt.Sprint(most)})
		for value, path := range map[string][]string{
			name:                   {"spec", "template", "spec", "class", "name"},
			namespace + "." + name: {"spec", "template", "spec", "nodeTemplate", "metadata", "labels", labelPool},
		} {
			_ = unstructured.SetNestedField(u.Object, value, path...) // they are objects
		}
	})
}

// autoscale starts the autoscaler of a namespace.
func (s *autoscaled) autoscale(namespace string) *scaler {
	s.Helper()
	a := &scaler{next: time.Now(), Autoscaler: clusterautoscaler.New(clusterautoscaler.Config{
		Fleet: s.connect(namespace), Cluster: s, Now: time.Now, Provision: 5 * time.Minute, Unneeded: time.Minute,
		AfterAdd: time.Minute, AfterFailure: 3 * time.Minute,
	})}
	s.scalers = append(s.scalers, a)
	return a
}

// Nodes returns the Nodes of the target cluster.
func (s *autoscaled) Nodes() []*corev1.Node { return apiserver.ReadAll[corev1.Node](s.target, "nodes") }

// Pods returns the pods of the target cluster.
func (s *autoscaled) Pods() (all []clusterautoscaler.Pod) {
	for _, pod := range s.pods {
		all = append(all, *pod)
	}
	return all
}

// taintDeleted is the taint of Nodes that an autoscaler deletes.
const taintDeleted = "ToBeDeletedByClusterAutoscaler"

// Taint adds the taint of a Node that is being deleted, or removes it.
func (s *autoscaled) Taint(node string, on bool) {
	apiserver.Change(s.target, "nodes", "", node, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintDeleted })
		if on {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taintDeleted, Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

// load creates pods that need Nodes with these labels.
func (s *autoscaled) load(pods int, on map[string]string) {
	for range pods {
		s.pods = append(s.pods, &clusterautoscaler.Pod{Name: fmt.Sprint("pod-", len(s.pods)), On: on})
	}
}

// unload deletes the pods on Nodes.
func (s *autoscaled) unload(nodes ...string) {
	s.pods = slices.DeleteFunc(s.pods, func(pod *clusterautoscaler.Pod) bool { return slices.Contains(nodes, pod.Node) })
}

// pending counts the pods without a Node.
func (s *autoscaled) pending() (n int) {
	for _, pod := range s.pods {
		if pod.Node == "" {
			n++
		}
	}
	return n
}

// kubernetes does each second what the cloud controller, the scheduler and the controllers of pods
// do, and runs the loops that are due.
func (s *autoscaled) kubernetes() {
	if s.never {
		s.cloud.Change(func(all []*fakecloud.Resource) {
			for _, v := range all {
				if !v.Joined && v.Live() {
					v.Boots = time.Now().Add(time.Hour)
				}
			}
		})
	}
	if time.Since(s.scheduled) >= time.Second {
		s.scheduled = time.Now()
		s.schedule()
	}
	for _, a := range s.scalers {
		if !time.Now().Before(a.next) {
			a.next = time.Now().Add(clusterautoscaler.ScanInterval)
			if err := a.Loop(s.Context()); err != nil {
				s.logf("a loop ends: %v", err)
				s.errs = append(s.errs, err)
			}
		}
	}
}

// schedule labels Nodes with their zones, and binds pods to Nodes.
func (s *autoscaled) schedule() {
	used := map[string]bool{}
	for _, pod := range s.pods {
		if pod.Node != "" && s.target.Get("nodes", "", pod.Node) == nil {
			pod.Node = ""
		}
		used[pod.Node] = true
	}
	if !used[""] {
		return
	}
	for _, node := range s.Nodes() {
		class := s.classOf(node)
		if class != "" && node.Labels[labelZone] == "" {
			apiserver.Change(s.target, "nodes", "", node.Name, func(n *corev1.Node) {
				if n.Labels == nil {
					n.Labels = map[string]string{}
				}
				n.Labels[labelZone] = class
			})
		}
		for _, pod := range s.pods {
			if pod.Node == "" && !used[node.Name] && pod.Fits(node) && len(node.Spec.Taints) == 0 && !node.Spec.Unschedulable {
				pod.Node, used[node.Name] = node.Name, true
			}
		}
	}
}

// classOf returns the class of the machine of a Node, "" if that is not known.
func (s *autoscaled) classOf(node *corev1.Node) string {
	ref, bound := v1alpha1.MachineOf(node)
	if !bound {
		return ""
	}
	if m := apiserver.Read[v1alpha1.Machine](s.control, "machines", ref.Namespace, ref.Name); m != nil {
		return m.Spec.Class.Name
	}
	return ""
}

// becomes lets time pass until cond holds.
func (s *autoscaled) becomes(what string, cond func() bool) {
	s.Helper()
	if !s.run(20*time.Minute, func() bool {
		s.kubernetes()
		return cond()
	}) {
		s.Fatalf("expected that %s: %d pods are pending, machines %v, changes %v, loops %v, %s",
			what, s.pending(), s.sizes(), s.changes(), s.errs, s.wrong)
	}
}

// lasts lets time pass.
func (s *autoscaled) lasts(d time.Duration) {
	s.run(d, func() bool {
		s.kubernetes()
		return false
	})
}

// machines returns the UIDs of the machines of a pool that are not being deleted, by name.
func (s *autoscaled) machines(namespace, pool string) map[string]types.UID {
	all := map[string]types.UID{}
	for _, m := range s.machinesOf(pool) {
		if m.Namespace == namespace && m.DeletionTimestamp == nil {
			all[m.Name] = m.UID
		}
	}
	return all
}

// sizes counts the machines of each pool, by namespace and name.
func (s *autoscaled) sizes() map[string]int {
	all := map[string]int{}
	for _, m := range s.control.List("machines") {
		all[m.GetNamespace()+"/"+m.GetLabels()["root"]]++
	}
	return all
}

// changes returns the calls of all autoscalers that change something.
func (s *autoscaled) changes() (all []clusterautoscaler.Call) {
	for _, a := range s.scalers {
		for _, method := range []string{"IncreaseSize", "DeleteNodes", "DecreaseTargetSize"} {
			all = append(all, a.Calls(method)...)
		}
	}
	return all
}
