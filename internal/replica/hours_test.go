package replica

import (
	"encoding/base64"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

var hours = flag.Float64("hours", 0.3, "simulated hours of TestHours, which compares from 1 on")

const (
	// sampleEvery is the time between two samples of TestHours, and changeEvery that between two
	// changes.
	sampleEvery, changeEvery = 10 * time.Minute, 15 * time.Second
	// eventTTL is for how long the API servers keep Events. Others keep them for an hour, in which
	// their number grows.
	eventTTL = sampleEvery
)

// footprint records what a fleet uses at rest.
type footprint struct{ heapKB, goroutines, watches, objects, events int }

// TestHours: for hours machines are scaled by users and by an autoscaler, are rolled, and fail, and
// credentials are rotated. Whenever the fleet is at rest with the same machines, it has as much
// memory, and as many goroutines, watches, objects and Events as before. The test is not parallel,
// because memory and goroutines are those of the process.
func TestHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAutoscaled(t)
		defer s.end()
		s.createUnmanaged()
		s.pool("a", "zone-a", 0, 0, 10)
		s.createClass("b")
		for i := range 5 {
			s.putRoot("b", fmt.Sprint("d-", i), 2)
		}
		s.start("fleet-2")
		s.begin("a")
		var samples []footprint
		for end := time.Now().Add(time.Duration(*hours * float64(time.Hour))); time.Now().Before(end); {
			s.change(sampleEvery)
			samples = append(samples, s.sample())
		}
		t.Logf("heap in kB, goroutines, watches, objects, Events: %v", samples)
		third := len(samples) / 3 // in the first, caches fill
		if third == 0 {
			return
		}
		before, last := mean(samples[third:2*third]), mean(samples[len(samples)-third:])
		for _, of := range []struct {
			what                      string
			before, last, more, noise int
		}{
			{"kB of heap", before.heapKB, last.heapKB, before.heapKB / 20, 512},
			{"goroutines", before.goroutines, last.goroutines, before.goroutines / 50, 4},
			{"watches", before.watches, last.watches, 0, 4},
			{"objects", before.objects, last.objects, 0, 10}, // some of them old MachineSets, for rollbacks
			{"Events", before.events, last.events, before.events / 5, 20},
		} {
			if of.last > of.before+max(of.more, of.noise) {
				t.Errorf("%d %s in the last third of %v h, %d in the second", of.last, of.what, *hours, of.before)
			}
		}
	})
}

// change changes the landscape for some time, and returns at rest, with the machines of the
// beginning.
func (s *autoscaled) change(d time.Duration) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && s.fine(); s.lasts(changeEvery) {
		r := s.roots[fmt.Sprint("b/d-", s.random.IntN(5))]
		switch s.random.IntN(8) {
		case 0, 1:
			s.putRoot(r.namespace, r.name, s.random.IntN(5))
		case 2:
			r.version = fmt.Sprint(time.Since(s.begun))
			s.relabelTemplate(r.namespace, r.name, r.version)
		case 3:
			s.sicken()
		case 4:
			s.rotate(r.namespace)
		case 5:
			s.load(1+s.random.IntN(3), map[string]string{labelPool: "a.zone-a"})
		case 6:
			s.pods = s.pods[len(s.pods)/2:]
		case 7:
			s.deleteToRecreate(r, false)
		}
	}
	s.pods = nil
	s.becomes("roots exist", func() bool { s.recreate(); return len(s.control.List("machinedeployments")) == 6 })
	for i := range 5 {
		s.putRoot("b", fmt.Sprint("d-", i), 2)
	}
	s.becomes("it is at rest", func() bool { return s.missing() == "" && len(s.later) == 0 })
	s.lasts(2 * time.Minute) // closes what is idle
}

// rotate replaces the credentials of a namespace's class.
func (s *autoscaled) rotate(namespace string) {
	s.control.Edit("secrets", namespace, "small", func(u *unstructured.Unstructured) {
		value := base64.StdEncoding.EncodeToString([]byte(time.Now().String()))
		_ = unstructured.SetNestedField(u.Object, value, "data", "password") // it is an object
	})
}

// sample forgets what the simulated clusters and cloud remember, as real ones do, and measures.
func (s *autoscaled) sample() (now footprint) {
	for _, server := range []*apiserver.Server{s.control, s.target} {
		for _, e := range apiserver.ReadAll[corev1.Event](server, "events") {
			if time.Since(e.CreationTimestamp.Time) > eventTTL {
				server.Remove("events", e.Namespace, e.Name)
			}
		}
		server.Trim(0)
		server.Forget()
		now.watches += server.Watches()
	}
	s.cloud.Forget()
	s.network.forget()
	for _, a := range s.scalers {
		a.Forget()
	}
	for _, resource := range []string{
		"machinedeployments", "machinesets", "machines", "machineclasses", "secrets", "leases", "configmaps", "poddisruptionbudgets",
	} {
		now.objects += len(s.control.List(resource))
	}
	now.objects += len(s.target.List("nodes")) + len(s.target.List("secrets"))
	now.events = len(s.control.List("events")) + len(s.target.List("events"))
	runtime.GC()
	runtime.GC() // what finalizers have released
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	now.heapKB, now.goroutines = int(memory.HeapAlloc>>10), runtime.NumGoroutine()
	return now
}

func mean(samples []footprint) (of footprint) {
	n := max(len(samples), 1)
	for _, s := range samples {
		of.heapKB += s.heapKB
		of.goroutines += s.goroutines
		of.watches += s.watches
		of.objects += s.objects
		of.events += s.events
	}
	return footprint{of.heapKB / n, of.goroutines / n, of.watches / n, of.objects / n, of.events / n}
}
