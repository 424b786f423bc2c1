package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template/expand"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Source has templates.
type Source interface {
	// Run follows the templates until ctx ends, and calls changed when they have changed.
	Run(ctx context.Context, changed func())
	// Read returns the templates by name; nil while they are not known. isWatched means that Run
	// reports changes. Errors: there are none.
	Read() (templates map[string]string, isWatched bool, err error)
}

// None is a Source without a template.
type None struct{}

// Run does nothing.
func (None) Run(context.Context, func()) {}

// Read returns no template.
func (None) Read() (map[string]string, bool, error) { return map[string]string{}, true, nil }

// Folder is a Source of the files of a folder, such as a volume with a ConfigMap.
type Folder string

// Run does nothing.
func (Folder) Run(context.Context, func()) {}

// Read returns the files of the folder whose names do not begin with a dot. Errors: it cannot be
// read.
func (f Folder) Read() (map[string]string, bool, error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, false, fmt.Errorf("read the folder with templates: %w", err)
	}
	defer func() { _ = root.Close() }()
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, false, fmt.Errorf("read the folder with templates: %w", err)
	}
	templates := map[string]string{}
	for _, entry := range entries {
		if entry.Name()[0] == '.' || entry.IsDir() {
			continue
		}
		text, err := readFile(root, entry.Name())
		if err != nil {
			return nil, false, fmt.Errorf("read template %s: %w", entry.Name(), err)
		}
		if templates[entry.Name()] = text; len(templates) > expand.MaxTemplates {
			break // it is reported as too many
		}
	}
	return templates, false, nil
}

// readFile returns the content of a file, up to a byte more than a template may have.
func readFile(root *os.Root, name string) (string, error) {
	file, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, expand.MaxSource+1))
	return string(content), err
}

// Shared is a Source for several controllers, which begin and end while it is followed. Create one
// with NewShared.
type Shared struct {
	Source

	mu    sync.Mutex
	users map[*func()]bool
}

// NewShared returns a Source with the templates of another one.
func NewShared(of Source) *Shared { return &Shared{Source: of, users: map[*func()]bool{}} }

// Follow follows the templates until ctx ends. It is called once.
func (s *Shared) Follow(ctx context.Context) {
	s.Source.Run(ctx, func() {
		s.mu.Lock()
		users := slices.Collect(maps.Keys(s.users))
		s.mu.Unlock()
		for _, changed := range users {
			(*changed)()
		}
	})
}

// Run calls changed when the templates have changed, until ctx ends.
func (s *Shared) Run(ctx context.Context, changed func()) {
	s.mu.Lock()
	s.users[&changed] = true
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, &changed)
}

// ConfigMap is a Source of the data of a ConfigMap. Create one with NewConfigMap.
type ConfigMap struct {
	name   types.NamespacedName
	from   objectcache.Source
	store  *objectcache.Store[*corev1.ConfigMap]
	mu     sync.Mutex
	listed bool
}

// NewConfigMap returns the Source.
func NewConfigMap(client corev1client.ConfigMapsGetter, name types.NamespacedName) *ConfigMap {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
	return &ConfigMap{
		name: name, store: objectcache.NewStore[*corev1.ConfigMap](),
		from: objectcache.From(client.ConfigMaps(name.Namespace)).Fields(only),
	}
}

// Run watches the ConfigMap. It is called once.
func (c *ConfigMap) Run(ctx context.Context, changed func()) {
	c.store.OnChange(func(_, _ *corev1.ConfigMap) { changed() })
	objectcache.Watch(ctx, "ConfigMap with templates", c.from, "",
		&objectcache.Mirror[*corev1.ConfigMap]{Store: c.store, Mine: c.store.Each, Listed: func() {
			c.mu.Lock()
			c.listed = true
			c.mu.Unlock()
			changed()
		}})
}

// Read returns the data of the ConfigMap. Errors: it does not exist.
func (c *ConfigMap) Read() (map[string]string, bool, error) {
	c.mu.Lock()
	listed := c.listed
	c.mu.Unlock()
	found, exists := c.store.Get(c.name)
	switch {
	case !listed:
		return nil, true, nil
	case !exists:
		return nil, true, errors.New("ConfigMap " + c.name.String() +
			" with the templates does not exist in the control cluster. Create it, or correct --machine-config-templates")
	case found.Data == nil:
		return map[string]string{}, true, nil
	}
	return found.Data, true, nil
}
