package configtest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// Bench is a cluster in memory, which is control and target cluster, with a replica that owns
// everything. Run creates one.
type Bench struct {
	*testing.T

	apiserver.Clients

	Server *apiserver.Server
	Cache  *configcache.Cache
	// Recorder has the Events.
	Recorder *Recorder

	mu     sync.Mutex
	writes []string
	reads  map[string]int // by path
	fault  func(request string) bool
	lost   bool
	ctx    context.Context //nolint:containedctx // of one test
}

// Recorder records Events as "reason: text".
type Recorder struct {
	mu   sync.Mutex
	said []string
}

// Eventf records an Event.
func (r *Recorder) Eventf(_, _ runtime.Object, _, reason, _, _ string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if len(args) > 0 {
		text, _ = args[0].(string)
	}
	r.said = append(r.said, reason+": "+text)
}

// Take returns the Events since the last call.
func (r *Recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.said
	r.said = nil
	return said
}

// Run runs test in a bubble.
func Run(t *testing.T, test func(b *Bench)) {
	t.Helper()
	RunOf(t, "", test)
}

// RunOf is Run in the target cluster of a namespace.
func RunOf(t *testing.T, namespace string, test func(b *Bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		b := &Bench{T: t, Server: apiserver.New("c", clock.RealClock{}.Now), Recorder: &Recorder{}, ctx: ctx, reads: map[string]int{}}
		b.Clients = apiserver.ClientsThrough(b)
		var err error
		b.Cache, err = configcache.New(configcache.Config{
			Client: b.Configs, Metadata: b.Metadata,
			OwnsPool: func(*v1alpha1.MachineConfigPool) bool { return b.owns() }, Owns: func(string) bool { return b.owns() },
			Namespace: namespace,
		})
		if err != nil {
			t.Fatal(err)
		}
		test(b)
		end()
		synctest.Wait()
	})
}

// Start runs the cache and controllers until the end of the test, or until the returned function is
// called.
func (b *Bench) Start(controllers ...interface{ Run(ctx context.Context) }) (stop func()) {
	ctx, end := context.WithCancel(b.ctx)
	for _, c := range append(controllers, b.Cache) {
		go c.Run(ctx)
	}
	synctest.Wait()
	return func() {
		end()
		synctest.Wait()
	}
}

// After lets time pass.
func (b *Bench) After(d time.Duration) {
	clock.RealClock{}.Sleep(d)
	synctest.Wait()
}

// Own gives the replica everything, or takes it.
func (b *Bench) Own(all bool) {
	b.mu.Lock()
	b.lost = !all
	b.mu.Unlock()
	b.Cache.Look()
	synctest.Wait()
}

// Admit is the Gate of a controller: it admits keys while the replica owns everything.
func (b *Bench) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	return ctx, func() {}, b.owns()
}

func (b *Bench) owns() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.lost
}

// Reads returns how often objects of a resource were read or listed.
func (b *Bench) Reads(resource string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for path, times := range b.reads {
		if slices.Contains(strings.Split(path, "/"), resource) {
			n += times
		}
	}
	return n
}

// RoundTrip records requests, and fails those that Fail names.
func (b *Bench) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		path := r.URL.Path[strings.Index(r.URL.Path[1:], "/v1")+1:]
		path = path[strings.Index(path[1:], "/")+2:]
		request := r.Method + " " + path
		b.mu.Lock()
		if r.Method == http.MethodGet {
			b.reads[path]++
		} else {
			b.writes = append(b.writes, request)
		}
		fails := b.fault != nil && b.fault(request)
		b.mu.Unlock()
		if fails {
			return nil, errors.New("the network is down")
		}
	}
	return b.Server.RoundTrip(r)
}

// Fail has the requests for which fault returns true, "METHOD resource/name", fail before they
// reach the server; nil ends that. Watches do not fail.
func (b *Bench) Fail(fault func(request string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

// Writes returns the writes since the last call, as "METHOD resource/name", in their order.
func (b *Bench) Writes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	writes := b.writes
	b.writes = nil
	return writes
}

// Put stores an object, which is YAML, and waits until it has been noticed.
func (b *Bench) Put(resource, document string) {
	b.Helper()
	b.store(resource, document, b.Server.Put)
}

// Replace stores an object, which is YAML, in the place of the one of its name, and waits until
// that has been noticed: no watch shows it.
func (b *Bench) Replace(resource, document string) {
	b.Helper()
	b.store(resource, document, b.Server.Replace)
	b.After(10 * time.Second) // the pause before the next list
}

func (b *Bench) store(resource, document string, in func(resource string, document map[string]any) (*apiserver.Object, error)) {
	b.Helper()
	object := map[string]any{}
	data, err := yaml.YAMLToJSON([]byte(document))
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err == nil {
		_, err = in(resource, object)
	}
	if err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// Edit changes a stored object as another client.
func (b *Bench) Edit(resource, name string, edit func(u *unstructured.Unstructured)) {
	b.Helper()
	if !b.Server.Edit(resource, "", name, edit) {
		b.Fatalf("%s %s does not exist", resource, name)
	}
	synctest.Wait()
}

// Read returns a stored object of a type; false when it does not exist.
func Read[T any](b *Bench, resource, name string) (obj T, ok bool) {
	b.Helper()
	stored := b.Server.Get(resource, "", name)
	if stored == nil {
		return obj, false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &obj); err != nil {
		b.Fatal(err)
	}
	return obj, true
}

// Pool returns a pool.
func (b *Bench) Pool(name string) v1alpha1.MachineConfigPool {
	b.Helper()
	pool, ok := Read[v1alpha1.MachineConfigPool](b, "machineconfigpools", name)
	if !ok {
		b.Fatalf("MachineConfigPool %s does not exist", name)
	}
	return pool
}

// Names returns the names of the objects of a resource.
func (b *Bench) Names(resource string) (names []string) {
	for _, o := range b.Server.List(resource) {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names
}
