//go:build linux

package cri

import (
	"context"
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// builtinImages are the commands of well-known images that can be run without them.
func builtinImages() map[string][]string {
	shell := []string{"/bin/sh"}
	return map[string][]string{
		"pause":   {"sleep", "infinity"},
		"busybox": shell, "alpine": shell, "debian": shell, "ubuntu": shell,
	}
}

// command returns the command line of a container: its own command, or that of its image, with its arguments; or, if no
// command is known for its image, its arguments.
func (s *Server) command(config *runtimeapi.ContainerConfig) ([]string, error) {
	command := config.Command
	if len(command) == 0 && len(config.Args) == 0 {
		command = s.config.Images[imageName(image(config.Image))]
	}
	args := append(append([]string{}, command...), config.Args...)
	if len(args) == 0 {
		return nil, fmt.Errorf("expected a command, got none for image %q, which is a name only here: give the container a command, or the image one (--images)", image(config.Image))
	}
	return args, nil
}

// image is the reference as the user wrote it.
func image(spec *runtimeapi.ImageSpec) string {
	if asWritten := spec.GetUserSpecifiedImage(); asWritten != "" {
		return asWritten
	}
	return spec.GetImage()
}

// imageName returns the last part of the name of an image: registry.example.com:5000/team/app:v1@sha256:… is app.
func imageName(reference string) string {
	name, _, _ := strings.Cut(reference, "@")
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, ":")
	return name
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
