package v1alpha1

// Reasons of Events on the kinds of machine configuration, in the target cluster.
const (
	EventRendered     = "Rendered"
	EventRenderFailed = "RenderFailed"
	// EventConfigIgnored is about a part of a MachineConfig that has no effect.
	EventConfigIgnored = "ConfigIgnored"
	EventPoolInUse     = "PoolInUse"

	EventKubeletConfigRefused = "KubeletConfigRefused"
	EventTemplatesFailing     = "TemplatesFailing"
)

func configEvents() []EventReason {
	pool, kubelet, control := []string{"MachineConfigPool"}, []string{"KubeletConfig"}, []string{"ControllerConfig"}
	return []EventReason{
		{
			EventRendered, false, pool,
			"The selected MachineConfigs result in another RenderedMachineConfig, to which the Nodes of the pool are brought. " +
				"The message names it and them.",
			"",
		},
		{
			EventRenderFailed, true, pool,
			"No RenderedMachineConfig can be built from the selected MachineConfigs, and the Nodes keep what they have. The message, " +
				"and the condition `RenderDegraded`, have the MachineConfig and the cause.",
			"Correct the MachineConfig that the message names, or the selector of the pool; " +
				"see [machine configuration](operations/machine-config.md#when-nothing-is-rendered).",
		},
		{
			EventConfigIgnored, true, pool,
			"A MachineConfig has a part that Ignition accepts and that has no effect. The message has its place.",
			"Correct it, or remove the part.",
		},
		{
			EventPoolInUse, true, pool,
			"The pool is being deleted, and Nodes or Machines still name RenderedMachineConfigs of it, which they need to recover.",
			"Delete those Nodes, or have another pool select them; see [deleting a pool](operations/machine-config.md#delete-a-pool).",
		},
		{
			EventKubeletConfigRefused, true, kubelet,
			"The settings are invalid, alone or together with those of other KubeletConfigs of a pool, " +
				"and the Nodes of its pools keep what they have. The message, and the condition `Accepted`, have the cause.",
			"Correct the field that the message names.",
		},
		{
			EventTemplatesFailing, true, control,
			"A template cannot be rendered, and the MachineConfigs of all templates stay as they are. The message, " +
				"and the condition `TemplateControllerFailing`, name it.",
			"Correct the template, or the value in the ControllerConfig that it needs.",
		},
	}
}
