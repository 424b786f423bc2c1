package cri

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

// node mounts volumes.
type node struct {
	spec.UnimplementedNodeServer

	config VolumesConfig
	mu     sync.Mutex // held while something is mounted or unmounted
}

// NodeGetInfo returns the ID of the VM.
func (n *node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.config.NodeID}, nil
}

// NodeGetCapabilities reports that volumes have to be staged.
func (n *node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	stage := &spec.NodeServiceCapability_RPC{Type: spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &spec.NodeGetCapabilitiesResponse{Capabilities: []*spec.NodeServiceCapability{
		{Type: &spec.NodeServiceCapability_Rpc{Rpc: stage}},
	}}, nil
}

// NodeStageVolume mounts a volume that is attached to this machine.
func (n *node) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if err := checkCapability(r.VolumeCapability); err != nil {
		return nil, err
	}
	if err := checkPaths(r.StagingTargetPath); err != nil {
		return nil, err
	}
	// The ID is a part of paths.
	if r.VolumeId == "" || r.VolumeId != filepath.Base(r.VolumeId) || !filepath.IsLocal(r.VolumeId) {
		return nil, status.Errorf(codes.InvalidArgument, "expected the ID of a volume, got %q", r.VolumeId)
	}
	_, err := os.Lstat(filepath.Join(n.config.Attached, r.VolumeId))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not attached to %s", r.VolumeId, n.config.NodeID)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "looking for volume %s: %v", r.VolumeId, err)
	}
	return &spec.NodeStageVolumeResponse{}, n.bind(filepath.Join(n.config.Volumes, r.VolumeId), r.StagingTargetPath, false)
}

// NodeUnstageVolume undoes NodeStageVolume.
func (n *node) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	return &spec.NodeUnstageVolumeResponse{}, n.unbind(r.StagingTargetPath)
}

// NodePublishVolume mounts a volume that is staged for a pod.
func (n *node) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := checkCapability(r.VolumeCapability); err != nil {
		return nil, err
	}
	if err := checkPaths(r.StagingTargetPath, r.TargetPath); err != nil {
		return nil, err
	}
	staged, err := n.config.Mounter.IsMountPoint(r.StagingTargetPath)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !staged:
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged on %s", r.VolumeId, r.StagingTargetPath)
	case err != nil:
		return nil, status.Errorf(codes.Internal, "looking for what is staged on %s: %v", r.StagingTargetPath, err)
	}
	return &spec.NodePublishVolumeResponse{}, n.bind(r.StagingTargetPath, r.TargetPath, r.Readonly)
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (n *node) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	return &spec.NodeUnpublishVolumeResponse{}, n.unbind(r.TargetPath)
}

// checkCapability rejects capabilities that a folder does not have.
func checkCapability(c *spec.VolumeCapability) error {
	if c.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "volumes of this driver are file systems, not block devices")
	}
	return nil
}

func checkPaths(paths ...string) error {
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			return status.Errorf(codes.InvalidArgument, "expected an absolute path, got %q", path)
		}
	}
	return nil
}

// bind mounts a folder on another, unless something is mounted there already: paths are the
// kubelet's, which has one for each volume, and for each pod with it.
func (n *node) bind(source, target string, readOnly bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := os.MkdirAll(target, 0o750); err != nil {
		return status.Errorf(codes.Internal, "creating a mount point: %v", err)
	}
	mounted, err := n.config.Mounter.IsMountPoint(target)
	if err != nil {
		return status.Errorf(codes.Internal, "looking for what is mounted on %s: %v", target, err)
	}
	if mounted {
		return nil
	}
	options := []string{"bind"}
	if readOnly {
		options = append(options, "ro")
	}
	if err := n.config.Mounter.Mount(source, target, "", options); err != nil {
		return status.Errorf(codes.Internal, "mounting on %s: %v", target, err)
	}
	return nil
}

// unbind unmounts what is mounted on a folder, and removes that.
func (n *node) unbind(target string) error {
	if err := checkPaths(target); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	const lookAtAllMounts = true // A bind mount of a folder is only found in the list of mounts.
	if err := mount.CleanupMountPoint(target, n.config.Mounter, lookAtAllMounts); err != nil {
		return status.Errorf(codes.Internal, "unmounting %s: %v", target, err)
	}
	return nil
}
