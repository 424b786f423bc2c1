// Command protobuf generates Go code from .proto files: it compiles them, and runs protoc-gen-go
// and protoc-gen-go-grpc at the versions of its own go.mod, as protoc would. The same sources
// result in the same code on any computer.
//
//	protobuf <folder of the sources> <folder for the code> <file>...
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// generators are the plugins of protoc that are run, which go.mod names as tools.
var generators = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "protobuf:", err)
		os.Exit(1)
	}
}

// run generates the code of the files that the arguments name.
func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("expected the folder of the sources, that for the code, and names of files; got %d arguments", len(args))
	}
	sources, code, names := args[0], args[1], args[2:]
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{sources}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(requestFor(names, files))
	if err != nil {
		return err
	}
	for _, generator := range generators {
		if err := generate(ctx, generator, request, code); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

// requestFor returns the input of a plugin: all files, each after those that it imports.
func requestFor(names []string, files linker.Files) *pluginpb.CodeGeneratorRequest {
	var sorted []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		sorted = append(sorted, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range files {
		add(file)
	}
	return &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: new("paths=source_relative"), ProtoFile: sorted}
}

// generate runs one plugin and writes the files that it returns.
func generate(ctx context.Context, generator string, request []byte, folder string) error {
	command := exec.CommandContext(ctx, "go", "tool", generator)
	command.Stdin, command.Stderr = bytes.NewReader(request), os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.GetFile() {
		name := filepath.Join(folder, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
