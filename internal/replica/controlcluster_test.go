package replica

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

func TestControlClusterIsReadUntilItIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error // of the reads; nil is a Namespace without UID
		errors  int     // that are logged
	}{
		"at once":               {nil, 0},
		"after two errors":      {[]error{errors.New("forbidden"), errors.New("forbidden")}, 1},
		"after one without UID": {[]error{nil}, 1},
		"after many errors":     {slices.Repeat([]error{errors.New("forbidden")}, 7), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			var reads atomic.Int64
			client.PrependReactor("get", "namespaces", func(k8stesting.Action) (bool, runtime.Object, error) {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
				at := int(reads.Add(1)) - 1
				if at < len(c.answers) {
					return true, namespace, c.answers[at]
				}
				namespace.UID = "uid-1"
				return true, namespace, nil
			})
			logged := 0
			logger := funcr.New(func(_, args string) {
				if strings.Contains(args, "Failed to identify") {
					logged++
				}
			}, funcr.Options{})
			cluster := &controlCluster{namespaces: client.CoreV1().Namespaces(), clock: clock.RealClock{}}
			done := make(chan struct{})
			go func() {
				defer close(done)
				cluster.Run(klog.NewContext(t.Context(), logger))
			}()
			for i, wait := range []int{1, 2, 4, 8, 16, 30, 30}[:len(c.answers)] {
				synctest.Wait()
				if got := cluster.ID(); got != "" || int(reads.Load()) != i+1 {
					t.Errorf("%s: ID %q before it was read, after %d reads, want %d", name, got, reads.Load(), i+1)
				}
				time.Sleep(time.Duration(wait) * time.Second)
			}
			<-done
			if got := cluster.ID(); got != "uid-1" || logged != c.errors || int(reads.Load()) != len(c.answers)+1 {
				t.Errorf("%s: ID %q after %d reads, %d errors logged; want uid-1 after %d, and %d",
					name, got, reads.Load(), logged, len(c.answers)+1, c.errors)
			}
		})
	}
}

func TestControlClusterIsNotReadWhenTheReplicaEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cluster := &controlCluster{namespaces: fake.NewClientset().CoreV1().Namespaces(), clock: clock.RealClock{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			cluster.Run(ctx)
		}()
		synctest.Wait()
		cancel()
		<-done
		if got := cluster.ID(); got != "" {
			t.Errorf("ID %q of a Namespace that does not exist", got)
		}
	})
}
