package csi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Annotations of the protocol between Kubernetes' volume binding and a provisioner.
const (
	annotationProvisioner   = "volume.kubernetes.io/storage-provisioner"
	annotationSelectedNode  = "volume.kubernetes.io/selected-node"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// provisioner creates and removes volumes.
type provisioner struct {
	cfg              Config
	cloud            cloud
	claims, pvs      cache.SharedIndexInformer
	creating, ending *guest.Loop[string]
	events           record.EventRecorder // set before the first step
}

func newProvisioner(cfg Config) (*provisioner, error) {
	p := &provisioner{cfg: cfg, cloud: newCloud(cfg, "csi-provisioner")}
	p.claims = coreinformers.NewPersistentVolumeClaimInformer(cfg.Client, metav1.NamespaceAll, 0, cache.Indexers{})
	p.pvs = coreinformers.NewPersistentVolumeInformer(cfg.Client, 0, cache.Indexers{})
	p.creating = guest.NewLoop(cfg.Clock, p.stepClaim)
	p.ending = guest.NewLoop(cfg.Clock, p.stepVolume)
	err := watch(p.claims, func(claim *corev1.PersistentVolumeClaim) {
		if claim.Annotations[annotationProvisioner] == cloudapi.CSIDriver {
			p.creating.Wake(cache.MetaObjectToName(claim).String())
		}
	})
	if err != nil {
		return nil, err
	}
	return p, watch(p.pvs, func(pv *corev1.PersistentVolume) {
		if pv.Annotations[annotationProvisionedBy] == cloudapi.CSIDriver {
			p.ending.Wake(pv.Name)
		}
	})
}

func (p *provisioner) run(ctx context.Context) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.cfg.Client.CoreV1().Events(metav1.NamespaceAll)})
	p.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: cloudapi.CSIDriver})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.claims.RunWithContext(ctx) })
	wg.Go(func() { p.pvs.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), p.claims.HasSynced, p.pvs.HasSynced)
	wg.Go(func() { p.creating.Run(ctx, workers) })
	wg.Go(func() { p.ending.Run(ctx, workers) })
}

// stepClaim does what is due for a claim.
func (p *provisioner) stepClaim(ctx context.Context, key string) time.Duration {
	claim := seen[*corev1.PersistentVolumeClaim](p.claims, key)
	if claim == nil || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" {
		return guest.Never
	}
	bounded, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := p.provision(bounded, claim)
	if err == nil || ctx.Err() != nil {
		return guest.Never
	}
	p.cfg.Log.Warn("Failed to provision a volume; trying again", "claim", key, "err", err)
	p.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
	return retry
}

// provision creates the volume of a claim, if its Node is selected or its class needs none.
func (p *provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := p.cfg.Client.StorageV1().StorageClasses().Get(ctx, ptr.Deref(claim.Spec.StorageClassName, ""), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look for the StorageClass: %w", err)
	}
	if modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}; !slices.Equal(claim.Spec.AccessModes, modes) ||
		ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem {
		p.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed",
			"Volumes of %s are file systems with access mode %s", cloudapi.CSIDriver, modes[0])
		return nil
	}
	node := claim.Annotations[annotationSelectedNode]
	if node == "" && ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer {
		return nil
	}
	zone := ""
	if node != "" {
		found, err := p.cfg.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return p.unselect(ctx, claim)
		}
		if err != nil {
			return fmt.Errorf("look for the Node: %w", err)
		}
		zone = found.Labels[corev1.LabelTopologyZone]
	}
	volume, err := p.volume(ctx, claim, zone)
	if err != nil {
		return err
	}
	_, err = p.cfg.Client.CoreV1().PersistentVolumes().Create(ctx, newPersistentVolume(claim, class, volume), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the PersistentVolume: %w", err)
	}
	return nil
}

// unselect makes the scheduler choose another Node: the chosen one does not exist any more.
func (p *provisioner) unselect(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null}}}`, claim.ResourceVersion, annotationSelectedNode)
	_, err := p.cfg.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove the selected Node, which does not exist any more, from the claim: %w", err)
	}
	return nil
}

// volume returns the volume of a claim. It searches before it creates one: an earlier attempt may
// have created it.
func (p *provisioner) volume(ctx context.Context, claim *corev1.PersistentVolumeClaim, zone string) (cloudapi.Volume, error) {
	name := volumeName(claim)
	var all cloudapi.VolumeList
	if err := p.cloud.call(ctx, http.MethodGet, cloudapi.PathVolumes, nil, &all); err != nil {
		return cloudapi.Volume{}, err
	}
	if at := slices.IndexFunc(all.Items, func(v cloudapi.Volume) bool { return v.Name == name }); at >= 0 {
		return all.Items[at], nil
	}
	const gib = 1 << 30
	size := (claim.Spec.Resources.Requests.Storage().Value() + gib - 1) / gib
	var created cloudapi.Volume
	err := p.cloud.call(ctx, http.MethodPost, cloudapi.PathVolumes, cloudapi.CreateVolumeRequest{
		Name: name, Zone: zone, SizeGiB: max(1, size), Tags: map[string]string{"claim": cache.MetaObjectToName(claim).String()},
	}, &created)
	return created, err
}

// stepVolume does what is due for a PersistentVolume.
func (p *provisioner) stepVolume(ctx context.Context, name string) time.Duration {
	pv := seen[*corev1.PersistentVolume](p.pvs, name)
	if pv == nil || pv.DeletionTimestamp != nil || pv.Spec.CSI == nil || pv.Status.Phase != corev1.VolumeReleased ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return guest.Never
	}
	bounded, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := p.remove(bounded, pv)
	if err == nil || ctx.Err() != nil {
		return guest.Never
	}
	p.cfg.Log.Warn("Failed to remove a volume; trying again", "volume", name, "err", err)
	if !isCode(err, cloudapi.CodeConflict) { // No Event while it is still attached.
		p.events.Event(pv, corev1.EventTypeWarning, "VolumeFailedDelete", err.Error())
	}
	return retry
}

// remove removes the volume without a claim.
func (p *provisioner) remove(ctx context.Context, pv *corev1.PersistentVolume) error {
	err := p.cloud.call(ctx, http.MethodDelete, withID(cloudapi.PathVolume, pv.Spec.CSI.VolumeHandle), nil, nil)
	if err != nil && !isCode(err, cloudapi.CodeNotFound) {
		return err
	}
	err = p.cfg.Client.CoreV1().PersistentVolumes().
		Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the PersistentVolume: %w", err)
	}
	return nil
}
