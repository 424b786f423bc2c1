package configcache

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// bench is a Cache with an API server in memory.
type bench struct {
	*testing.T
	*Cache

	server *apiserver.Server

	mu     sync.Mutex
	owned  map[string]bool // names of what the replica owns
	events []string
	gets   []string // paths of lists and watches
	failed int      // lists
}

// RoundTrip records what is listed.
func (b *bench) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		b.mu.Lock()
		b.gets = append(b.gets, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		b.mu.Unlock()
	}
	return b.server.RoundTrip(r)
}

func (b *bench) owns(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owned[name]
}

func (b *bench) own(names ...string) {
	b.mu.Lock()
	b.owned = map[string]bool{}
	for _, name := range names {
		b.owned[name] = true
	}
	b.mu.Unlock()
	b.Look()
	synctest.Wait()
}

func note[T metav1.Object](b *bench, isNil func(T) bool, name string) func(before, after T) {
	return func(before, after T) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case isNil(before):
			b.events = append(b.events, "+"+name+" "+after.GetName())
		case isNil(after):
			b.events = append(b.events, "-"+name+" "+before.GetName())
		default:
			b.events = append(b.events, "~"+name+" "+after.GetName())
		}
	}
}

// expect compares the events since the last call.
func (b *bench) expect(want ...string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.events)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), b.events); diff != "" && len(want)+len(b.events) > 0 {
		b.Errorf("events, -want +got:\n%s", diff)
	}
	b.events = nil
}

// expectLists compares which resources were listed since the last call.
func (b *bench) expectLists(want ...string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.gets)
	if diff := cmp.Diff(want, b.gets); diff != "" && len(want)+len(b.gets) > 0 {
		b.Errorf("lists, -want +got:\n%s", diff)
	}
	b.gets = nil
}

func (b *bench) put(resource, name string, labels map[string]any) {
	b.Helper()
	kind := map[string]string{
		"machineconfigpools": "MachineConfigPool", "machineconfigs": "MachineConfig", "renderedmachineconfigs": "RenderedMachineConfig",
		"kubeletconfigs": "KubeletConfig", "controllerconfigs": "ControllerConfig",
	}[resource]
	_, err := b.server.Put(resource, map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name, "labels": labels},
	})
	if err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// inBubble runs test with a Cache that runs.
func inBubble(t *testing.T, test func(b *bench)) { inBubbleOf(t, "", 0, test) }

// inBubbleOf is inBubble with the Cache of a namespace.
func inBubbleOf(t *testing.T, namespace string, most int64, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: apiserver.New("t", time.Now), owned: map[string]bool{}}
		clients := apiserver.ClientsThrough(b)
		var err error
		b.Cache, err = New(Config{
			Client: clients.Configs, Metadata: clients.Metadata, Owns: b.owns,
			OwnsPool:  func(pool *v1alpha1.MachineConfigPool) bool { return b.owns(pool.Name) },
			Namespace: namespace, Most: most, Failed: func(error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.failed++
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.OnPool(note(b, func(p *v1alpha1.MachineConfigPool) bool { return p == nil }, "pool"))
		b.OnMachineConfig(note(b, func(p *v1alpha1.MachineConfig) bool { return p == nil }, "config"))
		b.OnKubeletConfig(note(b, func(p *v1alpha1.KubeletConfig) bool { return p == nil }, "kubelet"))
		b.OnControllerConfig(note(b, func(p *v1alpha1.ControllerConfig) bool { return p == nil }, "control"))
		b.OnRendered(note(b, func(p *metav1.PartialObjectMetadata) bool { return p == nil }, "rendered"))
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		b.put("machineconfigpools", "p", nil)
		b.put("machineconfigs", "c", map[string]any{"for": "p"})
		b.put("renderedmachineconfigs", "rendered-p-1", map[string]any{v1alpha1.LabelPool: "p"})
		b.put("renderedmachineconfigs", "rendered-q-1", map[string]any{v1alpha1.LabelPool: "q"})
		go func() {
			b.Cache.Run(ctx)
			close(done)
		}()
		synctest.Wait()
		test(b)
		end()
		<-done
	})
}

// A replica without a pool watches what is small, and nothing else.
func TestMachineConfigsAreWatchedByOwnersOnly(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.expectLists("controllerconfigs", "kubeletconfigs", "machineconfigpools")
		b.expect("+pool p")
		if !b.Ready() || len(b.MachineConfigs()) > 0 {
			b.Errorf("ready: %t, MachineConfigs: %d", b.Ready(), len(b.MachineConfigs()))
		}
		b.own("p")
		b.expectLists("machineconfigs", "renderedmachineconfigs")
		b.expect("+pool p")
		if !b.Ready() || len(b.MachineConfigs()) != 1 || len(b.Rendered("p")) != 1 || b.Rendered("p")[0].Name != "rendered-p-1" {
			b.Errorf("ready: %t, MachineConfigs: %v, rendered: %v", b.Ready(), b.MachineConfigs(), b.Rendered("p"))
		}
		b.own()
		b.expect("+pool p")
		if len(b.MachineConfigs()) > 0 || len(b.Rendered("p")) > 0 {
			b.Error("a replica without a pool keeps MachineConfigs")
		}
		b.put("machineconfigs", "d", nil)
		b.expect()
		b.own("p")
		b.expect("+pool p")
		if len(b.MachineConfigs()) != 2 {
			b.Errorf("%d MachineConfigs, want those that changed meanwhile, too", len(b.MachineConfigs()))
		}
	})
}

