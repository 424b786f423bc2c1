package main

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// hardware is the configured hardware of a machine. Its usage is not measured.
type hardware struct {
	cores  int
	memory uint64 // bytes
	id     string
	bootID string
}

var _ cadvisor.Interface = hardware{}

func (h hardware) MachineInfo(klog.Logger) (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{
		NumCores: h.cores, MemoryCapacity: h.memory,
		MachineID: h.id, SystemUUID: h.id, InstanceID: cadvisorapi.InstanceID(h.id), BootID: h.bootID,
	}, nil
}

func (hardware) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, err
	}
	return &cadvisorapi.VersionInfo{
		KernelVersion: unix.ByteSliceToString(name.Release[:]), ContainerOsVersion: "Machine Controller Fleet Lab",
	}, nil
}

func (hardware) Start() error { return nil }

func (hardware) ContainerInfoV2(string, cadvisorapi.RequestOptions) (map[string]cadvisorapi.ContainerInfo, error) {
	return map[string]cadvisorapi.ContainerInfo{}, nil
}

func (hardware) GetRequestedContainersInfo(string, cadvisorapi.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

func (hardware) ImagesFsInfo(context.Context) (cadvisorapi.FsInfo, error) {
	return cadvisorapi.FsInfo{}, nil
}
func (hardware) RootFsInfo() (cadvisorapi.FsInfo, error) { return cadvisorapi.FsInfo{}, nil }
func (hardware) ContainerFsInfo(context.Context) (cadvisorapi.FsInfo, error) {
	return cadvisorapi.FsInfo{}, nil
}

func (hardware) GetDirFsInfo(string) (cadvisorapi.FsInfo, error) { return cadvisorapi.FsInfo{}, nil }
