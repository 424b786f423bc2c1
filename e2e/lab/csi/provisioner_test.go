package csi

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "simulated"}, Provisioner: cloudapi.CSIDriver, VolumeBindingMode: &mode,
		ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete),
	}
}

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "data", UID: "1234",
			Annotations: map[string]string{annotationProvisioner: cloudapi.CSIDriver, annotationSelectedNode: "a"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("simulated"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1500Mi")}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

func TestProvision(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	for name, c := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		class  storagev1.VolumeBindingMode
		zone   string // of the volume; "" is no volume
		events []string
		claims string // the Node in the claim's annotation afterwards
	}{
		"on a Node": {claim: claim(nil), class: wait, zone: "sim-1b", claims: "a"},
		"at once": {claim: claim(func(c *corev1.PersistentVolumeClaim) {
			delete(c.Annotations, annotationSelectedNode)
		}), class: storagev1.VolumeBindingImmediate, zone: "sim-1a"},
		"not yet": {claim: claim(func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, annotationSelectedNode) }), class: wait},
		"bound":   {claim: claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }), class: wait, claims: "a"},
		"of another": {
			claim: claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations[annotationProvisioner] = "other" }), class: wait, claims: "a",
		},
		"Node gone": {claim: claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations[annotationSelectedNode] = "gone" }), class: wait},
		"shared": {
			claim: claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			}),
			class: wait, claims: "a", events: []string{"ProvisioningFailed"},
		},
		"block": {
			claim: claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }),
			class: wait, claims: "a", events: []string{"ProvisioningFailed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, []runtime.Object{class(c.class), c.claim, node("a", "sim-1b")}, func(b *bed) {
				if diff := cmp.Diff(c.events, b.events()); diff != "" {
					b.Errorf("events (-want +got):\n%s", diff)
				}
				after := must(b.client.CoreV1().PersistentVolumeClaims("ns").Get(b.Context(), "data", metav1.GetOptions{}))(b)
				if got := after.Annotations[annotationSelectedNode]; got != c.claims {
					b.Errorf("selected Node %q, want %q", got, c.claims)
				}
				volumes := b.volumes()
				pvs := must(b.client.CoreV1().PersistentVolumes().List(b.Context(), metav1.ListOptions{}))(b).Items
				if c.zone == "" {
					if len(volumes)+len(pvs) > 0 {
						b.Errorf("volumes %v and %v, want none", volumes, pvs)
					}
					return
				}
				if len(volumes) != 1 || volumes[0].Zone != c.zone || volumes[0].SizeGiB != 2 {
					b.Fatalf("volumes %+v, want one of 2 GiB in %s", volumes, c.zone)
				}
				if len(pvs) != 1 || pvs[0].Name != "pvc-1234" || pvs[0].Spec.CSI.VolumeHandle != volumes[0].ID || pvs[0].Spec.ClaimRef.UID != "1234" ||
					pvs[0].Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != c.zone {
					b.Errorf("PersistentVolumes %+v", pvs)
				}
			})
		})
	}
}

// Under faults, too, a claim has exactly one volume in the end.
func TestProvisionUnderFaults(t *testing.T) {
	inBed(t, []runtime.Object{class(storagev1.VolumeBindingWaitForFirstConsumer), node("a", "sim-1a")}, func(b *bed) {
		b.settings(
			`{"faults": [{"kind": "timeout-after", "operations": ["CreateVolume"], "rate": 1, "hold": "1s"}, {"kind": "internal", "operations": ["ListVolumes"], "rate": 0.7}]}`,
		)
		must(b.client.CoreV1().PersistentVolumeClaims("ns").Create(b.Context(), claim(nil), metav1.CreateOptions{}))(b)
		b.pass(time.Minute)
		b.settings(`{"faults": null}`)
		b.pass(2 * time.Second)
		if volumes := b.volumes(); len(volumes) != 1 {
			b.Errorf("volumes: %+v, want one", volumes)
		}
		must(b.client.CoreV1().PersistentVolumes().Get(b.Context(), "pvc-1234", metav1.GetOptions{}))(b)
		if !slices.Contains(b.events(), "ProvisioningFailed") {
			b.Error("no Event reports the faults")
		}
	})
}

// A volume is removed when it has no claim and no attachment, and the reclaim policy of its class
// is Delete.
func TestRelease(t *testing.T) {
	inBed(t, []runtime.Object{class(storagev1.VolumeBindingWaitForFirstConsumer), claim(nil), node("a", "sim-1a")}, func(b *bed) {
		pvs := b.client.CoreV1().PersistentVolumes()
		pv := must(pvs.Get(b.Context(), "pvc-1234", metav1.GetOptions{}))(b)
		vm := call[cloudapi.Instance](b, http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "a"})
		path := attachmentPath(pv.Spec.CSI.VolumeHandle)
		call[cloudapi.Volume](b, http.MethodPut, path, cloudapi.AttachVolumeRequest{InstanceID: vm.ID})

		kept := pv.DeepCopy()
		kept.Name, kept.UID, kept.ResourceVersion = "kept", "5678", ""
		kept.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		kept.Status.Phase = corev1.VolumeReleased
		must(pvs.Create(b.Context(), kept, metav1.CreateOptions{}))(b)

		pv.Status.Phase = corev1.VolumeReleased
		must(pvs.UpdateStatus(b.Context(), pv, metav1.UpdateOptions{}))(b)
		b.pass(10 * time.Second)
		if volumes := b.volumes(); len(volumes) != 1 {
			b.Errorf("volumes: %+v, want the one that is attached", volumes)
		}
		call[cloudapi.Volume](b, http.MethodDelete, path, nil)
		b.pass(2 * time.Second)
		if volumes := b.volumes(); len(volumes) != 0 {
			b.Errorf("volumes: %+v, want none", volumes)
		}
		if _, err := pvs.Get(b.Context(), "pvc-1234", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			b.Errorf("the PersistentVolume: %v, want it gone", err)
		}
		must(pvs.Get(b.Context(), "kept", metav1.GetOptions{}))(b)
	})
}
