package machine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// silentCloud never answers calls for machines of other namespaces than "n".
type silentCloud struct {
	mu             sync.Mutex
	inFlight, most int
}

func (c *silentCloud) way(ctx context.Context, call fakecloud.Call, send func() error) error {
	if call.Op != driver.OpStatus || call.Machine.Namespace == "n" {
		return send()
	}
	c.mu.Lock()
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.inFlight--
	c.mu.Unlock()
	return &driver.Error{Code: driver.DeadlineExceeded, Op: driver.OpStatus, Err: ctx.Err()}
}

// silent creates machines in other namespaces, all of which use one Secret if shared, and one of
// each namespace if not. Their cloud never answers.
func (b *bench) silent(cloud *silentCloud, namespaces, machines int, shared bool) {
	b.Helper()
	b.cloud.Way = cloud.way
	var users []string
	for i := range namespaces {
		users = append(users, fmt.Sprint("silent-", i))
	}
	for _, ns := range users {
		secret := &corev1.SecretReference{Namespace: ns, Name: "s"}
		if shared {
			secret.Namespace = "shared"
		}
		apiserver.Add(b.server, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: "s", Annotations: map[string]string{
				v1alpha1.AnnotationSharedWith: strings.Join(users, ","),
			}},
			Data: map[string][]byte{v1alpha1.SecretKeyUserData: []byte("join <<BOOTSTRAP_TOKEN>>")},
		})
		b.machines(ns, secret, machines)
	}
}

// machines creates a class with a Secret in a namespace, and machines "m0", "m1", … of it.
func (b *bench) machines(ns string, secret *corev1.SecretReference, count int) {
	b.Helper()
	apiserver.Add(b.server, &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"}, Provider: testProvider, SecretRef: secret,
	})
	for i := range count {
		apiserver.Add(b.server, &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("m", i)},
			Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
		})
	}
}

// A cloud that never answers a namespace's 600 machines slows no create in another one.
func TestCloudThatNeverAnswersSlowsNoOtherMachine(t *testing.T) {
	var alone, withOthers time.Duration
	onBench(t, func(b *bench) {
		b.create()
		alone = b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
	})
	onBench(t, func(b *bench) {
		cloud := &silentCloud{}
		b.silent(cloud, 1, 600, false)
		b.pass(90 * time.Second) // in the second minute all workers of the namespace are held
		b.create()
		withOthers = b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
		if cloud.most != 4 {
			t.Errorf("%d calls were in flight at a time, want as many as a namespace may have, 4", cloud.most)
		}
	})
	if withOthers > alone {
		t.Errorf("a machine runs after %s next to 600 that hang, and after %s alone", withOthers, alone)
	}
}

// Nor does one that never answers five namespaces that share credentials: together they hold as
// many workers as one.
func TestCredentialsThatHangAreSharedByNamespaces(t *testing.T) {
	onBench(t, func(b *bench) {
		cloud := &silentCloud{}
		b.silent(cloud, 5, 20, true)
		b.pass(90 * time.Second)
		b.create()
		if took := b.becomes(v1alpha1.MachineRunning, 10*time.Minute); took > 5*time.Second {
			t.Errorf("a machine runs after %s next to namespaces that hang", took)
		}
		if cloud.most != 4 {
			t.Errorf("%d calls were in flight at a time with one set of credentials, want 4", cloud.most)
		}
	})
}
