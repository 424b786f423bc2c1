//go:build e2e

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestAdmission: the API server runs the rules of the definitions, and names what is wrong.
// e2e/lab/definitions has the tables of all rules.
func TestAdmission(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "admission", "")
	const machine = `{apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, metadata: {name: m}, spec: {class: {kind: MachineClass, name: small}`
	deployment := func(spec string) string {
		return `{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: d}, spec: {selector: {matchLabels: {name: pool}},
			template: {metadata: {labels: {name: pool}}, spec: {class: {kind: MachineClass, name: small}}}` + spec + `}}`
	}
	for _, test := range []struct{ resource, manifest, want string }{
		{"machinedeployments", deployment(""), ""},
		{"machinedeployments", deployment(`, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}`), ""},
		{"machinedeployments", deployment(`, strategy: {type: Rolling}`), `spec.strategy.type: Unsupported value: "Rolling"`},
		{
			"machinedeployments", deployment(`, strategy: {type: RollingUpdate}`),
			"type RollingUpdate needs rollingUpdate with maxSurge and maxUnavailable",
		},
		{
			"machinedeployments", strings.Replace(deployment(""), "labels: {name: pool}", "labels: {name: sea}", 1),
			"is not matching with spec.template.metadata.labels",
		},
		{"machines", machine + `, healthTimeout: 10m}}`, ""},
		{"machines", machine + `, healthTimeout: "10"}}`, "must be a duration such as 20m or 1h30m"},
	} {
		err := s.api().RESTClient().Post().Namespace(s.name).Resource(test.resource).Param("dryRun", "All").
			SetHeader("Content-Type", "application/yaml").Body([]byte(test.manifest)).Do(t.Context()).Error()
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s\nwant %q, got: %v", test.manifest, test.want, err)
		}
	}
}
