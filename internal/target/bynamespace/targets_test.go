package bynamespace

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/connection"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// landscape is a control cluster and target clusters in memory, which are reached by the host of
// their URLs.
type landscape struct {
	*testing.T

	control  *apiserver.Server
	clusters map[string]*apiserver.Server
	hostile  map[string]func(next http.RoundTripper) http.RoundTripper // by host; they may answer instead of clusters
	targets  *Targets

	mu     sync.Mutex
	first  map[string]types.UID // clusters of namespaces
	events []string             // of Nodes
	work   []string             // that runs in clusters
	log    []string
}

// newCluster returns a target cluster with Nodes.
func newCluster(uid string, nodes ...string) *apiserver.Server {
	s := apiserver.Recording(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)}})
	for _, name := range nodes {
		apiserver.Add(s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return s
}

func inLandscape(t *testing.T, selected Selection, test func(l *landscape)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &landscape{
			T: t, control: apiserver.Recording(), first: map[string]types.UID{},
			clusters: map[string]*apiserver.Server{
				"https://a.example": newCluster("a", "node-1"), "https://b.example": newCluster("b", "node-1", "node-2"),
			},
		}
		budgets, err := requests.New(requests.Config{Total: 400, Clock: clock.RealClock{}})
		if err != nil {
			t.Fatal(err)
		}
		l.targets, err = New(Config{
			Secrets: l.control.Core().CoreV1(), Select: selected, Connect: l.connect, Identify: l.identify, BlindAfter: 10 * time.Second,
			OutageAfter: 30 * time.Second,
			Clock:       clock.RealClock{}, Budgets: budgets, Policy: access.Policy{Refused: access.Local()},
		})
		if err != nil {
			t.Fatal(err)
		}
		l.targets.OnNodeChange(func(of *target.Cluster, before, after *corev1.Node) {
			l.mu.Lock()
			defer l.mu.Unlock()
			switch {
			case before == nil:
				l.events = append(l.events, of.Name+" +"+after.Name)
			case after == nil:
				l.events = append(l.events, of.Name+" -"+before.Name)
			}
		})
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.log = append(l.log, line)
		}, funcr.Options{})))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.targets.Run(ctx)
		}()
		test(l)
		stop()
		<-ended
	})
}

func (l *landscape) connect(namespace string, config *rest.Config, wrap transport.WrapperFunc) (*Link, error) {
	server := l.clusters[config.Host]
	if server == nil {
		return nil, fmt.Errorf("no cluster at %s", config.Host)
	}
	if _, isBounded := config.Transport.(*connection.Connection); !isBounded {
		return nil, fmt.Errorf("want requests through a connection, which bounds answers, got %T", config.Transport)
	}
	answers := http.RoundTripper(server)
	if hostile := l.hostile[config.Host]; hostile != nil {
		answers = hostile(server)
	}
	link := &Link{
		Cluster: target.New(apiserver.ClientsThrough(decode.PageTransport(wrap(answers))).Core), Run: func(ctx context.Context) { <-ctx.Done() },
		OnServerChange: func(func()) {},
	}
	note := func(does string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.work = append(l.work, fmt.Sprintf("%s %s with %d Nodes", namespace, does, link.Cluster.Nodes.Len()))
	}
	link.Begin = func() func(context.Context) {
		note("begins")
		return func(ctx context.Context) {
			<-ctx.Done()
			note("ends")
		}
	}
	return link, nil
}

func (l *landscape) identify(_ context.Context, namespace string, cluster types.UID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.first[namespace]; before != "" && before != cluster {
		return errors.New("it is another cluster than before")
	}
	l.first[namespace] = cluster
	return nil
}

// kindOf returns a label for a Secret.
func kindOf(data map[string][]byte) string {
	if data[access.KeyKubeconfig] != nil {
		return "kubeconfig"
	}
	return "other"
}

// put creates or changes a Secret; nil deletes it.
func (l *landscape) put(namespace, name string, data map[string][]byte) {
	l.Helper()
	secrets := l.control.Core().CoreV1().Secrets(namespace)
	if data == nil {
		if err := secrets.Delete(l.Context(), name, metav1.DeleteOptions{}); err != nil {
			l.Fatal(err)
		}
		return
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kind": kindOf(data)}}, Data: data,
	}
	_, err := secrets.Create(l.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		found, getErr := secrets.Get(l.Context(), name, metav1.GetOptions{})
		if getErr != nil {
			l.Fatal(err, getErr)
		}
		found.Data = data
		if _, err := secrets.Update(l.Context(), found, metav1.UpdateOptions{}); err != nil {
			l.Fatal(err)
		}
	}
}

