package bynamespace

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// What docs/operations/landscapes.md says of a target at rest: two watches, no other request, and
// few goroutines; one more is that of the check of its API server, and two those of a connection.
func TestTargetAtRest(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		const targets, most = 10, 10
		for i := range targets {
			l.clusters[fmt.Sprintf("https://n%d.example", i)] = newCluster(fmt.Sprint(i), "node-1")
			l.put(fmt.Sprint("n", i), "target", targettest.SecretOf(fmt.Sprintf("https://n%d.example", i), "t"))
		}
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range targets {
			l.targets.Use(fmt.Sprint("n", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if each := (runtime.NumGoroutine() - before) / targets; each > most {
			t.Errorf("%d goroutines for each target, want at most %d", each, most)
		}
		if got, want := l.clusters["https://n0.example"].Log(), []string{
			"get namespaces", "list nodes", "watch nodes",
		}; !slices.Equal(got, want) {
			t.Errorf("got the requests %v, want %v", got, want)
		}
		if watches := l.control.Count("watch secrets"); watches != targets {
			t.Errorf("%d watches of Secrets, want one for each target", watches)
		}
	})
}

// BenchmarkTargetAtRest reports what an open target with 20 Nodes takes: in memory without a
// connection, and through TLS with both sides of the connection.
func BenchmarkTargetAtRest(b *testing.B) {
	for _, throughTLS := range []bool{false, true} {
		b.Run(fmt.Sprintf("tls=%t", throughTLS), func(b *testing.B) {
			for b.Loop() {
				measureRest(b, throughTLS)
			}
		})
	}
}

// measureRest opens targets, reports what they take, and closes them.
func measureRest(b *testing.B, throughTLS bool) {
	b.Helper()
	const n = 50
	var nodes []string
	for i := range 20 {
		nodes = append(nodes, fmt.Sprint("node-", i))
	}
	cluster, control := newCluster("a", nodes...), apiserver.Recording()
	server, ca := "https://a.example", []byte(targettest.Certificate)
	if throughTLS {
		s := httptest.NewUnstartedServer(cluster)
		s.EnableHTTP2 = true
		s.StartTLS()
		defer s.Close()
		server, ca = s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	for i := range n {
		data := targettest.SecretOf(server, "t")
		data[access.KeyCA] = ca
		apiserver.Add(control, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", i), Name: "target"}, Data: data})
	}
	budgets, err := requests.New(requests.Config{Total: 400, Clock: clock.RealClock{}})
	if err != nil {
		b.Fatal(err)
	}
	targets, err := New(Config{
		Secrets: control.Core().CoreV1(), Select: byName, BlindAfter: time.Minute, OutageAfter: time.Minute, Clock: clock.RealClock{},
		Budgets:  budgets,
		Identify: func(context.Context, string, types.UID) error { return nil },
		Connect: func(_ string, config *rest.Config, wrap transport.WrapperFunc) (*Link, error) {
			if !throughTLS {
				config.Transport = cluster
			}
			config.Wrap(wrap)
			client, err := kubernetes.NewForConfig(config)
			return &Link{Cluster: target.New(client), Run: func(ctx context.Context) { <-ctx.Done() }, OnServerChange: func(func()) {}}, err
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	available := make(chan bool, 100*n)
	targets.OnChange(func(namespace string) {
		_, err := targets.For(namespace)
		available <- err == nil
	})
	ctx, stop := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		targets.Run(ctx)
	}()
	bytes, goroutines := usage()
	for i := range n {
		targets.Use(fmt.Sprint("n", i))
	}
	for open := 0; open < n; {
		if <-available {
			open++
		}
	}
	moreBytes, moreGoroutines := usage()
	b.ReportMetric((moreBytes-bytes)/n/1000, "kB/target")
	b.ReportMetric((moreGoroutines-goroutines)/n, "goroutines/target")
	stop()
	<-ended
}

// usage returns the bytes of the heap and of stacks, and the goroutines.
func usage() (bytes, goroutines float64) {
	var is runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&is)
	return float64(is.HeapAlloc + is.StackInuse), float64(runtime.NumGoroutine())
}
