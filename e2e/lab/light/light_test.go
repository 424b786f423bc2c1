package light

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// bed is a light cluster that listens, with its CA.
type bed struct {
	*Cluster
	t   *testing.T
	ca  *controlplane.CA
	url string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	now := time.Now()
	ca, err1 := controlplane.NewCA("light", now)
	serving, err2 := ca.Issue(controlplane.Subject{User: "light", Hosts: []string{"127.0.0.1"}}, now)
	c, err3 := New(Config{Name: "light-1", CA: ca.Cert, Cert: serving.Cert, Key: serving.Key}, clock.RealClock{},
		slog.New(slog.DiscardHandler))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(c)
	server.TLS, server.EnableHTTP2 = c.tls, true
	server.StartTLS()
	t.Cleanup(server.Close)
	return &bed{c, t, ca, server.URL}
}

// client returns a client in protobuf, as the fleet and cloudsim have it: with a client certificate
// of a CA for a user, or with a token if that is not empty.
func (b *bed) client(ca *controlplane.CA, user, token string) kubernetes.Interface {
	b.t.Helper()
	config := &rest.Config{Host: b.url, QPS: -1, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: b.ca.Cert}}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if user != "" {
		pair, err := ca.Issue(controlplane.Subject{User: user, Groups: []string{mastersGroup}}, time.Now())
		if err != nil {
			b.t.Fatal(err)
		}
		config.CertData, config.KeyData = pair.Cert, pair.Key
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

func (b *bed) admin() kubernetes.Interface { return b.client(b.ca, "admin", "") }

// user returns who the user of a client is, or the error.
func (b *bed) user(client kubernetes.Interface) string {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(b.t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	case err != nil:
		return "no connection"
	}
	return review.Status.UserInfo.Username
}

func (b *bed) addBootstrapToken(id, expiration string) {
	apiserver.Add(b.server, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"expiration": []byte(expiration),
		},
	})
}

func TestUsersAreAuthenticated(t *testing.T) {
	b := newBed(t)
	other, err := controlplane.NewCA("another", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b.addBootstrapToken("valid0", "")
	b.addBootstrapToken("expire", "2020-01-01T00:00:00Z")
	joining := b.client(nil, "", "valid0.0123456789abcdef")
	for _, c := range []struct {
		name, want string
		client     kubernetes.Interface
	}{
		{"no credentials", "unauthorized", b.client(nil, "", "")},
		{"an unknown token", "unauthorized", b.client(nil, "", "unknown")},
		{"a certificate of the CA", "admin", b.admin()},
		{"a certificate of another CA", "no connection", b.client(other, "admin", "")},
		{"a bootstrap token", "system:bootstrap:valid0", joining},
		{"a bootstrap token with another secret", "unauthorized", b.client(nil, "", "valid0.0123456789abcdeX")},
		{"a bootstrap token that has expired", "unauthorized", b.client(nil, "", "expire.0123456789abcdef")},
	} {
		if got := b.user(c.client); got != c.want {
			t.Errorf("%s: expected %s, got %s", c.name, c.want, got)
		}
	}
	if _, err := joining.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Nodes listed with a bootstrap token: %v", err)
	}
}

func TestTokenEndsWithItsSecret(t *testing.T) {
	b := newBed(t)
	admin := b.admin()
	secrets := admin.CoreV1().Secrets(metav1.NamespaceSystem)
	if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issued, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), "fleet", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "bound"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fleet := b.client(nil, "", issued.Status.Token)
	if got := b.user(fleet); got != "system:serviceaccount:kube-system:fleet" {
		t.Errorf("user of the token: %s", got)
	}
	if err := secrets.Delete(t.Context(), "bound", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.user(fleet); got != "unauthorized" {
		t.Errorf("user of the token without its Secret: %s", got)
	}
}

func TestEvictionsComplyWithDisruptionBudgets(t *testing.T) {
	b := newBed(t)
	admin := b.admin()
	for _, name := range []string{"a", "b", "free"} {
		apiserver.Add(b.server, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	apiserver.Add(b.server, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
		}}},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
	})
	evict := func(name string) error {
		return admin.PolicyV1().Evictions("default").
			Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	if err := evict("a"); err != nil || b.server.Get("pods", "default", "a") != nil {
		t.Errorf("the first of the budget: %v", err)
	}
	if err := evict("b"); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) ||
		b.server.Get("pods", "default", "b") == nil {
		t.Errorf("the second of the budget: %v", err)
	}
	if err := evict("free"); err != nil {
		t.Errorf("a pod without a budget: %v", err)
	}
	if err := evict("unknown"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that does not exist: %v", err)
	}
}

