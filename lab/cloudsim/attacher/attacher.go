// Package attacher is the part of the cloud's CSI driver that runs in the cluster: it attaches the cloud's volumes where
// VolumeAttachments of its driver (cloudapi.CSIDriver) ask for it, and detaches them before a VolumeAttachment goes.
//
// It is a client of the cloud's API like everybody else. Latency, faults and the call log apply to its calls.
package attacher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/lab/cloudsim/loop"
)

const (
	// finalizer keeps a VolumeAttachment until its volume is detached.
	finalizer = cloudapi.CSIDriver + "/attached"
	// retry is the time between attempts.
	retry          = time.Second
	requestTimeout = 30 * time.Second
	workers        = 16
)

// Config is what an Attacher is made of.
type Config struct {
	// Client of the cluster.
	Client kubernetes.Interface
	// Cloud is the URL of the cloud, HTTPClient makes the calls of it, and Credentials is the token that it asks for.
	Cloud       string
	HTTPClient  *http.Client
	Credentials string
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// Log is slog's default when nil.
	Log *slog.Logger
}

// Attacher attaches and detaches volumes.
type Attacher struct {
	cfg         Config
	attachments cache.SharedIndexInformer
	loop        *loop.Loop[string]
}

// New returns an Attacher.
func New(cfg Config) (*Attacher, error) {
	if cfg.Client == nil || cfg.Cloud == "" || cfg.HTTPClient == nil {
		return nil, errors.New("attacher.Config: Client, Cloud and HTTPClient are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	a := &Attacher{cfg: cfg, attachments: storageinformers.NewVolumeAttachmentInformer(cfg.Client, 0, cache.Indexers{})}
	a.loop = loop.New(cfg.Clock, a.step)
	saw := func(obj any) {
		if va, ok := obj.(*storagev1.VolumeAttachment); ok && va.Spec.Attacher == cloudapi.CSIDriver {
			a.loop.Wake(va.Name)
		}
	}
	_, err := a.attachments.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, obj any) { saw(obj) }})
	if err != nil {
		return nil, fmt.Errorf("watch VolumeAttachments: %w", err)
	}
	return a, nil
}

// Run attaches and detaches until ctx ends.
func (a *Attacher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { a.attachments.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), a.attachments.HasSynced)
	a.loop.Run(ctx, workers)
	return nil
}

// step does what is due for a VolumeAttachment.
func (a *Attacher) step(ctx context.Context, name string) time.Duration {
	obj, exists, err := a.attachments.GetStore().GetByKey(name)
	va, ok := obj.(*storagev1.VolumeAttachment)
	if err != nil || !exists || !ok {
		return loop.Never
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if va.DeletionTimestamp != nil {
		err = a.detach(bounded, va)
	} else {
		err = a.attach(bounded, va)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err), ctx.Err() != nil:
		return loop.Never
	case !apierrors.IsConflict(err): // A conflict means that there is a newer version to come.
		a.cfg.Log.Warn("A volume was not attached or detached; trying again", "attachment", name, "node", va.Spec.NodeName, "err", err)
	}
	return retry
}

// attach attaches the volume and says so in the status.
func (a *Attacher) attach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	if va.Status.Attached {
		return nil
	}
	if !slices.Contains(va.Finalizers, finalizer) { // The event of this write brings us back.
		return a.setFinalizers(ctx, va, append(slices.Clone(va.Finalizers), finalizer))
	}
	volume, err := a.volumeID(ctx, va)
	if err != nil {
		return err
	}
	node, err := a.cfg.Client.CoreV1().Nodes().Get(ctx, va.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look for the Node: %w", err)
	}
	instance := node.Spec.ProviderID[strings.LastIndex(node.Spec.ProviderID, "/")+1:]
	if err := a.call(ctx, http.MethodPut, volume, cloudapi.AttachVolumeRequest{InstanceID: instance}); err != nil {
		return err
	}
	patch := []byte(`{"status":{"attached":true}}`)
	_, err = a.cfg.Client.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("note that the volume is attached: %w", err)
	}
	return nil
}

// detach detaches the volume and lets the VolumeAttachment go.
func (a *Attacher) detach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	if !slices.Contains(va.Finalizers, finalizer) {
		return nil
	}
	volume, err := a.volumeID(ctx, va)
	if err == nil {
		err = a.call(ctx, http.MethodDelete, volume, nil)
	}
	if err != nil && !apierrors.IsNotFound(err) { // Without its PersistentVolume nobody knows which volume it was.
		return err
	}
	return a.setFinalizers(ctx, va, slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == finalizer }))
}

// volumeID returns the cloud's ID of the volume.
func (a *Attacher) volumeID(ctx context.Context, va *storagev1.VolumeAttachment) (string, error) {
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

// setFinalizers writes the finalizers, unless somebody else has written the object.
func (a *Attacher) setFinalizers(ctx context.Context, va *storagev1.VolumeAttachment, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": va.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("encode finalizers: %w", err)
	}
	if _, err := a.cfg.Client.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the finalizers: %w", err)
	}
	return nil
}
