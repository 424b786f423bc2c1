package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// finalizer keeps a VolumeAttachment until its volume is detached.
	finalizer = cloudapi.CSIDriver + "/attached"
	// annotationVolume and annotationInstance are the cloud's IDs of the volume and the VM of a
	// VolumeAttachment.
	annotationVolume   = cloudapi.CSIDriver + "/volume"
	annotationInstance = cloudapi.CSIDriver + "/instance"
)

// attacher attaches and detaches volumes.
type attacher struct {
	cfg         Config
	cloud       cloud
	attachments cache.SharedIndexInformer
	loop        *guest.Loop[string]
}

func newAttacher(cfg Config) (*attacher, error) {
	a := &attacher{cfg: cfg, cloud: newCloud(cfg, "csi-attacher")}
	a.attachments = storageinformers.NewVolumeAttachmentInformer(cfg.Client, 0, cache.Indexers{})
	a.loop = guest.NewLoop(cfg.Clock, a.step)
	return a, watch(a.attachments, func(va *storagev1.VolumeAttachment) {
		if va.Spec.Attacher == cloudapi.CSIDriver {
			a.loop.Wake(va.Name)
		}
	})
}

func (a *attacher) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { a.attachments.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), a.attachments.HasSynced)
	a.loop.Run(ctx, workers)
}

// step does what is due for a VolumeAttachment.
func (a *attacher) step(ctx context.Context, name string) time.Duration {
	va := seen[*storagev1.VolumeAttachment](a.attachments, name)
	if va == nil {
		return guest.Never
	}
	bounded, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var err error
	if va.DeletionTimestamp != nil {
		err = a.detach(bounded, va)
	} else {
		err = a.attach(bounded, va)
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return guest.Never
	case !apierrors.IsConflict(err): // After a conflict the newer version is delivered by the watch.
		a.cfg.Log.Warn("Failed to attach or detach a volume; trying again", "attachment", name, "node", va.Spec.NodeName, "err", err)
	}
	return retry
}

// attach attaches the volume and records that in the status.
func (a *attacher) attach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	if va.Status.Attached {
		return nil
	}
	volume, err := a.volumeID(ctx, va)
	if err != nil {
		return err
	}
	instance, err := a.instanceID(ctx, va)
	if err != nil {
		return err
	}
	if !slices.Contains(va.Finalizers, finalizer) || va.Annotations[annotationVolume] != volume ||
		va.Annotations[annotationInstance] != instance {
		return a.note(ctx, va, volume, instance) // The event of this write calls step again.
	}
	err = a.cloud.call(ctx, http.MethodPut, attachmentPath(volume), cloudapi.AttachVolumeRequest{InstanceID: instance}, nil)
	if err != nil {
		return err
	}
	patch := []byte(`{"status":{"attached":true}}`)
	_, err = a.cfg.Client.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("record that the volume is attached: %w", err)
	}
	return nil
}

// detach detaches the volume and removes the finalizer of the VolumeAttachment.
func (a *attacher) detach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	if !slices.Contains(va.Finalizers, finalizer) {
		return nil
	}
	from := url.Values{cloudapi.QueryInstanceID: {va.Annotations[annotationInstance]}}
	err := a.cloud.call(ctx, http.MethodDelete, attachmentPath(va.Annotations[annotationVolume])+"?"+from.Encode(), nil, nil)
	if err != nil && !isCode(err, cloudapi.CodeNotFound) { // A volume that does not exist is detached.
		return err
	}
	finalizers := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == finalizer })
	return a.patch(ctx, va, map[string]any{"finalizers": finalizers})
}

// volumeID returns the cloud's ID of the volume.
func (a *attacher) volumeID(ctx context.Context, va *storagev1.VolumeAttachment) (string, error) {
	if va.Spec.Source.PersistentVolumeName == nil {
		return "", errors.New("the VolumeAttachment names no PersistentVolume")
	}
	pv, err := a.cfg.Client.CoreV1().PersistentVolumes().Get(ctx, *va.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look for the PersistentVolume: %w", err)
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != cloudapi.CSIDriver {
		return "", fmt.Errorf("PersistentVolume %s is not of driver %s", pv.Name, cloudapi.CSIDriver)
	}
	return pv.Spec.CSI.VolumeHandle, nil
}

// instanceID returns the ID of the Node's VM.
func (a *attacher) instanceID(ctx context.Context, va *storagev1.VolumeAttachment) (string, error) {
	node, err := a.cfg.Client.CoreV1().Nodes().Get(ctx, va.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look for the Node: %w", err)
	}
	id := node.Spec.ProviderID[strings.LastIndex(node.Spec.ProviderID, "/")+1:]
	if !strings.HasPrefix(node.Spec.ProviderID, cloudapi.ProviderIDPrefix) || id == "" {
		return "", fmt.Errorf("expected a provider ID of this cloud, got %q of Node %s", node.Spec.ProviderID, node.Name)
	}
	return id, nil
}

// note records the IDs of volume and VM on the VolumeAttachment, with a finalizer until the volume
// is detached.
func (a *attacher) note(ctx context.Context, va *storagev1.VolumeAttachment, volume, instance string) error {
	finalizers := slices.Clone(va.Finalizers)
	if !slices.Contains(finalizers, finalizer) {
		finalizers = append(finalizers, finalizer)
	}
	return a.patch(ctx, va, map[string]any{
		"finalizers": finalizers, "annotations": map[string]string{annotationVolume: volume, annotationInstance: instance},
	})
}

// patch writes metadata, unless another client has written the object.
func (a *attacher) patch(ctx context.Context, va *storagev1.VolumeAttachment, metadata map[string]any) error {
	metadata["resourceVersion"] = va.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode finalizers: %w", err)
	}
	_, err = a.cfg.Client.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the finalizers: %w", err)
	}
	return nil
}
