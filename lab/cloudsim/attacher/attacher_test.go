package attacher

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud notes calls, and fails as often as it is told.
type cloud struct {
	mu    sync.Mutex
	calls []string
	fail  []cloudapi.ErrorCode
}

func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	c.calls = append(c.calls, r.Method+" "+r.URL.Path+" "+string(body))
	if len(c.fail) == 0 {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
	code := c.fail[0]
	c.fail = c.fail[1:]
	return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"code": %q}`, code)))}, nil
}

func attachment(change func(va *storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: cloudapi.CSIDriver, NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}},
	}
	change(va)
	return va
}

func deleting(va *storagev1.VolumeAttachment) {
	va.DeletionTimestamp, va.Finalizers = new(metav1.Now()), []string{finalizer, "other"}
}

func TestAttacher(t *testing.T) {
	const attach, detach = `PUT /v1/volumes/vol-1/attachment {"instanceID":"i-1"}`, `DELETE /v1/volumes/vol-1/attachment null`
	for name, c := range map[string]struct {
		va         *storagev1.VolumeAttachment
		fail       []cloudapi.ErrorCode
		calls      []string
		attached   bool
		finalizers []string
	}{
		"attach":            {va: attachment(func(*storagev1.VolumeAttachment) {}), calls: []string{attach}, attached: true, finalizers: []string{finalizer}},
		"attach is retried": {va: attachment(func(*storagev1.VolumeAttachment) {}), fail: []cloudapi.ErrorCode{cloudapi.CodeConflict, cloudapi.CodeNotFound}, calls: []string{attach, attach, attach}, attached: true, finalizers: []string{finalizer}},
		"attached":          {va: attachment(func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }), attached: true},
		"of another driver": {va: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other" })},
		"detach":            {va: attachment(deleting), calls: []string{detach}, finalizers: []string{"other"}},
		"detach is retried": {va: attachment(deleting), fail: []cloudapi.ErrorCode{cloudapi.CodeInternal}, calls: []string{detach, detach}, finalizers: []string{"other"}},
		"volume is gone":    {va: attachment(deleting), fail: []cloudapi.ErrorCode{cloudapi.CodeNotFound}, calls: []string{detach}, finalizers: []string{"other"}},
		"detached":          {va: attachment(func(va *storagev1.VolumeAttachment) { deleting(va); va.Finalizers = []string{"other"} }), finalizers: []string{"other"}},
		"PV is gone": {va: attachment(func(va *storagev1.VolumeAttachment) {
			deleting(va)
			va.Spec.Source.PersistentVolumeName = new("gone")
		}), finalizers: []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(c.va.DeepCopy(),
					&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "simulated:///r/z/i-1"}},
					&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
						CSI: &corev1.CSIPersistentVolumeSource{Driver: cloudapi.CSIDriver, VolumeHandle: "vol-1"},
					}}})
				calls := &cloud{fail: slices.Clone(c.fail)}
				a, err := New(Config{Client: client, Cloud: "http://cloud", HTTPClient: &http.Client{Transport: calls}, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- a.Run(ctx) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				va, err := client.StorageV1().VolumeAttachments().Get(t.Context(), "va", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.calls, calls.calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.finalizers, va.Finalizers); diff != "" || va.Status.Attached != c.attached {
					t.Errorf("attached=%t, want %t; finalizers (-want +got):\n%s", va.Status.Attached, c.attached, diff)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
