package main

import (
	"errors"
	"fmt"
	"strings"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
)

// declareConfigs declares the flags of machine configuration.
func declareConfigs(g *flags.Group, o *replica.ConfigOptions) {
	g.Bool(&o.Enabled, "machine-configuration", o.Enabled, "bring Nodes of the target cluster to the configuration of their "+
		"MachineConfigPool; needs a target cluster, and the definitions of "+fleetv1alpha1.GroupName+" there")
	g.String(&o.Prefix, "machine-config-annotation-prefix", o.Prefix,
		"prefix of the annotations of Nodes through which the fleet and the machine-config-daemon work together; the same as that of the daemons")
	g.List(&o.Extensions, "machine-config-extensions", o.Extensions,
		"names, separated by commas, of the extensions that a MachineConfig may have; empty means that there are none")
	g.String(&o.Templates, "machine-config-templates", o.Templates,
		"templates of MachineConfigs: a ConfigMap of the control cluster as NAMESPACE/NAME, or the absolute path of a folder; empty means none")
}

func validateConfigs(o *replica.ConfigOptions) error {
	var errs []error
	if o.Prefix == "" || strings.Contains(o.Prefix, "/") {
		errs = append(errs,
			fmt.Errorf("--machine-config-annotation-prefix: expected a name of a domain, got %q; give that of the daemons", o.Prefix))
	}
	if _, isFolder := o.Folder(); o.Templates != "" && !isFolder && strings.Count(o.Templates, "/") != 1 {
		errs = append(errs,
			fmt.Errorf("--machine-config-templates: expected NAMESPACE/NAME of a ConfigMap, or an absolute path, got %q; correct it", o.Templates))
	}
	return errors.Join(errs...)
}