// expect waits for a time and compares: nodes are those of the cluster, or why it is not available.
func (l *landscape) expect(after time.Duration, namespace, nodes string) {
	l.Helper()
	time.Sleep(after)
	synctest.Wait()
	cluster, err := l.targets.For(namespace)
	if err != nil {
		var unavailable *target.UnavailableError
		if !errors.As(err, &unavailable) || nodes == "" || !strings.Contains(unavailable.Reason, nodes) {
			l.Errorf("namespace %s: got %v, want %s", namespace, err, nodes)
		}
		return
	}
	var names []string
	for _, node := range cluster.Nodes.All() {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != nodes || cluster.Name != namespace {
		l.Errorf("namespace %s: got cluster %s with the Nodes %s, want %s", namespace, cluster.Name, got, nodes)
	}
}

var byName = Selection{Secret: "target"}

// A target exists while it has users, and for a moment longer.
func TestTargetsLastAsLongAsTheirUsers(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.put("two", "target", targettest.SecretOf("https://b.example", "t"))
		l.expect(0, "one", "no machine of the namespace has needed it yet")
		l.targets.Use("one")
		l.targets.Use("one")
		l.targets.Use("two")
		l.expect(time.Second, "one", "node-1")
		l.expect(0, "two", "node-1 node-2")
		l.targets.Leave("one")
		l.targets.Leave("two")
		l.expect(linger/2, "two", "node-1 node-2")
		l.targets.Use("two")
		l.expect(linger, "two", "node-1 node-2")
		l.expect(0, "one", "node-1")
		l.targets.Leave("one")
		l.targets.Leave("two")
		l.expect(linger+time.Second, "one", "no machine of the namespace has needed it yet")
		if want := []string{"one +node-1", "two +node-1", "two +node-2", "one -node-1", "two -node-1", "two -node-2"}; l.targets.Len() != 0 ||
			!sameElements(l.events, want) {
			t.Errorf("%d targets are open; got the events %v, want %v", l.targets.Len(), l.events, want)
		}
		want := []string{"one begins with 0 Nodes", "two begins with 0 Nodes", "one ends with 1 Nodes", "two ends with 2 Nodes"}
		if !sameElements(l.work, want) {
			t.Errorf("work in clusters: got %v, want %v", l.work, want)
		}
	})
}

func sameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func TestSecretsThatChange(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		l.targets.Use("one")
		l.expect(time.Second, "one", "expected a Secret target, got none; create it")
		l.put("one", "target", map[string][]byte{"x": nil})
		l.expect(time.Second, "one", "Secret target: expected the key kubeconfig or server, got no key")
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.expect(time.Second, "one", "node-1")
		lists := l.clusters["https://a.example"].Count("list nodes")
		l.put("one", "target", targettest.SecretOf("https://a.example", "renewed"))
		l.expect(time.Second, "one", "node-1")
		if got := l.clusters["https://a.example"].Count("list nodes"); got != lists {
			t.Errorf("the Nodes were listed again for another token")
		}
		l.put("one", "target", targettest.SecretOf("https://169.254.169.254", "t"))
		l.expect(time.Second, "one", "is in a network that no target cluster may be in")
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.expect(time.Second, "one", "node-1")
		l.put("one", "target", nil)
		l.expect(time.Second, "one", "expected a Secret target, got none")
	})
}

// A target that was not available for long has had an outage; not one that is being opened, or has
// another server, and none for less than 30 s.
func TestOutages(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		expect := func(from, back time.Time) {
			l.Helper()
			synctest.Wait()
			if got := l.targets.Outage("one"); !got.From.Equal(from) || !got.Back.Equal(back) {
				l.Errorf("got an outage from %s to %s, want %s to %s", got.From, got.Back, from, back)
			}
		}
		l.clusters["https://a.example"].Away(true)
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		expect(time.Time{}, time.Time{})
		l.targets.Use("one")
		l.expect(requests.Timeout-time.Second, "one", "it is being connected")
		l.clusters["https://a.example"].Away(false)
		l.put("one", "target", targettest.SecretOf("https://b.example", "t"))
		l.first["one"] = ""
		l.expect(2*time.Second, "one", "node-1 node-2")
		expect(time.Time{}, time.Time{})
		from := time.Now()
		l.put("one", "target", nil)
		l.expect(time.Hour, "one", "expected a Secret target, got none")
		expect(time.Time{}, time.Time{})
		l.put("one", "target", targettest.SecretOf("https://b.example", "t"))
		l.expect(0, "one", "node-1 node-2")
		back := time.Now()
		expect(from, back)
		l.put("one", "target", nil)
		l.expect(20*time.Second, "one", "expected a Secret target, got none")
		l.put("one", "target", targettest.SecretOf("https://b.example", "t"))
		l.expect(time.Second, "one", "node-1 node-2")
		expect(from, back)
		l.clusters["https://b.example"].Restore(newCluster("empty").Save())
		l.expect(time.Minute, "one", "it is another cluster than before")
		from = time.Now()
		l.first["one"] = ""
		l.expect(2*time.Minute, "one", "")
		if got := l.targets.Outage("one"); !got.Back.After(from) {
			l.Errorf("got the outage %+v, want one of another cluster", got)
		}
	})
}

// The namespace has had another cluster before.
func TestAnotherClusterIsNotAvailable(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.targets.Use("one")
		l.expect(time.Second, "one", "node-1")
		l.put("one", "target", targettest.SecretOf("https://b.example", "t"))
		l.expect(time.Second, "one", "it is another cluster than before")
		l.first["one"] = ""
		l.expect(longestPause, "one", "node-1 node-2")
		l.clusters["https://c.example"] = newCluster(strings.Repeat("u", longestUID+1))
		l.put("one", "target", targettest.SecretOf("https://c.example", "t"))
		l.expect(time.Second, "one", "with a UID of at most 64 bytes, got one of 65")
	})
}