// The owner of a KubeletConfig or of the ControllerConfig needs MachineConfigs of other pools.
func TestEveryOwnerHasMachineConfigs(t *testing.T) {
	for resource, name := range map[string]string{"kubeletconfigs": "k", "controllerconfigs": v1alpha1.ControllerConfigName} {
		t.Run(resource, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.own(name)
				if len(b.MachineConfigs()) > 0 {
					b.Error("the object does not exist yet")
				}
				b.put(resource, name, nil)
				if !b.Ready() || len(b.MachineConfigs()) != 1 {
					b.Errorf("ready: %t, %d MachineConfigs", b.Ready(), len(b.MachineConfigs()))
				}
				b.server.Delete(resource, "", name)
				synctest.Wait()
				if len(b.MachineConfigs()) > 0 {
					b.Error("the object was deleted, and MachineConfigs are still watched")
				}
			})
		})
	}
}

// The first pool of a replica is announced again when MachineConfigs are listed: it could not be
// reconciled before.
func TestFirstPoolIsAnnouncedWhenReady(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.own("q")
		b.expect("+pool p", "+pool p")
		var ready []bool
		b.OnPool(func(_, after *v1alpha1.MachineConfigPool) {
			if after != nil && after.Name == "q" {
				ready = append(ready, b.Ready())
			}
		})
		b.put("machineconfigpools", "q", nil)
		b.expect("+pool p", "+pool q", "+pool q")
		if !slices.Equal(ready, []bool{false, true}) {
			b.Errorf("ready at the announcements: %v, want first not, then ready", ready)
		}
	})
}

// Changes of labels are delivered with what was before, and only the ControllerConfig of the one
// name is.
func TestHandlersSeeChanges(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.own("p")
		b.expect("+pool p", "+pool p")
		b.put("machineconfigs", "c", map[string]any{"for": "q"})
		b.put("controllerconfigs", "other", nil)
		b.put("controllerconfigs", v1alpha1.ControllerConfigName, nil)
		b.server.Edit("machineconfigpools", "", "p", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"a": "b"})
		})
		b.server.Delete("machineconfigs", "", "c")
		b.server.Delete("renderedmachineconfigs", "", "rendered-q-1")
		b.expect("~config c", "+control "+v1alpha1.ControllerConfigName, "~pool p", "-config c", "-rendered rendered-q-1")
		if c := b.ControllerConfig(); c == nil || c.Name != v1alpha1.ControllerConfigName {
			b.Errorf("ControllerConfig %v", c)
		}
	})
}

// Look has all objects announced once, also when it is called often.
func TestLookAnnouncesEverything(t *testing.T) {
	inBubble(t, func(b *bench) {
		for i := range 3 {
			b.put("kubeletconfigs", fmt.Sprint("k", i), nil)
		}
		b.expect("+pool p", "+kubelet k0", "+kubelet k1", "+kubelet k2")
		b.Look()
		b.Look()
		synctest.Wait()
		b.mu.Lock()
		n := len(b.events)
		b.mu.Unlock()
		if n != 4 && n != 8 {
			b.Errorf("%d announcements of 4 objects", n)
		}
	})
}

// A pool is for the namespace of its machines, and any object without is claimed. A claim is
// reported like something new, because handlers have not acted on the object before.
func TestWhatIsForANamespace(t *testing.T) {
	inBubbleOf(t, "a", 0, func(b *bench) {
		b.own("p", "own", "other", "claimed", "k")
		for name, of := range map[string]string{"own": "a", "other": "b"} {
			_, err := b.server.Put("machineconfigpools", map[string]any{
				"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "MachineConfigPool",
				"metadata": map[string]any{"name": name, "annotations": map[string]any{v1alpha1.AnnotationNamespace: "a"}},
				"spec":     map[string]any{"machineRef": map[string]any{"kind": "MachineDeployment", "namespace": of, "name": "d"}},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.put("kubeletconfigs", "k", nil)
		names := func() (names []string) {
			for _, pool := range b.Owned() {
				names = append(names, pool.Name)
			}
			return names
		}
		if got := names(); !slices.Equal(got, []string{"own"}) {
			b.Errorf("owned are %v, want the pool of the namespace's machines only", got)
		}
		pool, _ := b.Pool("p")
		claimed := pool.DeepCopy()
		b.Claim(&claimed.ObjectMeta)
		if is, was := b.StandingOfPool(claimed), b.StandingOfPool(pool); is != Own || was != Unclaimed {
			b.Errorf("the standing is %d, and was %d", is, was)
		}
		b.mu.Lock()
		b.events = nil
		b.mu.Unlock()
		b.server.Edit("machineconfigpools", "", "p", func(u *unstructured.Unstructured) { u.SetAnnotations(claimed.Annotations) })
		synctest.Wait()
		b.expect("~pool p", "+pool p", "+pool own", "+pool other", "+kubelet k")
		b.server.Edit("kubeletconfigs", "", "k", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{v1alpha1.AnnotationNamespace: "b"})
		})
		synctest.Wait()
		kubelet, _ := b.KubeletConfig("k")
		if got := b.Standing(kubelet); got != OfOther {
			b.Errorf("the standing of an object with another namespace is %d", got)
		}
	})
}

// Of a cluster whose API server may send any objects so many are kept.
func TestMostOfAKind(t *testing.T) {
	inBubbleOf(t, "a", 64<<10, func(b *bench) {
		if !b.Ready() || b.failed > 0 {
			b.Fatal("few objects are not listed")
		}
		b.own("p")
		b.put("machineconfigs", "large", map[string]any{"x": strings.Repeat("x", 600<<10)})
		b.server.Edit("machineconfigpools", "", "p", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{v1alpha1.AnnotationNamespace: "a"})
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.Ready() || b.failed == 0 {
			b.Errorf("ready: %t after %d failed lists of more than 64 KiB, want it not to be", b.Ready(), b.failed)
		}
	})
}
