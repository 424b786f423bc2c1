package render

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

func renderedConfigs() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource("renderedmachineconfigs")
}

func isNothing(err error) bool { return errors.Is(err, deletion.ErrNothing) }

// live lists the metadata of a pool's RenderedMachineConfigs, and then all that may name one. What
// names one after its list names one that exists, or its target.
func (c *Controller) live(ctx context.Context, pool string) (all []*v1alpha1.RenderedMachineConfig, uses merge.Uses, err error) {
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelPool: pool}).String()
	rendered := objectcache.PagesAtMost(c.cfg.Most, c.cfg.Target.Resource(renderedConfigs()).List)
	exist := map[string]bool{}
	err = decode.EachObject(ctx, "RenderedMachineConfigs", metav1.ListOptions{LabelSelector: selector}, rendered,
		func(found *metav1.PartialObjectMetadata) {
			all = append(all, stub(found))
			exist[found.Name] = true
		})
	if err != nil {
		return nil, uses, err
	}
	uses.Names, err = c.names(ctx, exist)
	if err != nil {
		return nil, uses, err
	}
	pools := objectcache.PagesAtMost(c.cfg.Most, c.cfg.Client.MachineConfigPools().List)
	err = decode.EachPage(ctx, "MachineConfigPools", pools, func(page *v1alpha1.MachineConfigPoolList) {
		for i := range page.Items {
			uses.Pools = append(uses.Pools, &page.Items[i])
		}
	})
	return all, uses, err
}

// nodesOfMost is how many times Config.Most the metadata of all Nodes may have, of which nothing
// but names is kept.
const nodesOfMost = 64

// names returns which of the RenderedMachineConfigs Nodes, Machines and templates of machines name.
func (c *Controller) names(ctx context.Context, of map[string]bool) (names []string, err error) {
	found := map[string]bool{}
	add := func(annotations map[string]string, keys ...string) {
		for _, key := range keys {
			if name := annotations[key]; of[name] && !found[name] {
				found[name] = true
				names = append(names, name)
			}
		}
	}
	nodes := objectcache.PagesAtMost(nodesOfMost*c.cfg.Most, c.cfg.Target.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).List)
	err1 := decode.EachObject(ctx, "Nodes", metav1.ListOptions{}, nodes, func(node *metav1.PartialObjectMetadata) {
		add(node.Annotations, c.cfg.Prefix.CurrentConfig(), c.cfg.Prefix.DesiredConfig())
	})
	machines := c.cfg.Control.Resource(machinev1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(c.cfg.Namespace)
	err2 := decode.EachObject(ctx, "Machines", metav1.ListOptions{}, machines.List, func(m *metav1.PartialObjectMetadata) {
		add(m.Annotations, v1alpha1.AnnotationMachineConfig)
	})
	template := func(has map[string]string) { add(has, v1alpha1.AnnotationMachineConfig) }
	err3 := templates(ctx, "MachineDeployments", c.cfg.Machines.MachineDeployments(c.cfg.Namespace).List,
		func(page *machinev1alpha1.MachineDeploymentList) {
			for i := range page.Items {
				template(page.Items[i].Spec.Template.Annotations)
			}
		}, template)
	err4 := templates(ctx, "MachineSets", c.cfg.Machines.MachineSets(c.cfg.Namespace).List, func(page *machinev1alpha1.MachineSetList) {
		for i := range page.Items {
			template(page.Items[i].Spec.Template.Annotations)
		}
	}, template)
	return names, errors.Join(err1, err2, err3, err4)
}

// templates calls visit with each page of a list, and missing with the annotations of the template
// of each object that cannot be decoded. Errors: those of a request, and a template that cannot be
// decoded.
func templates[L interface {
	runtime.Object
	decode.Page
}](
	ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), visit func(L),
	missing func(has map[string]string),
) error {
	return decode.EachPage(ctx, what, func(ctx context.Context, options metav1.ListOptions) (L, error) {
		page, err := list(ctx, options)
		failures, err := decode.Missing(err)
		for _, f := range failures {
			var obj struct {
				Spec struct {
					Template struct {
						Metadata struct {
							Annotations map[string]string `json:"annotations"`
						} `json:"metadata"`
					} `json:"template"`
				} `json:"spec"`
			}
			err = errors.Join(err, f.Into(&obj))
			missing(obj.Spec.Template.Metadata.Annotations)
		}
		return page, err
	}, visit)
}