// Its API server is replaced by one of another cluster, at the same address and with the same CA.
func TestClusterThatIsReplacedIsNotAvailable(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.targets.Use("one")
		l.expect(time.Second, "one", "node-1")
		l.clusters["https://a.example"].Restore(newCluster("empty").Save())
		l.expect(time.Minute, "one", "it is another cluster than before")
		if len(l.events) != 1 {
			l.Errorf("the loss of its Nodes was reported: %v", l.events)
		}
		l.first["one"] = "empty"
		l.expect(2*time.Minute, "one", "")
	})
}

// A target that delivers again is reported, so that what waits for it goes on.
func TestClusterThatDoesNotDeliver(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		var reports atomic.Int64
		l.targets.OnChange(func(string) { reports.Add(1) })
		a := l.clusters["https://a.example"]
		a.Refuse("list nodes", errors.New("no right"))
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.targets.Use("one")
		l.expect(time.Second, "one", "its Nodes cannot be listed: ")
		a.Fault(nil)
		l.expect(10*time.Second, "one", "node-1")
		a.Refuse("* nodes", errors.New("no right any more"))
		l.expect(15*time.Minute, "one", "its Nodes are not delivered: ") // after the watch has ended
		a.Fault(nil)
		before := reports.Load()
		l.expect(time.Minute, "one", "node-1")
		if n := reports.Load() - before; n != 1 {
			t.Errorf("%d reports that it delivers again, want 1", n)
		}
	})
}

// Gardener has one Secret with a kubeconfig, whose name changes, and one with the token.
func TestASecretByLabelWithTheTokenOfAnother(t *testing.T) {
	kubeconfig := map[string][]byte{
		access.KeyKubeconfig: []byte(fmt.Sprintf(`{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "a", "user": "b"}}],
		"clusters": [{"name": "a", "cluster": {"server": "https://a.example", "certificate-authority-data": %q}}],
		"users": [{"name": "b", "user": {"tokenFile": "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token"}}]}`,
			base64.StdEncoding.EncodeToString([]byte(targettest.Certificate)))),
	}
	inLandscape(t, Selection{Labels: "kind=kubeconfig", Token: "shoot-access"}, func(l *landscape) {
		l.put("one", "generic-1", kubeconfig)
		l.targets.Use("one")
		l.expect(time.Second, "one", "no file is read for a kubeconfig")
		l.put("one", "shoot-access", map[string][]byte{access.KeyToken: []byte("t")})
		l.expect(time.Second, "one", "node-1")
		l.put("one", "generic-2", map[string][]byte{access.KeyKubeconfig: []byte("{}")})
		l.expect(time.Second, "one", "Secret generic-2: ")
		for i := range mostSecrets {
			l.put("one", fmt.Sprintf("more-%03d", i), kubeconfig)
		}
		l.expect(time.Second, "one", "node-1")
		if got := l.targets.all["one"].main.store.Len(); got != mostSecrets {
			t.Errorf("%d Secrets are kept, want %d", got, mostSecrets)
		}
		l.targets.Leave("one")
		l.expect(linger+time.Second, "one", "no machine of the namespace has needed it yet")
		l.targets.Use("one")
		l.expect(time.Second, "one", "expected at most 100, got more")
	})
}

// The namespace has no user here. Its cluster is read, and nothing is watched.
func TestOpenForLiveReads(t *testing.T) {
	inLandscape(t, Selection{Secret: "target", Token: "shoot-access"}, func(l *landscape) {
		a := l.clusters["https://a.example"]
		expect := func(problem string) {
			l.Helper()
			a.Forget()
			ctx, cancel := context.WithTimeout(l.Context(), time.Second)
			defer cancel()
			cluster, release, err := l.targets.Open(ctx, "one")
			if problem != "" {
				var unavailable *target.UnavailableError
				if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Reason, problem) {
					l.Errorf("got the error %v, want %s", err, problem)
				}
				return
			}
			if err != nil {
				l.Fatal(err)
			}
			defer release()
			if _, err := cluster.Client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{}); err != nil || cluster.Name != "one" ||
				l.targets.Len() != 0 {
				l.Errorf("read a Node of cluster %s: %v; %d targets are open", cluster.Name, err, l.targets.Len())
			}
			if got, want := a.Log(), []string{"get namespaces", "get nodes"}; !slices.Equal(got, want) {
				l.Errorf("requests %q, want %q", got, want)
			}
		}
		expect("expected a Secret target, got none")
		l.put("one", "target", targettest.SecretOf("https://a.example", ""))
		expect("Secret target: ")
		l.put("one", "shoot-access", map[string][]byte{access.KeyToken: []byte("t")})
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		expect("")
		l.first["one"] = "b"
		expect("it is another cluster than before")
		a.Away(true)
		expect("read Namespace kube-system to identify the cluster: ")
	})
}
