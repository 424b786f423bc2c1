// Package template is the TemplateController: it keeps the MachineConfigs that package expand
// creates from templates and the ControllerConfig as they are, and deletes those whose template, or
// role, is gone.
//
// Templates are in a ConfigMap of the control cluster, which is watched, or in a folder, which is
// read each ReadEvery. The Secret with which Nodes pull images is watched by its name, by the owner
// of the ControllerConfig.
//
// Guarantees: the MachineConfigs of templates, and the status of the ControllerConfig, have one
// writer, the owner of the ControllerConfig. What another client changes or deletes is written
// again. While a template cannot be rendered, nothing is written and nothing deleted.
// MachineConfigs belong to the ControllerConfig, and are deleted with it.
//
// Secrets are part of the MachineConfigs of templates that use them: every client that may read
// MachineConfigs can read them.
package template
