package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	from := flag.String("from", "", "folder with the source of Kubernetes")
	to := flag.String("to", "", "folder for the schemas")
	flag.Parse()
	if *from == "" || *to == "" {
		fmt.Fprintln(os.Stderr, "apischemas: expected -from and -to; see hack/api-schemas.sh")
		os.Exit(2)
	}
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "apischemas:", err)
		os.Exit(1)
	}
}

// run reads the documents of all kinds, and writes their schemas.
func run(from, to string) error {
	documents := map[string]schema{}
	for _, k := range kinds {
		file := filepath.Join(from, "api", "openapi-spec", "v3", k.document())
		text, err := os.ReadFile(file) //nolint:gosec // The folder is an argument.
		if err != nil {
			return fmt.Errorf("read the OpenAPI document of %s: %w", k, err)
		}
		var document struct {
			Components struct {
				Schemas schema `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(text, &document); err != nil {
			return fmt.Errorf("%s: expected an OpenAPI document: %w", file, err)
		}
		documents[k.document()] = document.Components.Schemas
	}
	schemas, err := extract(documents)
	if err != nil {
		return err
	}
	errs := []error{os.MkdirAll(to, 0o755)} //nolint:gosec // As a checkout has it.
	for name, s := range schemas {
		text, err := json.Marshal(s)
		errs = append(errs, err, os.WriteFile(filepath.Join(to, name), append(text, '\n'), 0o644)) //nolint:gosec // As a checkout has it.
	}
	return errors.Join(errs...)
}

// kind is a kind of the API.
type kind struct{ group, version, name string }

func (k kind) String() string { return strings.TrimPrefix(k.group+"/"+k.version+" "+k.name, "/") }

// document returns the name of the OpenAPI document that describes the kind.
func (k kind) document() string {
	if k.group == "" {
		return "api__" + k.version + "_openapi.json"
	}
	return "apis__" + k.group + "__" + k.version + "_openapi.json"
}

// file returns the name of the schema, as kubeconform looks for it.
func (k kind) file() string {
	group, _, _ := strings.Cut(k.group, ".")
	return strings.ToLower(strings.ReplaceAll(k.name+"-"+group+"-"+k.version, "--", "-")) + ".json"
}

// kinds are those of the chart's templates.
var kinds = []kind{
	{"", "v1", "ConfigMap"},
	{"", "v1", "Pod"},
	{"", "v1", "Service"},
	{"", "v1", "ServiceAccount"},
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"},
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"},
	{"apiextensions.k8s.io", "v1", "CustomResourceDefinition"},
	{"apps", "v1", "StatefulSet"},
	{"autoscaling", "v2", "HorizontalPodAutoscaler"},
	{"flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"},
	{"flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"},
	{"networking.k8s.io", "v1", "NetworkPolicy"},
	{"policy", "v1", "PodDisruptionBudget"},
	{"rbac.authorization.k8s.io", "v1", "ClusterRole"},
	{"rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"},
	{"rbac.authorization.k8s.io", "v1", "Role"},
	{"rbac.authorization.k8s.io", "v1", "RoleBinding"},
}