func TestWatchShowsChangesOverTheConnection(t *testing.T) {
	b := newBed(t)
	nodes := b.admin().CoreV1().Nodes()
	list, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Stop()
	if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.Patch(t.Context(), "n", types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, unschedulable := range []bool{false, true} {
		event := <-shown.ResultChan()
		if node, ok := event.Object.(*corev1.Node); !ok || node.Spec.Unschedulable != unschedulable {
			t.Errorf("expected a Node with unschedulable=%t, got %s %+v", unschedulable, event.Type, event.Object)
		}
	}
	b.server.Trim(-time.Hour) // what is newer than in an hour
	if _, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion}); !apierrors.IsResourceExpired(err) {
		t.Errorf("watched from a revision that was removed: %v", err)
	}
}

func TestLeasesAndPodsOfMissingNodesAreRemoved(t *testing.T) {
	b := newBed(t)
	apiserver.Add(b.server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "there"}})
	for _, name := range []string{"there", "gone"} {
		b.server.AddJSON("leases",
			`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"namespace":"kube-node-lease","name":"`+name+`"}}`)
		apiserver.Add(b.server, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: name},
		})
	}
	b.collect()
	for resource, namespace := range map[string]string{"leases": corev1.NamespaceNodeLease, "pods": metav1.NamespaceDefault} {
		if b.server.Get(resource, namespace, "there") == nil || b.server.Get(resource, namespace, "gone") != nil {
			t.Errorf("%s: %v", resource, b.server.List(resource))
		}
	}
}

func TestTwoClustersOfOneNameDiffer(t *testing.T) {
	uid := func(b *bed) types.UID { return b.server.Get("namespaces", "", metav1.NamespaceSystem).GetUID() }
	if one, two := newBed(t), newBed(t); uid(one) == uid(two) {
		t.Errorf("both have the UID %s", uid(one))
	}
}

func TestReplacedClusterIsEmptyAndAnother(t *testing.T) {
	b := newBed(t)
	uid := func() types.UID {
		is, err := b.admin().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return is.UID
	}
	apiserver.Add(b.server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	before := uid()
	b.Replace()
	if uid() == before || len(b.server.List("nodes")) > 0 {
		t.Errorf("after it was replaced: UID %s, before %s, Nodes %v", uid(), before, b.server.List("nodes"))
	}
}

func TestThrottledServerRefusesRequests(t *testing.T) {
	b := newBed(t)
	client := b.admin()
	b.SetFault(Fault{Throttled: true})
	err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes").MaxRetries(0).Do(t.Context()).Error()
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 {
		t.Errorf("throttled: %v", err)
	}
	b.SetFault(Fault{})
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("no longer throttled: %v", err)
	}
}

func TestServerThatHangsContinues(t *testing.T) {
	b := newBed(t)
	b.SetFault(Fault{DelayMillis: -1})
	answered := make(chan error)
	go func() {
		_, err := b.admin().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		answered <- err
	}()
	for b.Usage()["admin"].Requests == 0 { // it is counted before it waits
		goruntime.Gosched()
	}
	select {
	case err := <-answered:
		t.Errorf("answered while the server hangs: %v", err)
	default:
	}
	b.SetFault(Fault{})
	if err := <-answered; err != nil {
		t.Errorf("answered when it continues: %v", err)
	}
}

func TestServerFloodsItsClients(t *testing.T) {
	b := newBed(t)
	apiserver.Add(b.server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real"}})
	nodes := b.admin().CoreV1().Nodes()
	b.SetFault(Fault{Nodes: 5})
	var names []string
	for next, more := (metav1.ListOptions{Limit: 2}), true; more; more = next.Continue != "" {
		page, err := nodes.List(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range page.Items {
			names = append(names, node.Name)
		}
		next.Continue = page.Continue
	}
	if want := []string{"flood-0", "flood-1", "flood-2", "flood-3", "flood-4"}; !slices.Equal(names, want) {
		t.Errorf("many Nodes: expected %q, got %q", want, names)
	}
	const bytes = 1 << 20
	b.SetFault(Fault{AnswerBytes: bytes})
	if list, err := nodes.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items[0].Annotations["filler"]) != bytes {
		t.Errorf("a large answer: expected a Node of %d bytes, got %d (%v)", bytes, len(list.Items), err)
	}
	b.SetFault(Fault{Events: true})
	watch, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if node, ok := (<-watch.ResultChan()).Object.(*corev1.Node); !ok || node.ResourceVersion != strconv.Itoa(8+i) {
			t.Fatalf("event %d: expected another version of a Node, got %v", i, node)
		}
	}
	b.SetFault(Fault{})
	for range watch.ResultChan() { // until it is closed
	}
	if list, err := nodes.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "real" {
		t.Errorf("after the fault: %v (%v)", list.Items, err)
	}
	if begun := b.Usage()["admin"].NodeWatches; len(begun) != 1 || begun[0].Begun.IsZero() || begun[0].UserAgent == "" {
		t.Errorf("watches of Nodes: expected one with its time and client, got %v", begun)
	}
}
