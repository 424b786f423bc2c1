package csi

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers is a cloud that records calls, and fails as often as set.
type answers struct {
	mu    sync.Mutex
	calls []string
	fail  []cloudapi.ErrorCode
}

func (c *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	c.calls = append(c.calls, r.Method+" "+r.URL.RequestURI()+" "+string(body))
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
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: cloudapi.CSIDriver, NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")},
		},
	}
	change(va)
	return va
}

func deleting(va *storagev1.VolumeAttachment) {
	va.DeletionTimestamp, va.Finalizers = new(metav1.Now()), []string{finalizer, "other"}
	va.Annotations = map[string]string{annotationVolume: "vol-1", annotationInstance: "i-1"}
}

func TestAttacher(t *testing.T) {
	const attach, detach = `PUT /v1/volumes/vol-1/attachment {"instanceID":"i-1"}`, `DELETE /v1/volumes/vol-1/attachment?instanceID=i-1 null`
	for name, c := range map[string]struct {
		va         *storagev1.VolumeAttachment
		fail       []cloudapi.ErrorCode
		calls      []string
		attached   bool
		finalizers []string
	}{
		"attach": {
			va: attachment(func(*storagev1.VolumeAttachment) {}), calls: []string{attach}, attached: true, finalizers: []string{finalizer},
		},
		"attach is retried": {
			va: attachment(func(*storagev1.VolumeAttachment) {}), fail: []cloudapi.ErrorCode{cloudapi.CodeConflict, cloudapi.CodeNotFound},
			calls: []string{attach, attach, attach}, attached: true, finalizers: []string{finalizer},
		},
		"attached":          {va: attachment(func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }), attached: true},
		"of another driver": {va: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other" })},
		"detach":            {va: attachment(deleting), calls: []string{detach}, finalizers: []string{"other"}},
		"detach is retried": {
			va: attachment(deleting), fail: []cloudapi.ErrorCode{cloudapi.CodeInternal}, calls: []string{detach, detach},
			finalizers: []string{"other"},
		},
		"volume is gone": {
			va: attachment(deleting), fail: []cloudapi.ErrorCode{cloudapi.CodeNotFound}, calls: []string{detach}, finalizers: []string{"other"},
		},
		"detached": {
			va: attachment(func(va *storagev1.VolumeAttachment) { deleting(va); va.Finalizers = []string{"other"} }), finalizers: []string{"other"},
		},
		"PV is gone": {va: attachment(func(va *storagev1.VolumeAttachment) {
			deleting(va)
			va.Spec.Source.PersistentVolumeName = new("gone")
		}), calls: []string{detach}, finalizers: []string{"other"}},
		"Node is another VM by now": {va: attachment(func(va *storagev1.VolumeAttachment) {
			va.Finalizers = []string{finalizer}
			va.Annotations = map[string]string{annotationVolume: "vol-1", annotationInstance: "i-0"}
		}), calls: []string{attach}, attached: true, finalizers: []string{finalizer}},
		"Node is gone": {va: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "gone" })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(c.va.DeepCopy(),
					&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "simulated:///r/z/i-1"}},
					&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
						PersistentVolumeSource: corev1.PersistentVolumeSource{
							CSI: &corev1.CSIPersistentVolumeSource{Driver: cloudapi.CSIDriver, VolumeHandle: "vol-1"},
						},
					}})
				calls := &answers{fail: slices.Clone(c.fail)}
				a, err := New(Config{
					Client: client, Cloud: "http://cloud", HTTPClient: &http.Client{Transport: calls}, Log: slog.New(slog.DiscardHandler),
				})
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

// A volume is attached to one VM at a time, after the cloud's latency, and a VolumeAttachment of a
// VM that has lost it does not detach it from another VM.
func TestOneVMAtATime(t *testing.T) {
	inBed(t, nil, func(b *bed) {
		b.settings(`{"latency": {"AttachVolume": {"mean": "70s"}, "DetachVolume": {"mean": "40s"}}}`)
		v := call[cloudapi.Volume](b, http.MethodPost, cloudapi.PathVolumes, cloudapi.CreateVolumeRequest{Name: "v", SizeGiB: 1})
		must(b.client.CoreV1().PersistentVolumes().Create(b.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: cloudapi.CSIDriver, VolumeHandle: v.ID},
			}},
		}, metav1.CreateOptions{}))(b)
		vms := map[string]string{}
		for _, name := range []string{"a", "b"} {
			vm := call[cloudapi.Instance](b, http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: name})
			vms[name] = vm.ID
			created := node(name, vm.Zone)
			created.Spec.ProviderID = vm.ProviderID
			must(b.client.CoreV1().Nodes().Create(b.Context(), created, metav1.CreateOptions{}))(b)
		}
		vas := b.client.StorageV1().VolumeAttachments()
		attach := func(name string) {
			b.Helper()
			must(vas.Create(b.Context(),
				attachment(func(va *storagev1.VolumeAttachment) { va.Name, va.Spec.NodeName = name, name }), metav1.CreateOptions{}))(b)
		}
		expect := func(name string, attached bool, at string) {
			b.Helper()
			if va := must(vas.Get(b.Context(), name, metav1.GetOptions{}))(b); va.Status.Attached != attached {
				b.Errorf("VolumeAttachment %s: attached %t, want %t", name, va.Status.Attached, attached)
			}
			if got := b.volumes()[0].AttachedTo; got != vms[at] {
				b.Errorf("the volume is attached to %q, want %q", got, vms[at])
			}
		}
		attach("a")
		b.pass(69 * time.Second)
		expect("a", false, "a")
		b.pass(2 * time.Second)
		expect("a", true, "a")
		attach("b")
		b.pass(10 * time.Minute)
		expect("b", false, "a")

		// The fake API server does not implement finalizers: the test does what a delete would do.
		remove := func(name string) {
			b.Helper()
			must(vas.Patch(b.Context(), name, types.MergePatchType,
				[]byte(`{"metadata":{"deletionTimestamp":"2030-01-01T00:00:00Z"}}`), metav1.PatchOptions{}))(b)
			b.pass(3 * time.Minute) // An attach may be in progress, for 70 s.
			if va, err := vas.Get(b.Context(), name, metav1.GetOptions{}); err == nil && len(va.Finalizers) > 0 {
				b.Errorf("VolumeAttachment %s has finalizers %v", name, va.Finalizers)
			}
		}
		remove("b")
		expect("a", true, "a")
		call[cloudapi.Instance](b, http.MethodDelete, strings.Replace(cloudapi.PathInstance, "{id}", vms["a"], 1), nil)
		b.pass(time.Second)
		must(vas.Create(b.Context(),
			attachment(func(va *storagev1.VolumeAttachment) { va.Name, va.Spec.NodeName = "b2", "b" }), metav1.CreateOptions{}))(b)
		b.pass(75 * time.Second)
		expect("b2", true, "b")
		remove("a")
		expect("b2", true, "b")
		remove("b2")
		if got := b.volumes()[0].AttachedTo; got != "" {
			b.Errorf("the volume is attached to %q, want it free", got)
		}
	})
}
