package autoscaler

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/certificates"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// fleet is a control cluster with Servers, as many as a test starts, and clients of them.
type fleet struct {
	testing.TB

	api         *apiserver.Server
	clock       *clocktesting.FakePassiveClock
	reviews     *fake.Clientset
	reviewed    atomic.Int64
	reviewsFail atomic.Bool
	revoked     atomic.Bool
	held, off   atomic.Value // string
	authority   *certificates.Signer
	metrics     *Metrics
}

func newFleet(tb testing.TB, objects ...apiserver.Typed) *fleet {
	tb.Helper()
	f := &fleet{
		TB: tb, api: apiserver.Recording(objects...), clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		reviews: fake.NewClientset(), authority: certificates.New(tb, nil), metrics: NewMetrics(),
	}
	f.held.Store("")
	f.off.Store("")
	f.reviews.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		f.reviewed.Add(1)
		if f.reviewsFail.Load() {
			return true, nil, context.DeadlineExceeded
		}
		create, _ := action.(clienttesting.CreateAction)
		asked, _ := create.GetObject().(*authorizationv1.SubjectAccessReview)
		answer := asked.DeepCopy()
		of := asked.Spec.ResourceAttributes
		answer.Status.Allowed = !f.revoked.Load() &&
			of.Verb == "autoscale" && of.Resource == "machinedeployments" && of.Group == "machine.sapcloud.io" &&
			asked.Spec.User == "system:serviceaccount:"+of.Namespace+":autoscaler"
		return true, answer, nil
	})
	return f
}

// server returns a Server.
func (f *fleet) server() *Server {
	f.Helper()
	server, err := New(Config{
		Machines: f.api.Machines(), Reviews: f.reviews.AuthorizationV1(),
		ForUser: func(ctx context.Context, _, _ string) context.Context { return ctx },
		Serves: func(namespace string) string {
			if namespace == "unserved" {
				return "it is another fleet's"
			}
			return ""
		},
		MaxPods: func(_, deployment string) (int64, bool) { return 50, deployment == "configured" },
		Off: func(string) string {
			why, _ := f.off.Load().(string)
			return why
		},
		Held: func(string) (string, bool) {
			why, _ := f.held.Load().(string)
			return why, why != ""
		},
		Wall: f.clock, Clock: f.clock, Metrics: f.metrics,
	})
	if err != nil {
		f.Fatal(err)
	}
	return server
}

// replica starts a Server, and returns a function that connects a client to it.
func (f *fleet) replica() func(certificate *tls.Certificate) externalgrpc.CloudProviderClient {
	f.Helper()
	connect := f.replicaWithConnections()
	return func(certificate *tls.Certificate) externalgrpc.CloudProviderClient {
		f.Helper()
		return externalgrpc.NewCloudProviderClient(connect(certificate))
	}
}

// connection returns a connection to a separate replica.
func (f *fleet) connection(certificate *tls.Certificate) *grpc.ClientConn {
	f.Helper()
	return f.replicaWithConnections()(certificate)
}

func (f *fleet) replicaWithConnections() func(certificate *tls.Certificate) *grpc.ClientConn {
	f.Helper()
	const buffer = 1 << 20
	server := f.server()
	listener := bufconn.Listen(buffer)
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(ctx, listener, f.authority.ForServer(f.TB)); err != nil {
			f.Error(err)
		}
	})
	f.Cleanup(func() {
		stop()
		running.Wait()
	})
	return func(certificate *tls.Certificate) *grpc.ClientConn {
		f.Helper()
		connection, err := grpc.NewClient("passthrough:///fleet",
			grpc.WithTransportCredentials(credentials.NewTLS(f.authority.ForClient(certificate))),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = connection.Close() })
		return connection
	}
}

// client returns the autoscaler of a namespace, at a separate replica.
func (f *fleet) client(namespace string) externalgrpc.CloudProviderClient {
	f.Helper()
	return f.replica()(f.certificateOf(namespace))
}

func (f *fleet) certificateOf(namespace string) *tls.Certificate {
	f.Helper()
	return certificates.New(f.TB, f.authority, certificates.Named("system:serviceaccount:"+namespace+":autoscaler")).Certificate()
}

func (f *fleet) deployment(name string) *v1alpha1.MachineDeployment {
	f.Helper()
	d, err := f.api.Machines().MachineDeployments("n").Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return d
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: code %s, want %s: %v", what, got, want, err)
	}
}

func uriOf(t *testing.T, text string) *url.URL {
	t.Helper()
	uri, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return uri
}

// pool returns a node group of namespace n with its MachineSet, its class, and as many machines
// that run.
func pool(name string, machines int, change ...func(*v1alpha1.MachineDeployment)) (objects []apiserver.Typed) {
	return poolIn("n", name, machines, change...)
}

func poolIn(namespace, name string, machines int, change ...func(*v1alpha1.MachineDeployment)) (objects []apiserver.Typed) {
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name),
		Annotations: map[string]string{v1alpha1.AnnotationMaxSize: "100"},
	}}
	d.Spec.Replicas = int32(machines)
	d.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: name}
	for _, f := range change {
		f(d)
	}
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, NodeTemplate: &v1alpha1.NodeTemplate{
		InstanceType: "t", Region: "r", Zone: "z",
	}}
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: d.UID + "-set",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v", Kind: "MachineDeployment", Name: name, UID: d.UID, Controller: new(true)}},
	}}
	objects = append(objects, d, class, set)
	for i := range machines {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i), UID: types.UID(fmt.Sprintf("%s-%d", d.UID, i)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v", Kind: "MachineSet", Name: name, UID: set.UID, Controller: new(true)}},
		}}
		m.Labels = map[string]string{v1alpha1.LabelNode: "node-" + m.Name}
		m.Spec.ProviderID = "vm://" + m.Name
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		objects = append(objects, m)
	}
	return objects
}

func nodes(names ...string) (all []*externalgrpc.ExternalGrpcNode) {
	for _, name := range names {
		all = append(all, &externalgrpc.ExternalGrpcNode{Name: "node-" + name, ProviderID: "vm://" + name})
	}
	return all
}
