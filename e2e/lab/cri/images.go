//go:build linux

package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/container"
)

// builtinImages are the commands of well-known images that can be run without them.
func builtinImages() map[string][]string {
	shell := []string{"/bin/sh"}
	return map[string][]string{
		"pause":   {"sleep", "infinity"},
		"busybox": shell, "alpine": shell, "debian": shell, "ubuntu": shell,
	}
}

// command returns the command line of a container: its own command, or the program of its image,
// with its arguments; or, if there is no such program, its arguments, or the command that the image
// is known for.
func command(config *runtimeapi.ContainerConfig, program container.Mount) ([]string, error) {
	command := config.Command
	if len(command) == 0 && program.Target != "" {
		command = []string{program.Target}
	}
	args := slices.Concat(command, config.Args)
	if len(args) == 0 {
		name, _ := parse(image(config.Image))
		args = builtinImages()[name]
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("expected a command, got none for image %q, of which only the name is known here: give the container a command, "+
			"or the image a program (--images)", image(config.Image))
	}
	return args, nil
}

// program returns the program of an image, as a mount below the root of a container. ok is false if
// there is none.
func (s *Server) program(reference string) (program container.Mount, ok bool) {
	name, tag := parse(reference)
	if s.config.Images == "" || name == "" {
		return container.Mount{}, false
	}
	for _, file := range []string{name + ":" + tag, name} {
		path := filepath.Join(s.config.Images, file)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return container.Mount{Source: path, Target: "/" + name, ReadOnly: true}, true
		}
	}
	return container.Mount{}, false
}

// image is the reference as the user wrote it.
func image(spec *runtimeapi.ImageSpec) string {
	if asWritten := spec.GetUserSpecifiedImage(); asWritten != "" {
		return asWritten
	}
	return spec.GetImage()
}

// parse returns the last part of the name of an image, and its tag:
// registry.example.com:5000/team/app:v1@sha256:… is app and v1.
func parse(reference string) (name, tag string) {
	name, _, _ = strings.Cut(reference, "@")
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, tag, _ = strings.Cut(name, ":")
	return name, tag
}

func describeImage(reference string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: reference, RepoTags: []string{reference}, Size: 1, Spec: &runtimeapi.ImageSpec{Image: reference},
		Uid: &runtimeapi.Int64Value{Value: 0},
	}
}

// ListImages lists the images that were pulled.
func (s *Server) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &runtimeapi.ListImagesResponse{}
	for reference := range s.pulled {
		response.Images = append(response.Images, describeImage(reference))
	}
	return response, nil
}

// ImageStatus describes an image, if it was pulled.
func (s *Server) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reference := r.GetImage().GetImage(); s.pulled[reference] {
		return &runtimeapi.ImageStatusResponse{Image: describeImage(reference)}, nil
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

// PullImage records a name.
func (s *Server) PullImage(_ context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reference := r.GetImage().GetImage()
	s.pulled[reference] = true
	return &runtimeapi.PullImageResponse{ImageRef: reference}, nil
}

// RemoveImage removes a name.
func (s *Server) RemoveImage(_ context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pulled, r.GetImage().GetImage())
	return &runtimeapi.RemoveImageResponse{}, nil
}
