//go:build linux

package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainerStats returns nothing: there are no statistics.
func (s *Server) ListContainerStats(
	context.Context, *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{}, nil
}

// ListPodSandboxStats returns nothing: there are no statistics.
func (s *Server) ListPodSandboxStats(
	context.Context, *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{}, nil
}

// ImageFsInfo returns a folder for images, of small size.
func (s *Server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp: s.config.Clock.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.Dir},
		UsedBytes: &runtimeapi.UInt64Value{Value: 1}, InodesUsed: &runtimeapi.UInt64Value{Value: 1},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
